// A small map of all nodes beside a subtree, whose nodes are lit in it.

import { colour, COLOURS } from "./colours.js";
import { count } from "./dom.js";
import { palette } from "./map.js";

const BEHIND = 5000; // points that are drawn of all others

export class MiniMap {
  constructor(canvas, told, points) {
    Object.assign(this, { canvas, told, points });
  }

  // nodes: numbers, the root first. By t-SNE, if that is ready.
  async show(nodes) {
    const mine = (this.asked = {}), { places: maps } = await this.points.load();
    if (!maps.has("tsne") && (await this.points.status()).tsne === "ready") await this.points.placed("tsne");
    if (mine !== this.asked) return; // another root was asked for meanwhile
    const places = maps.get("tsne") ?? maps.get("pca");
    this.told.textContent = `The root and ${count(nodes.length - 1, "node")} of its subtree that are drawn, among `
      + `${count(this.points.count, "node")} by ${maps.has("tsne") ? "t-SNE" : "PCA"} of their logits.`;
    const { canvas, points } = this, side = canvas.clientWidth * devicePixelRatio, of = palette();
    if (!side) return;
    Object.assign(canvas, { width: side, height: side });
    const pen = canvas.getContext("2d"), unit = side / canvas.clientWidth;
    const dot = (node, radius, look, alpha) => {
      pen.globalAlpha = alpha;
      pen.fillStyle = look;
      pen.beginPath();
      pen.arc(side * (0.5 + 0.46 * places[2 * node]), side * (0.5 - 0.46 * places[2 * node + 1]), radius * unit, 0, 7);
      pen.fill();
    };
    const looks = Array.from({ length: COLOURS }, (_, i) => `rgb(${of(i).join()})`), ink = colour("ink");
    const every = Math.max(1, Math.ceil(points.count / BEHIND));
    for (let node = 0; node < points.count; node += every) dot(node, 1.1, looks[points.predicted[node] % COLOURS], 0.3);
    const [root, ...others] = nodes;
    for (const node of others) dot(node, 2.6, ink, 1);
    for (const node of others) dot(node, 1.8, looks[points.predicted[node] % COLOURS], 1);
    dot(root, 5.5, ink, 1);
    dot(root, 3.5, looks[points.predicted[root] % COLOURS], 1);
  }
}
