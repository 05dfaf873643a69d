// The subtree as a picture, and how pointer and keys move in it.

import cytoscape from "./vendor/cytoscape.esm.min.mjs";
import { colour } from "./colours.js";
import { short } from "./dom.js";
import { gestures } from "./gestures.js";
import { written } from "./labels.js";
import { place } from "./layout.js";
import { styles, TEXT } from "./look.js";
import { asked, line, mark, mostOf, ring, sizeOf, topOf, widthOf } from "./marks.js";

const MARGIN = 14, CLOSEST = 8; // pixels around the picture; how far one can zoom in
const CARD = 270; // room for the card, where the picture is wider than high
const FINGER = 14; // pixels by which a finger may miss a node
const MANY = 120; // nodes
const STAYS = 350, PASSING = 90; // milliseconds: of what was pointed at, and until another is

export class Drawing {
  // on.point(node or null) is called with what is pointed at, on.choose(node) with a new root,
  // on.open(rest) with the rest of a level, and on.leaveOut(node) with a node that is to go.
  constructor(container, on) {
    Object.assign(this, { on, container, wait: 0, whole: 1, outer: [1, 1, 1] });
    this.cy = cytoscape({
      container,
      userZoomingEnabled: false, // gestures.js does
      boxSelectionEnabled: false,
      autoungrabify: true,
    });
    this.cy.on("mouseover", "node.seen", (event) => this.soon(event.target, this.pointed ? PASSING : 0));
    this.cy.on("mouseout", "node.seen", () => this.leave());
    this.cy.on("tap", "node.seen", (event) => this.choose(event.target));
    this.cy.on("tap", "edge", (event) => this.pointStep(event.target));
    this.cy.on("tap", (event) => event.target === this.cy && this.point(null));
    this.cy.on("viewport", () => this.nameSoon());
    gestures(container, {
      zoomBy: (factor, at) => this.zoom(factor, at),
      panBy: (x, y) => this.cy.panBy({ x, y }),
      whole: () => this.cy.zoom() <= this.whole * 1.001,
    }, (at) => this.tapped(at));
    container.addEventListener("keydown", (event) => this.key(event));
    container.addEventListener("focus", () => this.pointed || this.point(this.current ?? this.at(0)));
    new ResizeObserver(() => this.fit()).observe(container);
  }

  show(view, options, classes) {
    const most = mostOf(view.nodes, options.by);
    const nodes = view.nodes.map((node) => ({ ...node, size: sizeOf(node[options.by], most, node.picture) }));
    const levels = view.levels.filter((level) => level.hop !== 0 && level.rest && level.nodes);
    const tops = (larger) => new Map(levels.map((level) => [level.hop, topOf(level, options.by, most, larger, levels.length)]));
    let top, placed; // texts have one size on the screen, so first see how large the picture gets
    for (const larger of [() => 1, () => 1.1 / this.whole]) {
      top = tops(larger());
      placed = place(nodes, top);
      this.measure(nodes, placed.rings, top);
    }
    const elements = levels.flatMap((level) => ring(level, placed.rings.get(level.hop), top.get(level.hop)));
    nodes.forEach((told, i) => {
      elements.push(mark(told, i, placed.spots[i], options, classes));
      if (told.parent !== null) elements.push(line(told, i, view.nodes[told.parent]));
    });
    const before = this.current?.data("told");
    this.cy.elements().remove();
    this.cy.style(styles());
    this.cy.add(elements);
    this.per = 1;
    this.fit();
    this.current = this.pointed = null;
    const again = this.cy.nodes(".seen").filter((node) => same(node.data("told"), before));
    this.point(document.activeElement === this.container ? (again.nonempty() ? again[0] : this.at(0)) : null);
  }

  at(place) {
    return this.cy.getElementById(`node-${place}`);
  }

  // How far the picture reaches: to the sides, up and down; and the zoom at which all is seen.
  measure(nodes, rings, tops) {
    let side = 30, up = 30;
    for (const [hop, radius] of rings) {
      const largest = Math.max(...nodes.filter((node) => node.hop === hop).map((node) => node.size), 0);
      side = Math.max(side, radius + largest / 2);
      up = Math.max(up, side, radius + tops.get(hop).up);
    }
    const root = Math.max(...nodes.filter((node) => node.hop === 0).map((node) => node.size));
    this.outer = [Math.max(side, root / 2), Math.max(up, root / 2), Math.max(side, root / 2 + 18)];
    this.whole = this.zoomForAll();
  }

  zoomForAll() {
    const [side, up, down] = this.outer, { width, height } = this.container.getBoundingClientRect();
    return Math.min(
      Math.max(width - 2 * MARGIN, 40) / (2 * side), Math.max(height - 2 * MARGIN, 40) / (up + down), 2);
  }

  fit() {
    this.cy.resize();
    this.whole = this.zoomForAll();
    const [side, up, down] = this.outer, width = this.cy.width(), height = this.cy.height();
    const aside = width / 2 - side * this.whole - MARGIN;
    const x = width / 2 + Math.max(0, width > height ? Math.min(aside, CARD / 2) : 0);
    this.cy.minZoom(this.whole).maxZoom(this.whole * CLOSEST);
    this.cy.viewport({ zoom: this.whole, pan: { x, y: (height + (up - down) * this.whole) / 2 } });
    this.name();
  }

  zoom(by, at = { x: this.cy.width() / 2, y: this.cy.height() / 2 }) {
    this.cy.zoom({ level: this.cy.zoom() * by, renderedPosition: at });
    if (this.cy.zoom() <= this.whole) this.fit();
  }

  // Where the buttons stand on the picture.
  buttons() {
    const at = this.container.getBoundingClientRect();
    const { left, top, right, bottom } = this.container.parentElement.querySelector(".zoom").getBoundingClientRect();
    return [left - at.left, top - at.top, right - at.left, bottom - at.top];
  }

  // In every picture, or if it has many nodes once it stands still.
  nameSoon() {
    const many = this.cy.nodes().length > MANY;
    if (many) clearTimeout(this.naming);
    if (many || !this.naming) this.naming = setTimeout(() => this.name(), many ? 120 : 16);
  }

  // What is seen, as a PNG; of the whole, without its margins.
  picture() {
    const zoom = this.cy.zoom(), full = zoom <= this.whole * 1.001;
    return this.cy.png({ output: "blob-promise", full, scale: full ? 2 * zoom : 2, bg: colour("paper") });
  }

  // Names have the same size at every zoom, so there is room for more of them the closer one looks.
  name() {
    clearTimeout(this.naming);
    this.naming = 0;
    const zoom = this.cy.zoom(), long = zoom > 2 * this.whole ? 32 : 16;
    const nodes = this.cy.nodes(".named, .rest").toArray().sort((a, b) => b.data("weight") - a.data("weight"));
    const names = nodes.map((node) => (node.hasClass("mark") ? short(node.data("called"), long) : node.data("called") ?? ""));
    const items = nodes.map((node, i) => {
      const { x, y } = node.renderedPosition(), { size, ring, bold, sides } = node.data();
      const lines = names[i].split("\n"), wide = Math.max(...lines.map((line) => widthOf(line, bold)));
      return { x, y, reach: (size / 2 + ring) * zoom, wide, high: lines.length * TEXT.line, sides };
    });
    const where = written(items, [this.cy.width(), this.cy.height()], [this.buttons()]);
    this.cy.batch(() => {
      nodes.forEach((node, i) => {
        if (!names[i] || (!where[i] && !node.data("name"))) return;
        node.data({ name: where[i] ? names[i] : "", ...asked(where[i], zoom, node.data("ring")) });
      });
      if (this.per !== 1 / zoom) this.cy.elements().data("per", (this.per = 1 / zoom));
    });
  }

  // ----------------------------------------------------------------------------------- pointing

  soon(node, wait) {
    clearTimeout(this.wait);
    if (wait) this.wait = setTimeout(() => this.point(node), wait);
    else this.point(node);
  }

  // What is pointed at stays for a moment, so that one can go to its card.
  leave() {
    this.soon(document.activeElement === this.container ? this.current : null, STAYS);
  }

  stay() {
    clearTimeout(this.wait);
  }

  point(node) {
    this.cy.elements(".pointed, .same, .way").removeClass("pointed same way");
    this.pointed = node && !node.empty() && node.inside() ? node : null;
    if (!this.pointed) return this.on.point(null);
    const told = node.data("told");
    this.current = node;
    if (!told.rest) this.cy.nodes(".mark").filter((other) => other.data("told").id === told.id).addClass("same");
    node.removeClass("same").addClass("pointed");
    for (let step = node; step.nonempty(); ) {
      const edge = step.outgoers("edge");
      edge.addClass("way");
      step = edge.targets();
    }
    return this.on.point(told);
  }

  // A line is the first step of the walk of the node where it begins.
  pointStep(edge) {
    this.stay();
    const node = edge.source();
    this.point(node);
    this.cy.elements(".pointed, .same, .way").removeClass("pointed same way");
    edge.addClass("way");
    this.on.point({ ...node.data("told"), step: true });
  }

  choose(node) {
    const told = node.data("told");
    if (told.rest) this.on.open(told);
    else this.on.choose(told);
  }

  // By a finger: the first tap shows what it is, the second makes it the root.
  tapped(at) {
    const zoom = this.cy.zoom();
    const far = (node) => {
      const { x, y } = node.renderedPosition();
      return Math.hypot(x - at.x, y - at.y) - (node.data("size") / 2) * zoom;
    };
    const near = this.cy.nodes(".seen").toArray().sort((a, b) => far(a) - far(b))[0];
    const found = near && far(near) < FINGER ? near : null;
    if (found && this.pointed?.id() === found.id()) this.choose(found);
    else this.point(found);
  }

  key(event) {
    const from = this.current ?? this.at(0);
    const act = {
      "ArrowRight": () => this.point(this.along(from, 1)),
      "ArrowLeft": () => this.point(this.along(from, -1)),
      "ArrowUp": () => this.point(this.across(from, -1)),
      "ArrowDown": () => this.point(this.across(from, 1)),
      "Home": () => this.point(this.at(0)),
      "Enter": () => this.choose(from),
      "Delete": () => this.on.leaveOut(from.data("told")),
      "+": () => this.zoom(1.25),
      "-": () => this.zoom(0.8),
      "0": () => this.fit(),
    }[event.key];
    if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
    act();
    event.preventDefault();
  }

  level(hop) {
    const nodes = this.cy.nodes(".seen").filter((node) => node.data("told").hop === hop);
    return nodes.toArray().sort((a, b) => a.data("angle") - b.data("angle"));
  }

  along(node, step) {
    const level = this.level(node.data("told").hop);
    const place = level.findIndex((other) => other.id() === node.id());
    return level[(place + step + level.length) % level.length];
  }

  across(node, step) {
    const marks = this.cy.nodes(".mark"), hops = [...new Set(marks.map((other) => other.data("told").hop))];
    const hop = hops[hops.indexOf(node.data("told").hop) + step];
    if (hop === undefined) return node;
    const { x, y } = node.position();
    const far = (other) => Math.hypot(other.position("x") - x, other.position("y") - y);
    return this.level(hop).reduce((best, other) => (far(other) < far(best) ? other : best));
  }
}

const same = (one, other) => other && one.hop === other.hop && one.id === other.id && one.rest === other.rest;
