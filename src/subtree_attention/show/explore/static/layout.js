// Where nodes stand: the root in the middle, each level on a ring. Every node has a sector of the
// circle, inside of that of the node which its walk leads through, so no two lines cross. Angles
// begin at the top, where a sector is left free for the names of the rings.

import { total } from "./dom.js";

const RING = 58; // least distance of rings, if they are few
const CLOSE = 36; // and if they are many
const FEW = 4;
const GAP = 8; // between neighbours on a ring
const NAME = 44; // width of the free sector at the first ring
const CIRCLE = 2 * Math.PI;

// nodes: [{hop, parent, size}] by level -> [{x, y, angle}], and the radius of each ring.
export function place(nodes) {
  const angles = new Array(nodes.length).fill(0);
  const children = nodes.map(() => []);
  nodes.forEach((node, at) => node.parent !== null && children[node.parent].push(at));
  const rings = radii(nodes);
  const free = NAME / Math.min(...rings.values());

  // The sector a node needs, for itself or for what hangs on it.
  const need = (at) => Math.max(
    (nodes[at].size + GAP) / rings.get(nodes[at].hop),
    total(children[at].map(need)));

  function share(siblings, from, to) {
    const needs = siblings.map(need);
    const scale = (to - from) / total(needs);
    siblings.forEach((at, i) => {
      const until = from + needs[i] * scale;
      angles[at] = (from + until) / 2;
      share(children[at], from, until);
      from = until;
    });
  }

  const groups = [
    nodes.flatMap((node, at) => (typeof node.hop === "string" ? [at] : [])), // reached by no walk
    nodes[0].hop === 0 ? children[0] : [],
  ];
  const most = Math.max(...groups.map((group) => total(group.map(need))));
  const wider = Math.max(1, most / (CIRCLE - free));
  for (const [hop, radius] of rings) rings.set(hop, radius * wider);
  for (const group of groups) share(group, free / 2, CIRCLE - free / 2);
  const spots = nodes.map((node, at) => {
    const radius = rings.get(node.hop) ?? 0, angle = angles[at];
    return { x: radius * Math.sin(angle), y: -radius * Math.cos(angle), angle };
  });
  return { spots, rings };
}

// Rings on which the nodes of each level have room side by side.
function radii(nodes) {
  const rings = new Map(), hops = new Set(nodes.map((node) => node.hop));
  const apart = hops.size <= FEW + 1 ? RING : CLOSE;
  let radius = 0, before = 0;
  for (const hop of hops) {
    const sizes = nodes.filter((node) => node.hop === hop).map((node) => node.size);
    const largest = Math.max(...sizes);
    if (hop !== 0) {
      const around = total(sizes) + sizes.length * GAP + NAME;
      radius = Math.max(radius + apart, radius + (before + largest) / 2 + GAP, around / CIRCLE);
      rings.set(hop, radius);
    }
    before = largest;
  }
  return rings;
}
