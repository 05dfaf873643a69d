// Where nodes stand: the root in the middle, each level on a ring. Every node has a sector of the
// circle, inside of that of the node which its walk leads through, so no two lines cross. Angles
// begin at the top, where a sector is left free for the captions of the rings and the rests.

import { total } from "./dom.js";

const RING = 58; // least distance of rings, if they are few
const CLOSE = 36; // and if they are many
export const FEW = 4;
const GAP = 8; // between neighbours on a ring
const FREE = 0.9; // the free sector is no wider than this on either side, in radians
const SPREAD = 0.25; // by how much more the next ring grows
const CIRCLE = 2 * Math.PI;

// nodes: [{hop, parent, size}] by level; tops: by hop how far what stands on top of its ring reaches:
// {left, right, up, down}.
// -> [{x, y, angle}] of the nodes, and the radius of each ring.
export function place(nodes, tops) {
  const angles = new Array(nodes.length).fill(0);
  const children = nodes.map(() => []);
  nodes.forEach((node, at) => node.parent !== null && children[node.parent].push(at));
  const groups = [
    nodes.flatMap((node, at) => (typeof node.hop === "string" ? [at] : [])), // reached by no walk
    nodes[0].hop === 0 ? children[0] : [],
  ];
  const least = radii(nodes, tops);
  let rings, left, right;

  // The sector a node needs, for itself or for what hangs on it.
  const need = (at) => Math.max(
    (nodes[at].size + GAP) / rings.get(nodes[at].hop),
    total(children[at].map(need)));

  // Whether there is room for all, if the first ring is so much wider: the others hold nodes of fewer
  // sectors, and so grow less.
  function fits(wider) {
    rings = new Map([...least].map(([hop, radius], k) => [hop, radius + wider * (1 + SPREAD * k)]));
    [left, right] = ["left", "right"].map((side) =>
      Math.max(0, ...[...rings].map(([hop, radius]) => Math.min((tops.get(hop)[side] + GAP) / radius, FREE))));
    return Math.max(...groups.map((group) => total(group.map(need)))) <= CIRCLE - left - right;
  }

  let low = 0, high = 1;
  while (!fits(high)) high *= 2;
  for (let step = 0; step < 12; step++) fits((low + high) / 2) ? (high = (low + high) / 2) : (low = (low + high) / 2);
  fits(high);

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

  for (const group of groups) share(group, right, CIRCLE - left);
  const spots = nodes.map((node, at) => {
    const radius = rings.get(node.hop) ?? 0, angle = angles[at];
    return { x: radius * Math.sin(angle), y: -radius * Math.cos(angle), angle };
  });
  return { spots, rings };
}

// Rings on which the nodes of each level have room side by side, and what stands on top too; captions
// of many rings are left out where they have none.
function radii(nodes, tops) {
  const rings = new Map(), few = tops.size <= FEW;
  const largestOf = (hop) => Math.max(...nodes.filter((node) => node.hop === hop).map((node) => node.size), 0);
  let radius = 0, before = largestOf(0), above = before / 2;
  for (const [hop, { left, right, up, down }] of tops) {
    const sizes = nodes.filter((node) => node.hop === hop).map((node) => node.size), largest = largestOf(hop);
    const around = total(sizes) + sizes.length * GAP + left + right;
    radius = Math.max(
      radius + (few ? RING : CLOSE), radius + (before + largest) / 2 + GAP, radius + above + down + GAP / 2,
      around / CIRCLE, few ? (Math.max(left, right) + GAP) / FREE : 0);
    rings.set(hop, radius);
    before = largest;
    above = up;
  }
  return rings;
}
