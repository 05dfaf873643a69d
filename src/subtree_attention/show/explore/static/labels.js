// Which names are written, and on which side of their nodes: the most important first, each where it
// meets neither a node nor another name; the others wait until one zooms in. All in pixels.

export const AWAY = 4; // from a node to its name
const SIDES = { // where the box of a name begins, from the middle of its node
  right: (reach, wide, high) => [reach + AWAY, -high / 2],
  left: (reach, wide, high) => [-reach - AWAY - wide, -high / 2],
  top: (reach, wide, high) => [-wide / 2, -reach - AWAY - high],
  bottom: (reach, wide, high) => [-wide / 2, reach + AWAY],
  center: (reach, wide, high) => [-wide / 2, -high / 2],
};

// The sides of a node by preference: away from the root first, so that names do not meet in the middle.
export function sides(angle) {
  const across = Math.sin(angle), along = -Math.cos(angle);
  const side = across >= 0 ? ["right", "left"] : ["left", "right"];
  const high = along < 0 ? ["top", "bottom"] : ["bottom", "top"];
  const [first, second] = Math.abs(across) > 0.4 ? [side, high] : [high, side];
  return [first[0], second[0], second[1], first[1]];
}

// items: [{x, y, reach, wide, high, sides}] by importance, with the size of a name, or of none;
// room: [width, height], names stay inside; boxes: [left, top, right, bottom] where none may stand.
// -> for each item a side, or null.
export function written(items, room, boxes = []) {
  const taken = [...boxes];
  return items.map((item) => {
    if (!item.wide) return null;
    for (const side of item.sides) {
      const [dx, dy] = SIDES[side](item.reach, item.wide, item.high);
      const box = [item.x + dx, item.y + dy, item.x + dx + item.wide, item.y + dy + item.high];
      if (box[0] < 0 || box[1] < 0 || box[2] > room[0] || box[3] > room[1]) continue;
      if (taken.some((other) => meet(box, other)) || items.some((other) => other !== item && covers(other, box))) continue;
      taken.push(box);
      return side;
    }
    return null;
  });
}

const meet = (a, b) => a[0] < b[2] && b[0] < a[2] && a[1] < b[3] && b[1] < a[3];

function covers({ x, y, reach }, [left, top, right, bottom]) {
  const dx = x - Math.min(Math.max(x, left), right), dy = y - Math.min(Math.max(y, top), bottom);
  return dx * dx + dy * dy < reach * reach;
}
