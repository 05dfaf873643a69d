// What stands around the picture: the verdict, bars, tables, the legend, the list and the card.

import { columnRows, columnsSaid, ownColumns, since } from "./columns.js";
import {
  bar, button, byId, called, count, el, hopName, idOf, largest, percent, pictureOf, row, short, signed, titled, total,
} from "./dom.js";
import { showWhatIf } from "./whatif.js";

export class Panels {
  // on.link(node) makes a link that opens a node as the root, on.open(rest) draws more of a level,
  // on.add, on.drop and on.clear change what is asked.
  constructor(graph, classes, on) {
    Object.assign(this, { graph, classes, on, link: on.link });
  }

  show(view, options) {
    document.querySelectorAll(".of-class").forEach((place) => (place.textContent = taken(view)));
    byId("root").replaceChildren(...this.heading(view));
    byId("verdict").replaceChildren(...this.verdict(view));
    byId("alone").textContent = alone(view);
    byId("classes").replaceChildren(...this.classRows(view));
    byId("hops-heads").replaceChildren(...hopRows(view));
    byId("sources").replaceChildren(...this.sourceRows(view, options));
    byId("sum").textContent = sumOf(view, this.classes);
    byId("columns").replaceChildren(...ownColumns(view, this.on));
    showWhatIf(view, (name) => this.named(name), this.on);
    byId("legend").replaceChildren(...this.legend(view, options));
    byId("list").replaceChildren(...this.levels(view));
  }

  showColumns(columns, view) {
    byId("by-column").replaceChildren(...columnRows(columns, this.modelPart(view), view, this.on));
    byId("columns-said").textContent = columnsSaid(columns);
  }

  // What columns add up to: all but what stands beside the model.
  modelPart(view) {
    const beside = Object.keys(view.parts.beside);
    return [taken(view).replace("the ", ""), ...(beside.length ? [`without ${beside.join(", ")}`] : [])].join(", ");
  }

  heading(view) {
    const picture = view.picture ? [el("img", { src: pictureOf(view), alt: "" })] : [];
    return [...picture, ...(view.name ? titled(view) : [el("span", { class: "quiet" }, "node "), view.id])];
  }

  named(name) {
    return el("span", { class: "class-name" }, el("span", { class: this.classes.look(name).mark }), name);
  }

  verdict(node) {
    const parts = [el("span", {}, "predicted ", this.named(node.predicted), ` (${percent(node.probability)})`)];
    if (node.label === null) parts.push("class not known");
    else if (!wrong(node)) parts.push("which is right");
    else parts.push(el("span", { class: "wrong" }, "it is ", this.named(node.label)));
    if (node.split) parts.push(`${node.split} node`);
    return parts.flatMap((part, i) => (i ? [" · ", part] : [part]));
  }

  classRows(view) {
    const { changed, rather } = view;
    const order = view.logits.map((_, i) => i).sort((a, b) => view.logits[b] - view.logits[a]);
    const rows = order.map((cls) => {
      const name = this.graph.classes[cls], share = view.probabilities[cls], was = changed?.probabilities[cls];
      const bars = el("span", {}, ...(changed ? [bar(was, 1, "was")] : []), bar(share, 1, "share"));
      return row((name === view.class || name === rather) && "chosen", this.named(name),
        ...(changed ? [percent(was)] : []), bars, percent(share), signed(view.logits[cls]));
    });
    const heads = changed ? [["before"], ["after", 2]] : [["probability", 2]];
    return [head(["class"], ...heads, ["logit"]), ...rows];
  }

  sourceRows(view, options) {
    const { parts } = view;
    const most = largest(parts.sources.map((source) => source.contribution));
    const rows = parts.sources.map((source) => row(false,
      el("span", {}, el("span", { class: this.classes.look(source.predicted).mark }), this.link(source), ...idOf(source)),
      hopName(source.hop), bar(source.contribution, most), signed(source.contribution)));
    const rest = [
      [parts.others, count(parts.others, "other node"), parts.others_contribution, "quiet"],
      [view.levels.some((level) => !level.rest), `beyond hop ${options.hops}`, parts.beyond, "quiet"],
      [options.head !== "all", "other heads", parts.other_heads, "quiet"],
      ...Object.entries(parts.beside).map(([name, value]) => [true, name, value, "quiet"]),
      [true, "bias", parts.bias, "quiet"],
      [true, taken(view).replace("the ", ""), parts.logit, "total"],
    ].filter(([there]) => there);
    const sums = rest.map(([, name, value, kind]) => el("tr", { class: kind },
      el("th", { scope: "row", colspan: "2" }, name), el("td"), el("td", {}, signed(value))));
    return [head(["node"], ["most by"], ["adds", 2]), ...rows, ...sums];
  }

  legend(view, options) {
    const item = (mark, text) => el("li", {}, el("span", { class: mark }), text);
    const size = options.by === "attention" ? "share of attention" : `contribution to ${taken(view)}`;
    const items = [el("li", { class: "quiet" }, `Size: ${size}`)];
    if (options.by === "contribution") {
      items.push(item("mark plus", "adds"), item("mark minus shape-diamond", "takes away"));
    } else {
      const seen = new Set(view.nodes.flatMap((node) => [node.predicted, node.label]));
      const names = this.graph.classes.filter((name) => seen.has(name));
      items.push(...names.map((name) => item(this.classes.look(name).mark, name)));
      if (view.nodes.some(wrong)) items.push(item("mark ringed", "ring: a mistake, in the colour of its true class"));
    }
    items.push(el("li", { class: "quiet" }, "lines: the most probable walk, dashed through nodes not shown"));
    if (view.levels.some((level) => level.rest?.nodes)) items.push(el("li", { class: "quiet" },
      "on top of a ring: nodes drawn of all, their share of its attention, and the others as one, to be opened"));
    return items;
  }

  levels(view) {
    return view.levels.filter((level) => level.rest).map((level) => {
      const nodes = view.nodes.filter((node) => node.hop === level.hop);
      const items = nodes.map((node) => el("li", {}, this.link(node), ...idOf(node), ` ${this.told(node)}`));
      if (level.rest.nodes) items.push(this.rest({ ...level.rest, hop: level.hop }));
      const title = `${hopName(level.hop)}: ${count(level.nodes, "node")}, ${signed(level.contribution)}`;
      return el("section", {}, el("h3", {}, title), el("ul", {}, ...items));
    });
  }

  // What is not drawn of a level, as the last of its list.
  rest(rest) {
    const told = `${count(rest.nodes, "other")}: ${added(rest)} `;
    return el("li", { class: "quiet" }, told, rest.opened === null ? bound(rest) : button(more(rest), () => this.on.open(rest)));
  }

  // A node in words, for the list and for screen readers.
  told(node) {
    if (node.rest) return `${added(node)}; ${node.opened === null ? bound(node) : `Enter: ${more(node)}`}`;
    const truth = node.label === null ? "" : `, is ${node.label}`;
    const split = node.split ? `, ${node.split}` : "";
    return `predicted ${node.predicted} ${percent(node.probability)}${truth}${split}; ${added(node)}`;
  }

  title(node) {
    if (node.rest) return othersOf(node);
    return node.step ? `${short(node.walk[0], 24)} → ${short(node.walk[1], 24)}` : called(node);
  }

  // actions: [[what a button says, what it does]].
  card(node, actions = []) {
    const card = byId("card");
    card.hidden = !node;
    if (!node) return;
    const rows = [
      [hopName(node.hop), `${percent(node.attention)} of attention`],
      ["adds", signed(node.contribution)],
    ];
    if (node.step) rows.splice(0, 2, ["step", `from ${hopName(node.hop)} to ${hopName(node.hop - 1)}`]);
    const said = node.rest || node.step ? [el("dl", {}, ...columnsOf(rows))] : this.said(node, rows);
    if (node.rest && node.opened === null) said.push(el("p", { class: "quiet" }, bound(node)));
    const buttons = actions.map(([text, does]) => button(text, does));
    card.replaceChildren(
      el("p", { class: "card-title" }, ...(node.rest || node.step ? [this.title(node)] : titled(node))),
      ...(buttons.length ? [el("p", { class: "actions" }, ...buttons)] : []), ...said);
  }

  said(node, rows) {
    const about = [
      ...node.about.probabilities.map(([name, share]) => [this.named(name), percent(share)]),
      ...node.about.columns.map(([name, value, now]) => [short(name, 24), since(short(value, 60), now)]),
    ];
    const steps = node.walk.map((id) => short(id, 18)).join(" → ");
    return [
      el("p", {}, ...this.verdict(node)),
      el("dl", {}, ...columnsOf([...rows, ...about])),
      ...(node.walk.length > 1 ? [el("p", { class: "quiet" }, `walk: ${steps}`)] : []),
    ];
  }
}

// What to say of a node that no edge leads to, whose picture is one disc.
function alone(view) {
  const reached = view.levels.filter((level) => level.hop !== 0 && level.nodes);
  if (reached.some((level) => typeof level.hop === "number")) return "";
  const others = [...reached.map((level) => hopName(level.hop)), ...Object.keys(view.parts.beside)];
  const from = ["its own columns", ...others].join(" and ");
  return `No edge leads to this node, so its subtree is the node alone: what is predicted comes from ${from}.`;
}

function hopRows(view) {
  const heads = view.levels[0].heads.map((_, i) => i);
  const { bias, beside } = view.parts;
  const most = largest([...view.levels.map((level) => total(level.heads)), ...Object.values(beside), bias]);
  const line = (name, whole, cells, kind) =>
    row(kind, name, signed(whole), kind === "total" ? "" : bar(whole, most), ...cells);
  const sums = heads.map((head) => total(view.levels.map((level) => level.heads[head])));
  return [
    head([""], ["all"], [""], ...heads.map((head) => [`head ${head + 1}`])),
    ...view.levels.map((level) =>
      line(hopName(level.hop), total(level.heads), level.heads.map(signed), level.rest ? false : "quiet")),
    ...Object.entries(beside).map(([name, value]) => line(name, value, heads.map(() => ""), false)),
    line("bias", bias, heads.map(() => ""), false),
    line(view.rather ? "sum" : "logit", view.parts.logit, sums.map(signed), "total"),
  ];
}

// names: [text, columns that it spans]; an empty one heads nothing.
function head(...names) {
  return el("tr", {}, ...names.map(([name, span = false]) =>
    (name ? el("th", { scope: "col", colspan: span }, name) : el("td"))));
}

// What is taken apart: a logit, or by how much one is above another.
const taken = ({ class: name, rather }) => (rather ? `the logit of ${name} less that of ${rather}` : `the logit of ${name}`);

function sumOf(view, classes) {
  const { parts } = view;
  const told = total(parts.sources.map((source) => source.contribution)) + parts.others_contribution
    + parts.beyond + parts.other_heads + total(Object.values(parts.beside)) + parts.bias;
  const logit = (name) => view.logits[classes.places.get(name)];
  const own = logit(view.class) - (view.rather ? logit(view.rather) : 0);
  const whose = Object.keys(parts.beside).length ? "prediction's" : "model's own";
  if (view.changed) return `The rows add up to ${told.toFixed(5)}: after the changes, as all that is shown.`;
  return `The rows add up to ${told.toFixed(5)}; the ${whose} ${view.rather ? "difference" : "logit"} is ${own.toFixed(5)}.`;
}

function columnsOf(rows) {
  return rows.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]);
}

const wrong = (node) => node.label !== null && node.label !== node.predicted;

export const othersOf = (rest) => `${count(rest.nodes, "other node")} of ${hopName(rest.hop)}`;

export const more = (rest) => `draw up to ${rest.opened.toLocaleString("en")} of this level`;

const bound = (rest) => `no more of ${hopName(rest.hop)} are drawn, since a ring of them could not be read; here they are summed up`;

const added = (part) => `attention ${percent(part.attention)}, adds ${signed(part.contribution)}`;

