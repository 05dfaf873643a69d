// Where nodes stand: the root in the middle, each level on a ring, in the order of the nodes that
// their walks lead through. Angles begin at the top, where each ring has a gap for its name.

const RING = 62; // least distance of rings
const GAP = 8; // between neighbours on a ring
const NAME = 52; // the gap at the top

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
    const toward = wanted(level, nodes, spots);
    level.sort((a, b) => toward.get(a) - toward.get(b) || a - b);
    const widths = level.map((at) => nodes[at].size + GAP);
    const around = widths.reduce((sum, width) => sum + width, NAME);
    radius = Math.max(radius + RING, around / (2 * Math.PI));
    rings.set(hop, radius);
    const angles = spread(widths, radius);
    level.forEach((at, i) => {
      const angle = angles[i];
      spots[at] = { x: radius * Math.sin(angle), y: -radius * Math.cos(angle), angle };
    });
  }
  return { spots, rings };
}

// The angle of the node that a walk leads through; what hangs on the root itself goes in between.
function wanted(level, nodes, spots) {
  const loose = level.filter((at) => !nodes[nodes[at].parent]?.hop);
  return new Map(level.map((at) => {
    const place = loose.indexOf(at);
    const angle = ((place + 0.5) / loose.length) * 2 * Math.PI;
    return [at, place < 0 ? spots[nodes[at].parent].angle : angle];
  }));
}

// Around the ring and past the gap, each with as much room as it is wide.
function spread(widths, radius) {
  const gap = NAME / radius;
  const room = widths.reduce((sum, width) => sum + width, 0);
  let passed = 0;
  return widths.map((width) => {
    passed += width;
    return gap / 2 + ((passed - width / 2) / room) * (2 * Math.PI - gap);
  });
}
