// What is drawn of nodes, rings, rests and walks, as Cytoscape asks for it.

import { colour } from "./colours.js";
import { called, few, hopName, percent, pictureOf } from "./dom.js";
import { AWAY, sides } from "./labels.js";
import { FEW } from "./layout.js";
import { TEXT } from "./look.js";

const RING = 5; // of a mistake, with the gap inside it
const SMALLEST = 9, LARGEST = 46, PICTURED = 26; // the least size of a node with a picture

// Areas go by what is shown. All the attention of hop 0 is the root's own, so others set the scale.
export function mostOf(nodes, by) {
  const values = nodes.map((node) => Math.abs(node[by]));
  return Math.max(...values.filter((_, i) => by === "contribution" || nodes[i].hop !== 0), 1e-12);
}

export function sizeOf(value, most, picture = false) {
  const least = picture ? PICTURED : SMALLEST;
  return least + (LARGEST - least) * Math.sqrt(Math.min(Math.abs(value) / most, 1));
}

function captionOf(level, many) {
  const { hop, rest } = level, name = many && typeof hop === "number" ? hop : hopName(hop);
  if (!rest.nodes) return `${name}: all ${few(level.nodes)}`;
  const drawn = `${few(level.nodes - rest.nodes)} of ${few(level.nodes)}, ${percent(1 - rest.attention, 0)}`;
  return `${name}${many ? ": " : "\n"}${drawn}`;
}

// What stands on top of a ring, the rest of the level and a caption: how far it reaches, see layout.js,
// in sizes of the picture, in which texts are `larger`.
export function topOf(level, by, most, larger, levels) {
  const caption = captionOf(level, levels > FEW), lines = caption.split("\n");
  const inside = (widthOf(`+${few(level.rest.nodes)}`) + 4) * larger;
  const size = level.rest.nodes ? Math.max(inside, sizeOf(level.rest[by], most)) : 0;
  const wide = Math.max(...lines.map((text) => widthOf(text))) * larger;
  const high = (lines.length * TEXT.line + AWAY) * larger, half = size / 2;
  const told = { caption, size, down: half || high / 2 };
  if (!size) return { ...told, side: "center", left: wide / 2, right: wide / 2, up: high / 2 };
  if (levels > FEW) return { ...told, side: "left", left: half + AWAY * larger + wide, right: half, up: half };
  return { ...told, side: "top", left: Math.max(wide / 2, half), right: Math.max(wide / 2, half), up: half + high };
}

export function ring({ hop, rest }, radius, { caption, size, side }) {
  const node = (kind, classes, data) =>
    ({ group: "nodes", classes, position: { x: 0, y: -radius }, data: { id: `${kind}-${hop}`, points: TEXT.small, per: 1, name: "", ...data } });
  const around = node("ring", "ring", { size: 2 * radius });
  around.position.y = 0;
  const at = { called: caption, size: size || 1, ring: 0, weight: 1e6, sides: [side], ...asked(side, 1, 0) };
  const named = node("caption", "caption named", at);
  if (!size) return [around, named];
  const told = { ...rest, hop, rest: true };
  return [around, named, node("rest", "seen rest", { told, size, ring: 0, weight: 0, angle: 0, name: `+${few(rest.nodes)}` })];
}

export function mark(told, i, spot, options, classes) {
  const root = told.hop === 0, wrong = told.label !== null && told.label !== told.predicted;
  const data = {
    id: `node-${i}`, told, size: told.size, angle: spot.angle, called: called(told), name: "", ring: 0, per: 1,
    points: root ? TEXT.root : TEXT.size, bold: root, weight: root ? 1e9 : told.size,
    sides: root ? ["bottom", "top", "right", "left"] : sides(spot.angle), ...asked("bottom", 1, 0),
    truth: classes.look(told.label ?? told.predicted).colour,
  };
  if (options.by === "contribution") {
    const adds = told.contribution >= 0;
    Object.assign(data, { fill: colour(adds ? "plus" : "minus"), shape: adds ? "ellipse" : "diamond" });
  } else {
    const { colour: fill, shape } = classes.look(told.predicted);
    Object.assign(data, { fill, shape, ring: wrong ? RING : 0 });
  }
  if (told.picture) data.picture = pictureOf(told);
  const kinds = ["seen named mark", ...(root ? ["root"] : []), ...(told.picture ? ["pictured"] : [])];
  return { group: "nodes", data, position: { x: spot.x, y: spot.y }, classes: kinds.join(" ") };
}

export function line(told, i, parent) {
  const data = { id: `edge-${i}`, source: `node-${i}`, target: `node-${told.parent}`, per: 1 };
  return { group: "edges", data, classes: told.hop - parent.hop === 1 ? "" : "passing" };
}

// ----------------------------------------------------------------------------------------- names

const pen = document.createElement("canvas").getContext("2d");

export function widthOf(text, bold = false) {
  if (!text) return 0;
  pen.font = `${bold ? `bold ${TEXT.root}` : TEXT.size}px ${TEXT.font}`;
  return pen.measureText(text).width + 2;
}

// A side as Cytoscape asks for it.
export function asked(side, zoom, ring) {
  const away = AWAY / zoom + ring;
  return {
    side: side === "left" || side === "right" ? side : "center",
    high: side === "top" || side === "bottom" ? side : "center",
    awayX: { left: -away, right: away }[side] ?? 0,
    awayY: { top: -away, bottom: away }[side] ?? 0,
  };
}
