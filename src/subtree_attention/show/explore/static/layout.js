// Where nodes stand: the root in the middle, each level on a ring. Every node has a sector of the
// circle, inside of that of the node which its walk leads through, so no two lines cross. Angles
// begin at the top, where a sector is left free for the captions of the rings and the rests.

import { total } from "./dom.js";

const RING = 58; // least distance of rings, if they are few
const CLOSE = 36; // and if they are many
export const FEW = 4;
const GAP = 8; // between neighbours on a ring
const FREE = 0.9; // the free sector is no wider than this on either side, in radians
const CIRCLE = 2 * Math.PI;

// nodes: [{hop, parent, size}] by level; tops: by hop how far what stands on top of its ring reaches:
// {left, right, up, down}.
// -> [{x, y, angle}] of the nodes, and the radius of each ring.
export function place(nodes, tops) {
  const angles = new Array(nodes.length).fill(0);
  const children = nodes.map(() => []);
  nodes.forEach((node, at) => node.parent !== null && children[node.parent].push(at));
  const rings = radii(nodes, tops);
  const [left, right] = ["left", "right"].map((side) =>
    Math.max(0, ...[...rings].map(([hop, radius]) => Math.min((tops.get(hop)[side] + GAP) / radius, FREE))));

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
  const wider = Math.max(1, most / (CIRCLE - left - right));
  for (const [hop, radius] of rings) rings.set(hop, radius * wider);
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
