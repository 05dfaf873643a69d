// The nodes in the lasso, mistakes first: how many of each class, and a link to each.

import { ask } from "./ask.js";
import { byId, count, el } from "./dom.js";

const MORE = 20; // nodes that are listed at a time
const CLASSES = 12; // that are counted

export class Selection {
  // item(node) makes an entry of a list; clear() drops the lasso.
  constructor({ graph, points, panels, item, clear, complain }) {
    Object.assign(this, { graph, points, panels, item, clear, complain });
    this.section = byId("selected");
  }

  // chosen: see Points.sort, null for none; key: the same for the same nodes.
  async show(chosen, key) {
    this.section.hidden = !chosen;
    if (!chosen || key === this.key) return;
    this.key = key;
    const nodes = new Uint32Array(chosen.wrong.length + chosen.right.length);
    nodes.set(chosen.wrong);
    nodes.set(chosen.right, chosen.wrong.length);
    const title = `${count(nodes.length, "node")} in the lasso, ${count(chosen.wrong.length, "mistake")}`;
    const list = el("ol"), more = this.button("Show more", () => add().then((first) => first?.focus()));
    let shown = 0;
    const add = async () => {
      const numbers = nodes.subarray(shown, (shown += MORE)).join();
      const items = numbers ? (await ask("map/nodes", { numbers })).map(this.item) : [];
      list.append(...items);
      more.hidden = shown >= nodes.length;
      return items[0]?.querySelector("a");
    };
    await add();
    this.section.replaceChildren(
      el("h2", { id: "selected-title" }, title), el("ul", { class: "counts" }, ...this.counts(nodes)),
      list, el("p", {}, more, " ", this.button("Clear the lasso", this.clear)));
    byId("said").textContent = title;
  }

  counts(nodes) {
    const counts = new Map();
    for (const node of nodes) counts.set(this.points.predicted[node], (counts.get(this.points.predicted[node]) ?? 0) + 1);
    return [...counts].sort((a, b) => b[1] - a[1]).slice(0, CLASSES).map(([cls, number]) =>
      el("li", {}, this.panels.named(this.graph.classes[cls]), ` ${number.toLocaleString("en")}`));
  }

  button(text, does) {
    const button = el("button", { type: "button" }, text);
    button.addEventListener("click", () => Promise.resolve(does()).catch(this.complain));
    return button;
  }
}
