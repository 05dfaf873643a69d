// What stands around the picture: the verdict, bars, tables, the legend, the list and the card.

import { byId, count, el, hopName, percent, short, signed } from "./dom.js";

export class Panels {
  // link(id) makes a link that opens a node as the root.
  constructor(graph, classes, link) {
    Object.assign(this, { graph, classes, link });
  }

  show(view, options) {
    document.querySelectorAll(".of-class").forEach((place) => (place.textContent = view.class));
    byId("root").replaceChildren(el("span", { class: "quiet" }, "node "), view.id);
    byId("verdict").replaceChildren(...this.verdict(view));
    byId("classes").replaceChildren(...this.classRows(view));
    byId("hops-heads").replaceChildren(...hopRows(view));
    byId("sources").replaceChildren(...this.sourceRows(view, options));
    byId("sum").textContent = sumOf(view, this.classes);
    byId("columns").replaceChildren(...columnsOf(view.columns));
    byId("legend").replaceChildren(...this.legend(view, options));
    byId("list").replaceChildren(...this.levels(view, options));
  }

  named(name) {
    return el("span", { class: "class-name" }, el("span", { class: this.classes.mark(name) }), name);
  }

  verdict(node) {
    const parts = [el("span", {}, "predicted ", this.named(node.predicted), ` ${percent(node.probability)}`)];
    if (node.label === null) parts.push("class not known");
    else if (node.label === node.predicted) parts.push("which is right");
    else parts.push(el("span", { class: "wrong" }, "it is ", this.named(node.label)));
    if (node.split) parts.push(`${node.split} node`);
    return parts.flatMap((part, i) => (i ? [el("span", { class: "dot" }, " · "), part] : [part]));
  }

  classRows(view) {
    const order = view.logits.map((_, i) => i).sort((a, b) => view.logits[b] - view.logits[a]);
    const head = el("tr", {}, ...["class", "probability", "logit"].map((name, i) =>
      el("th", { scope: "col", colspan: i === 1 ? "2" : false }, name)));
    const rows = order.map((cls) => {
      const name = this.graph.classes[cls];
      const chosen = name === view.class;
      return el("tr", { class: chosen && "chosen" },
        el("th", { scope: "row" }, this.named(name)),
        el("td", { class: "bar-cell" }, bar(view.probabilities[cls], 1, "share")),
        el("td", {}, percent(view.probabilities[cls])),
        el("td", {}, signed(view.logits[cls])));
    });
    return [head, ...rows];
  }

  sourceRows(view, options) {
    const { parts } = view;
    const most = Math.max(...parts.sources.map((source) => Math.abs(source.contribution)), 1e-12);
    const head = el("tr", {}, el("th", { scope: "col" }, "node"), el("th", { scope: "col" }, "most by"),
      el("th", { scope: "col", colspan: "2" }, "adds"));
    const rows = parts.sources.map((source) => el("tr", {},
      el("th", { scope: "row" }, el("span", { class: this.classes.mark(source.predicted) }),
        this.link(source.id)),
      el("td", {}, hopName(source.hop)),
      el("td", { class: "bar-cell" }, bar(source.contribution, most)),
      el("td", {}, signed(source.contribution))));
    const rest = [
      [parts.others, count(parts.others, "other node"), parts.others_contribution],
      [view.levels.some((level) => !level.rest), `beyond hop ${options.hops}`, parts.beyond],
      [options.head !== "all", "other heads", parts.other_heads],
      [true, "bias", parts.bias],
    ].filter(([there]) => there);
    for (const [, name, value] of rest) rows.push(sumRow(name, value, "quiet"));
    rows.push(sumRow(`logit of ${view.class}`, parts.logit, "total"));
    return [head, ...rows];
  }

  legend(view, options) {
    const item = (mark, text) => el("li", {}, el("span", { class: mark }), text);
    const size = options.by === "attention" ? "share of attention" : `contribution to ${view.class}`;
    const items = [el("li", { class: "quiet" }, `Size: ${size}`)];
    if (options.by === "contribution") {
      items.push(item("mark plus", "adds"), item("mark minus shape-diamond", "takes away"));
    } else {
      const seen = new Set(view.nodes.flatMap((node) => [node.predicted, node.label ?? node.predicted]));
      for (const name of this.graph.classes.filter((each) => seen.has(each))) {
        items.push(item(this.classes.mark(name), name));
      }
      items.push(item("mark ringed", "ring: true class"));
    }
    items.push(el("li", { class: "quiet" }, "lines: the most probable walk, dashed through nodes not shown"));
    return items;
  }

  levels(view, options) {
    return view.levels.filter((level) => level.rest).map((level) => {
      const nodes = view.nodes.filter((node) => node.hop === level.hop);
      const items = nodes.map((node) => el("li", {}, this.link(node.id), ` ${this.told(node, options)}`));
      if (level.rest.nodes) items.push(el("li", { class: "quiet" }, restOf(level.rest)));
      const title = `${hopName(level.hop)}: ${count(level.nodes, "node")}, ${signed(level.contribution)}`;
      return el("section", {}, el("h3", {}, title), el("ul", {}, ...items));
    });
  }

  // A node in words, for the list and for screen readers.
  told(node) {
    const truth = node.label === null ? "" : `, is ${node.label}`;
    const split = node.split ? `, ${node.split}` : "";
    return `predicted ${node.predicted} ${percent(node.probability)}${truth}${split}; `
      + `attention ${percent(node.attention)}, adds ${signed(node.contribution)}`;
  }

  card(node) {
    const card = byId("card");
    card.hidden = !node;
    if (!node) return;
    const steps = node.walk.map((id) => short(id, 18)).join(" → ");
    const rows = [
      [hopName(node.hop), `${percent(node.attention)} of attention`],
      ["adds", signed(node.contribution)],
      ...node.about.probabilities.map(([name, share]) => [this.named(name), percent(share)]),
      ...node.about.columns.map(([name, value]) => [short(name, 24), short(value, 60)]),
    ];
    card.replaceChildren(
      el("p", { class: "card-title" }, short(node.id, 60)),
      el("p", { class: "card-verdict" }, ...this.verdict(node)),
      el("dl", {}, ...columnsOf(rows)),
      ...(node.walk.length > 1 ? [el("p", { class: "quiet" }, `walk: ${steps}`)] : []));
  }

  list(title, hint, nodes) {
    const items = nodes.map((node) => el("li", {},
      this.link(node.id),
      el("span", { class: "quiet" }, percent(node.probability)),
      el("span", { class: "pair" }, this.named(node.predicted),
        node.label !== null && node.label !== node.predicted
          ? el("span", { class: "wrong" }, "is ", this.named(node.label)) : null,
        node.split && el("span", { class: "quiet" }, node.split))));
    const body = items.length ? el("ol", {}, ...items) : el("p", { class: "quiet" }, "None.");
    return el("section", {}, el("h2", {}, title), el("p", { class: "quiet" }, hint), body);
  }
}

function hopRows(view) {
  const heads = view.levels[0].heads.length;
  const all = [...view.levels.map((level) => total(level.heads)), view.parts.bias];
  const most = Math.max(...all.map(Math.abs), 1e-12);
  const names = Array.from({ length: heads }, (_, i) => `head ${i + 1}`);
  const title = el("tr", {}, el("td"), el("th", { scope: "col" }, "all"), el("td"),
    ...names.map((name) => el("th", { scope: "col" }, name)));
  const row = (name, cells, whole, kind) => el("tr", { class: kind },
    el("th", { scope: "row" }, name), el("td", {}, signed(whole)),
    el("td", { class: "bar-cell" }, kind === "total" ? null : bar(whole, most)),
    ...cells.map((cell) => el("td", {}, cell)));
  const sums = Array.from({ length: heads }, (_, i) => total(view.levels.map((level) => level.heads[i])));
  return [
    title,
    ...view.levels.map((level) =>
      row(hopName(level.hop), level.heads.map(signed), total(level.heads), level.rest ? false : "quiet")),
    row("bias", Array(heads).fill(""), view.parts.bias, false),
    row("logit", sums.map(signed), view.parts.logit, "total"),
  ];
}

function sumRow(name, value, kind) {
  return el("tr", { class: kind }, el("th", { scope: "row", colspan: "2" }, name), el("td"),
    el("td", {}, signed(value)));
}

function sumOf(view, classes) {
  const { parts } = view;
  const told = total(parts.sources.map((source) => source.contribution)) + parts.others_contribution
    + parts.beyond + parts.other_heads + parts.bias;
  const own = view.logits[classes.places.get(view.class)];
  return `The rows add up to ${told.toFixed(5)}; the model's own logit is ${own.toFixed(5)}.`;
}

function columnsOf(rows) {
  return rows.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]);
}

function restOf(rest) {
  return `${count(rest.nodes, "other")}: attention ${percent(rest.attention)}, adds ${signed(rest.contribution)}`;
}

function bar(value, most, kind = value < 0 ? "minus" : "plus") {
  const inner = el("span", { class: `bar ${kind}` });
  inner.style.width = `${(100 * Math.abs(value)) / most}%`;
  return inner;
}

const total = (values) => values.reduce((sum, value) => sum + value, 0);
