// The start: the map, what it is filtered by, and lists of nodes to begin with.

import { formatStart, parse, parseStart } from "./address.js";
import { ask } from "./ask.js";
import { Confusion } from "./confusion.js";
import { byId, count, el, idOf, percent, pictureOf } from "./dom.js";
import { Scatter } from "./map.js";
import { NodeCard } from "./nodecard.js";
import { NO_CLASS } from "./points.js";
import { Selection } from "./selection.js";

const LISTS = [
  ["mistakes", "Most confident mistakes", "Wrong, the most probable first."],
  ["uncertain", "Least certain", "The least probable prediction first."],
  ["confident", "Most confident", "The most probable prediction first."],
];
const WHOLE = "All of these nodes"; // where they fit into one list
const SPLITS = {
  test: "test", val: "validation", train: "training", unlabelled: "unlabelled", other: "in no part", all: "all",
};
const WAIT = 1000; // milliseconds between questions how far t-SNE is

// Where a link stands in the lists of nodes; null of anything else.
function placeOf(element) {
  const link = element?.closest("[data-list] a"), list = link?.closest("[data-list]");
  return list ? { list: list.dataset.list, place: [...list.querySelectorAll("a")].indexOf(link) } : null;
}

function focusAt(found) {
  if (found) document.querySelectorAll(`[data-list="${found.list}"] a`)[found.place]?.focus();
}

export class Start {
  // `panels` show nodes and classes, `link(node)` leads to a node, `open(id)` goes there; `complain`
  // is told what goes wrong.
  constructor({ graph, classes, points, panels, link, open, complain }) {
    Object.assign(this, { graph, classes, points, panels, link, open, complain });
    this.ready = []; // maps that can be shown
    this.left = null; // the link that one went away by
    this.confusion = new Confusion(graph, panels, (cell) => this.change(cell));
    this.card = new NodeCard(byId("map-card"), panels, link);
    this.selection = new Selection({
      graph, points, panels, complain, item: (node) => this.item(node), clear: () => this.change({ lasso: null }),
    });
    this.setUp();
  }

  // ------------------------------------------------------------------------------- the address

  get options() {
    const given = parseStart(location.hash, this.graph), [first] = this.graph.splits;
    const split = given.split ?? (first.name === "test" ? "test" : "all");
    const by = given.by ?? (this.ready.includes("tsne") ? "tsne" : "pca");
    return { ...given, split, by, colour: given.colour ?? "predicted" };
  }

  change(options) {
    const given = { ...parseStart(location.hash, this.graph), ...options };
    history.replaceState(history.state, "", formatStart(given));
    this.refresh();
  }

  async refresh() {
    try {
      const show = await this.page();
      if (parse(location.hash).id === null) show();
    } catch (problem) {
      this.complain(problem);
    }
  }

  // ------------------------------------------------------------------------------------ showing

  async page() {
    const mine = (this.asked = {}), options = this.options;
    const chosen = [["split", options.split], ...options.true.map((name) => ["true", name]),
      ...options.predicted.map((name) => ["predicted", name])];
    if (options.mistakes) chosen.push(["mistakes", "only"]);
    const [table, ...lists] = await Promise.all([
      ask("confusion", { split: options.split }),
      ...LISTS.map(([what]) => ask("list", [["what", what], ...chosen])),
    ]);
    return () => {
      if (mine !== this.asked) return; // something else was asked meanwhile
      const came = byId("start").hidden, held = placeOf(document.activeElement);
      document.title = `${this.graph.title} · sta explore`;
      byId("start-title").textContent = this.graph.title;
      byId("facts").replaceChildren(...this.facts(options));
      for (const link of document.querySelectorAll("a.to-start")) link.href = location.hash || "#/";
      this.showControls(options);
      this.confusion.show(table, options);
      byId("lists").replaceChildren(...this.lists(lists, chosen.length > 1));
      byId("view").hidden = true;
      byId("start").hidden = false;
      this.showMap(options).catch(this.complain);
      focusAt(came ? this.left : held); // who comes back, or reads a list, goes on where they were
    };
  }

  facts({ split }) {
    const { known, right } = this.graph.splits.find(({ name }) => name === split);
    const whose = split === "all" ? "known label" : `${SPLITS[split]} node`;
    const { nodes, edges, classes } = this.graph;
    const sizes = [count(nodes, "node"), count(edges, "directed edge"), `${classes.length} classes`].join(" · ");
    const score = known ? [el("strong", {}, percent(right / known)), ` of ${count(known, whose)} predicted right`] : [];
    return [...score, el("span", { class: "quiet" }, known ? ` · ${sizes}` : sizes)];
  }

  showControls(options) {
    const { elements } = byId("choose");
    elements.split.value = options.split;
    elements.colour.value = options.colour;
    elements.mistakes.checked = options.mistakes === "only";
    byId("clear").hidden = !(options.mistakes || options.lasso || options.true.length || options.predicted.length);
    byId("map-way").elements.by.value = options.by;
  }

  // Of nodes that are filtered, and fit into one list, there is one: the others would say the same.
  lists([mistakes, uncertain, confident], filtered) {
    const ids = new Set(uncertain.map(({ id }) => id));
    const [what, , hint] = LISTS[2];
    if (filtered && ids.size === confident.length && confident.every(({ id }) => ids.has(id))) {
      return [this.list(what, WHOLE, hint, confident)];
    }
    return [mistakes, uncertain, confident].map((nodes, i) => this.list(...LISTS[i], nodes));
  }

  list(what, title, hint, nodes) {
    const body = nodes.length ? el("ol", {}, ...nodes.map((node) => this.item(node))) : el("p", { class: "quiet" }, "None.");
    return el("section", { "data-list": what }, el("h2", {}, title), el("p", { class: "quiet" }, hint), body);
  }

  item(node) {
    const wrong = node.label !== null && node.label !== node.predicted;
    return el("li", {},
      el("span", {}, node.picture ? el("img", { src: pictureOf(node), alt: "", loading: "lazy" }) : null, this.link(node), ...idOf(node)),
      el("span", { class: "quiet" }, percent(node.probability)),
      el("span", { class: "pair" }, this.panels.named(node.predicted),
        wrong ? el("span", { class: "wrong" }, "is ", this.panels.named(node.label)) : null,
        this.options.split === "all" && node.split ? el("span", { class: "quiet" }, SPLITS[node.split]) : null));
  }

  // ------------------------------------------------------------------------------------- the map

  async showMap(options) {
    await this.points.load();
    this.legend(options);
    if (!(await this.begun())) return;
    if (options.at && !this.looked) this.scatter.look(options.at, false);
    this.looked = true;
    const places = await this.places(options.by), { colour, lasso } = options;
    if (!places || this.options.by !== options.by) return;
    const classes = (name) => (options[name].length ? new Set(options[name].map((cls) => this.classes.places.get(cls))) : null);
    const chosen = this.points.sort({ ...options, true: classes("true"), predicted: classes("predicted"), places });
    const other = colour === "true" ? "predicted" : "true";
    this.scatter.show(places, chosen, { fill: this.points[colour], ring: this.points[other] }, lasso);
    byId("thinned").hidden = this.scatter.every === 1;
    byId("thinned").textContent = `There is no GPU, so one of ${this.scatter.every} nodes is drawn; lists and counts are of all.`;
    await this.selection.show(lasso && chosen, formatStart({ ...options, at: null }));
  }

  // Whether there is a map: the first who asks begins it.
  begun() {
    this.beginning ??= (async () => {
      const parts = { frame: byId("map-frame"), canvas: byId("map"), line: byId("lasso-line").firstElementChild };
      this.scatter = new Scatter({ ...parts, names: byId("map-names"), classes: this.graph.classes }, {
        hover: (node, x, y) => this.card.show(node, x, y),
        choose: (node, x, y, touched) => (touched ? this.card.show(node, x, y, true) : this.choose(node)),
        lasso: (polygon) => this.change({ lasso: polygon, by: this.options.by }),
        move: (view) => this.moved(view),
      });
      const there = await this.scatter.start();
      byId("map-figure").hidden = !there;
      byId("no-map").hidden = there;
      if (there) this.follow();
      return there;
    })();
    return this.beginning;
  }

  async places(by) {
    if (by === "tsne" && !this.ready.includes("tsne")) return this.points.placed("pca");
    return this.points.placed(by);
  }

  // How far t-SNE is, until it is there: then the map glides to it.
  async follow() {
    const { tsne, progress, landmarks, nodes, why } = await this.points.status();
    const of = landmarks < nodes ? `${count(landmarks, "node")}, the others beside them` : "all nodes";
    const done = tsne === "ready", input = byId("map-way").elements.by[1];
    input.disabled = !done;
    const far = progress ? `, ${percent(progress)}` : "";
    byId("map-progress").textContent = { ready: landmarks < nodes ? `t-SNE of ${of}` : "", failed: why }[tsne]
      ?? `t-SNE of ${of} is on its way${far}`;
    if (tsne === "made") setTimeout(() => this.follow().catch(this.complain), WAIT);
    if (!done) return;
    await this.points.placed("tsne");
    this.ready.push("tsne");
    this.refresh();
  }

  async choose(node) {
    if (node === null) return;
    const [{ id }] = await ask("map/nodes", { numbers: node });
    this.open(id);
  }

  moved(view) {
    this.card.show(null);
    clearTimeout(this.moving);
    this.moving = setTimeout(() => {
      if (byId("start").hidden) return;
      const at = Math.abs(view.x) + Math.abs(view.y) + Math.abs(view.zoom) < 1e-3 ? null : view;
      const given = { ...parseStart(location.hash, this.graph), at };
      history.replaceState(history.state, "", formatStart(given));
    }, 300);
  }

  // ---------------------------------------------------------------------------------- the legend

  // Classes with how many nodes of the split they have; one that is pressed is a filter.
  legend(options) {
    const of = this.points[options.colour], counts = new Map();
    const chosen = this.points.sort({ split: options.split });
    for (const part of [chosen.right, chosen.wrong]) for (const node of part) counts.set(of[node], (counts.get(of[node]) ?? 0) + 1);
    byId("legend-title").textContent = options.colour === "true" ? "True classes" : "Predicted classes";
    this.marks ??= this.graph.classes.map((name) => {
      const mark = el("button", { type: "button" }, this.panels.named(name), el("span", { class: "quiet" }));
      mark.addEventListener("click", () => this.toggle(name));
      return mark;
    });
    this.marks.forEach((mark, cls) => {
      mark.lastChild.textContent = (counts.get(cls) ?? 0).toLocaleString("en");
      mark.setAttribute("aria-pressed", String(options[options.colour].includes(this.graph.classes[cls])));
    });
    const others = [el("li", { class: "quiet" }, el("span", { class: "mark ringed" }),
      `ring: a mistake, in the colour of its ${options.colour === "true" ? "predicted" : "true"} class`)];
    if (counts.get(NO_CLASS)) others.push(el("li", { class: "quiet" }, `class not known: ${counts.get(NO_CLASS).toLocaleString("en")}`));
    const items = this.items ??= this.marks.map((mark) => el("li", {}, mark));
    const list = byId("map-legend");
    list.classList.toggle("long", this.graph.classes.some((name) => name.length > 12));
    if (!list.children.length) list.append(...items);
    while (list.children.length > items.length) list.lastChild.remove();
    list.append(...others);
  }

  toggle(name) {
    const { colour, [colour]: now } = this.options;
    this.change({ [colour]: now.includes(name) ? now.filter((other) => other !== name) : [...now, name] });
  }

  // ------------------------------------------------------------------------------------- set up

  setUp() {
    const radio = ({ name, nodes }) => el("label", { title: count(nodes, "node") },
      el("input", { type: "radio", name: "split", value: name }), el("span", {}, SPLITS[name]));
    byId("splits").append(...this.graph.splits.map(radio));
    const form = byId("choose"), way = byId("map-way");
    form.addEventListener("input", ({ target }) => this.change({
      [target.name]: target.type === "checkbox" && !target.checked ? null : target.value }));
    way.addEventListener("input", ({ target }) => this.change({ by: target.value, lasso: null }));
    for (const each of [form, way]) each.addEventListener("submit", (event) => event.preventDefault());
    byId("clear").addEventListener("click", () => {
      this.change({ true: [], predicted: [], mistakes: null, lasso: null });
      byId("map").focus({ preventScroll: true });
    });
    byId("map-closer").addEventListener("click", () => this.scatter.zoom(0.5));
    byId("map-farther").addEventListener("click", () => this.scatter.zoom(-0.5));
    byId("map-fit").addEventListener("click", () => this.scatter.fit());
    const lasso = byId("map-lasso");
    lasso.addEventListener("click", () => this.scatter.lassoMode(!this.scatter.lassoing));
    new MutationObserver(() => lasso.setAttribute("aria-pressed", String(byId("map-frame").classList.contains("lassoing"))))
      .observe(byId("map-frame"), { attributeFilter: ["class"] });
    byId("start").addEventListener("click", ({ target }) => {
      this.left = placeOf(target) ?? this.left;
    }, true);
  }
}
