// Where nodes stand: the root in the middle, each level on a ring, near the nodes they walk through.

const RING = 62; // least distance of rings
const GAP = 8; // between neighbours on a ring

// nodes: [{hop, parent, size}] by level -> [{x, y, angle}], and the radius of each ring.
export function place(nodes) {
  const spots = new Array(nodes.length);
  const rings = new Map();
  let radius = 0;
  for (const hop of new Set(nodes.map((node) => node.hop))) {
    const level = nodes.flatMap((node, at) => (node.hop === hop ? [at] : []));
    if (hop === 0) {
      spots[level[0]] = { x: 0, y: 0, angle: 0 };
      continue;
    }
    const toward = (at) => spots[nodes[at].parent]?.angle ?? 0;
    level.sort((a, b) => toward(a) - toward(b) || a - b);
    const widths = level.map((at) => nodes[at].size + GAP);
    const around = widths.reduce((sum, width) => sum + width, 0);
    radius = Math.max(radius + RING, around / (2 * Math.PI));
    rings.set(hop, radius);
    const angles = spread(widths, around);
    const turn = meanTurn(level.map(toward), angles);
    level.forEach((at, i) => {
      const angle = turnOf(angles[i] + turn);
      spots[at] = { x: radius * Math.cos(angle), y: radius * Math.sin(angle), angle };
    });
  }
  return { spots, rings };
}

function spread(widths, around) {
  let passed = 0;
  return widths.map((width) => {
    passed += width;
    return ((passed - width / 2) / around) * 2 * Math.PI;
  });
}

// The turn of the ring that brings its nodes nearest to their parents.
function meanTurn(wanted, angles) {
  let x = 0, y = 0;
  wanted.forEach((angle, i) => {
    x += Math.cos(angle - angles[i]);
    y += Math.sin(angle - angles[i]);
  });
  return Math.hypot(x, y) < 1e-6 ? 0 : Math.atan2(y, x);
}

const turnOf = (angle) => ((angle % (2 * Math.PI)) + 2 * Math.PI) % (2 * Math.PI);
