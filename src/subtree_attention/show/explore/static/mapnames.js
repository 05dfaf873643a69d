// Names of classes on the map, each where most of its nodes lie.

import { el } from "./dom.js";
import { NO_CLASS } from "./points.js";

const SIDE = 9; // cells of the map along each side, in which nodes are counted
const MOST = 60; // names: of more classes, those with most nodes

export class Names {
  constructor(list, classes) {
    Object.assign(this, { list, classes, names: [] });
  }

  // Of all nodes, so that names stay where they are; shown are those of the nodes that are chosen.
  of({ right, wrong, rest }, places, classes) {
    const cells = new Map(), chosen = new Set(), cell = (value) => Math.min(SIDE - 1, Math.floor(((value + 1) / 2) * SIDE));
    for (const part of [right, wrong, rest]) {
      for (const node of part) {
        const x = places[2 * node], y = places[2 * node + 1], cls = classes[node];
        if (part !== rest) chosen.add(cls);
        const key = (cls * SIDE + cell(y)) * SIDE + cell(x), found = cells.get(key);
        if (!found) cells.set(key, { cls, nodes: 1, x, y });
        else {
          found.nodes += 1;
          found.x += x;
          found.y += y;
        }
      }
    }
    chosen.delete(NO_CLASS);
    const fullest = new Map();
    for (const found of cells.values()) {
      if (chosen.has(found.cls) && found.nodes > (fullest.get(found.cls)?.nodes ?? 0)) fullest.set(found.cls, found);
    }
    const most = [...fullest.values()].sort((a, b) => b.nodes - a.nodes).slice(0, MOST);
    this.names = most.map(({ cls, nodes, x, y }) => ({
      at: [x / nodes, y / nodes], text: el("li", {}, this.classes[cls]),
    }));
    this.list.replaceChildren(...this.names.map(({ text }) => text));
  }

  // project(place) says where a place of the map is on the screen. Of names that would lie over
  // each other the larger class has its own.
  put(project, [width, height]) {
    const taken = [];
    for (const { at, text } of this.names) {
      const [x, y] = project(at), half = text.offsetWidth / 2 + 4;
      const box = [x - half, y - 12, x + half, y + 12];
      const free = x > 0 && y > 0 && x < width && y < height
        && taken.every((other) => box[0] > other[2] || box[2] < other[0] || box[1] > other[3] || box[3] < other[1]);
      text.style.visibility = free ? "visible" : "hidden";
      text.style.transform = `translate(-50%, -50%) translate(${x.toFixed(1)}px, ${y.toFixed(1)}px)`;
      if (free) taken.push(box);
    }
  }
}
