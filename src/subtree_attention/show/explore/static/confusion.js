// True classes against predictions: a table whose cells are filters, of many classes the worst pairs.

import { byId, count, el, total } from "./dom.js";

export class Confusion {
  // choose({ true, predicted }) is called with the classes of a cell, none to clear it.
  constructor(graph, panels, choose) {
    Object.assign(this, { graph, panels, choose, split: null, cells: [] });
  }

  show(table, { split, true: truth, predicted }) {
    if (split !== this.split) this.build(table, split);
    const is = (chosen, name) => chosen.length === 1 && chosen[0] === name;
    for (const { button, pair } of this.cells) {
      button.setAttribute("aria-pressed", String(is(truth, pair[0]) && is(predicted, pair[1])));
    }
  }

  build(table, split) {
    this.split = split;
    this.cells = [];
    byId("confusion").replaceChildren(table.counts ? this.table(table.counts) : this.pairs(table.pairs));
  }

  table(counts) {
    const { classes } = this.graph;
    const heads = classes.map((name) => el("th", { scope: "col", title: name }, this.mark(name)));
    const rows = counts.map((row, i) => {
      const whole = total(row);
      const cells = row.map((nodes, j) => {
        if (!nodes) return el("td");
        const cell = this.cell(classes[i], classes[j], nodes);
        cell.classList.add(i === j ? "agrees" : "differs");
        cell.style.setProperty("--share", `${Math.round(12 + (78 * nodes) / whole)}%`);
        return el("td", {}, cell);
      });
      return el("tr", {}, el("th", { scope: "row" }, this.panels.named(classes[i])), ...cells);
    });
    const corner = el("td", { class: "quiet" }, "predicted →", el("br"), "true ↓");
    return el("div", { class: "wide", tabindex: "0", role: "region", "aria-label": "True class and prediction" },
      el("table", {}, el("tr", {}, corner, ...heads), ...rows));
  }

  mark(name) {
    return el("span", { class: "class-name" }, el("span", { class: this.panels.classes.look(name).mark }),
      el("span", { class: "unseen" }, name));
  }

  pairs(pairs) {
    if (!pairs.length) return el("p", { class: "quiet" }, "No mistakes.");
    return el("ul", { class: "pairs" }, ...pairs.map(([truth, predicted, nodes]) => el("li", {},
      this.panels.named(truth), el("span", { class: "quiet" }, "taken for"), this.panels.named(predicted),
      this.cell(truth, predicted, nodes))));
  }

  cell(truth, predicted, nodes) {
    const told = `true ${truth}, predicted ${predicted}: ${count(nodes, "node")}`;
    const button = el("button", { type: "button", title: told, "aria-label": told }, nodes.toLocaleString("en"));
    button.addEventListener("click", () => {
      const pressed = button.getAttribute("aria-pressed") === "true";
      this.choose(pressed ? { true: [], predicted: [] } : { true: [truth], predicted: [predicted] });
    });
    this.cells.push({ button, pair: [truth, predicted] });
    return button;
  }
}
