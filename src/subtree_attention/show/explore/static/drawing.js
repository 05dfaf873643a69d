// The subtree as a picture, and how pointer and keys move in it.

import cytoscape from "./vendor/cytoscape.esm.min.mjs";
import { colour } from "./colours.js";
import { hopName, short } from "./dom.js";
import { place } from "./layout.js";

const SMALLEST = 9, LARGEST = 46, NAMED = 8;
const CARD = 270; // room for the card, where the picture is wider than high

export class Drawing {
  // on.point(node or null) is called with what is pointed at, on.choose(node) with a new root.
  constructor(container, on) {
    Object.assign(this, { on, container });
    this.cy = cytoscape({
      container,
      userZoomingEnabled: false, // the wheel scrolls the page; there are buttons
      boxSelectionEnabled: false,
      autoungrabify: true,
      minZoom: 0.2,
      maxZoom: 4,
    });
    this.cy.on("mouseover", "node.seen", (event) => this.point(event.target));
    this.cy.on("mouseout", "node.seen", () => this.point(null));
    this.cy.on("tap", "node.seen", (event) => on.choose(event.target.data("told")));
    container.addEventListener("keydown", (event) => this.key(event));
    container.addEventListener("focus", () => this.point(this.current ?? this.at(0)));
    container.addEventListener("blur", () => this.point(null));
    new ResizeObserver(() => this.fit()).observe(container);
  }

  show(view, options, classes) {
    const sizes = sizesOf(view.nodes, options.by);
    const { spots, rings } = place(view.nodes.map((node, i) => ({ ...node, size: sizes[i] })));
    const largest = [...sizes.keys()].sort((a, b) => sizes[b] - sizes[a]).slice(0, NAMED);
    const elements = [...rings].map(([hop, radius]) => ring(hop, radius));
    view.nodes.forEach((told, i) => {
      const named = told.hop === 0 || largest.includes(i);
      elements.push(mark(told, i, sizes[i], spots[i], named, options, classes));
      if (told.parent !== null) elements.push(line(told, i, view.nodes[told.parent]));
    });
    this.current = null;
    this.cy.elements().remove();
    this.cy.style(styles(1));
    this.cy.add(elements);
    this.fit();
    if (document.activeElement === this.container) this.point(this.at(0));
  }

  at(place) {
    return this.cy.getElementById(`node-${place}`);
  }

  fit() {
    this.cy.resize();
    this.cy.fit(undefined, 14);
    this.cy.style(styles(Math.min(Math.max(0.7, 1 / this.cy.zoom()), 1.7)));
    const aside = (this.cy.width() - this.cy.height()) / 2;
    if (aside > CARD / 8) this.cy.panBy({ x: Math.min(aside, CARD / 2), y: 0 });
  }

  zoom(by) {
    const middle = { x: this.cy.width() / 2, y: this.cy.height() / 2 };
    this.cy.zoom({ level: this.cy.zoom() * by, renderedPosition: middle });
  }

  point(node) {
    this.cy.elements(".pointed, .same, .way").removeClass("pointed same way");
    if (!node || node.empty()) return this.on.point(null);
    const told = node.data("told");
    this.current = node;
    this.cy.nodes(".seen").filter((other) => other.data("told").id === told.id).addClass("same");
    node.removeClass("same").addClass("pointed");
    for (let step = node; step.nonempty(); ) {
      const edge = step.outgoers("edge");
      edge.addClass("way");
      step = edge.targets();
    }
    return this.on.point(told);
  }

  key(event) {
    const from = this.current ?? this.at(0);
    const act = {
      "ArrowRight": () => this.point(this.along(from, 1)),
      "ArrowLeft": () => this.point(this.along(from, -1)),
      "ArrowUp": () => this.point(this.across(from, -1)),
      "ArrowDown": () => this.point(this.across(from, 1)),
      "Home": () => this.point(this.at(0)),
      "Enter": () => this.on.choose(from.data("told")),
      "+": () => this.zoom(1.25),
      "-": () => this.zoom(0.8),
      "0": () => this.fit(),
    }[event.key];
    if (!act) return;
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
    const hops = [...new Set(this.cy.nodes(".seen").map((other) => other.data("told").hop))];
    const hop = hops[hops.indexOf(node.data("told").hop) + step];
    if (hop === undefined) return node;
    const { x, y } = node.position();
    const far = (other) => Math.hypot(other.position("x") - x, other.position("y") - y);
    return this.level(hop).reduce((best, other) => (far(other) < far(best) ? other : best));
  }
}

// Areas go by what is shown. All the attention of hop 0 is the root's own, so others set the scale.
function sizesOf(nodes, by) {
  const values = nodes.map((node) => Math.abs(node[by]));
  const most = Math.max(...values.filter((_, i) => by === "contribution" || nodes[i].hop !== 0), 1e-12);
  return values.map((value) => SMALLEST + (LARGEST - SMALLEST) * Math.sqrt(Math.min(value / most, 1)));
}

function ring(hop, radius) {
  const data = { id: `ring-${hop}`, size: 2 * radius, name: typeof hop === "string" ? hop : hopName(hop) };
  return { group: "nodes", data, position: { x: 0, y: 0 }, classes: "ring" };
}

function mark(told, i, size, spot, named, options, classes) {
  const data = { id: `node-${i}`, told, size, angle: spot.angle, ...outward(told, spot) };
  data.name = named ? short(told.id, 14) : "";
  data.truth = classes.look(told.label ?? told.predicted).colour;
  if (options.by === "contribution") {
    const adds = told.contribution >= 0;
    Object.assign(data, { fill: colour(adds ? "plus" : "minus"), shape: adds ? "ellipse" : "diamond", ring: 0 });
  } else {
    const { colour: fill, shape } = classes.look(told.predicted);
    Object.assign(data, { fill, shape, ring: told.label === null ? 0 : 2.5 });
  }
  return { group: "nodes", data, position: { x: spot.x, y: spot.y }, classes: told.hop === 0 ? "seen root" : "seen" };
}

// A name stands on the far side of the root, so that names do not meet in the middle.
function outward(told, { angle }) {
  const across = told.hop === 0 ? 0 : Math.sin(angle);
  const side = across > 0.4 ? "right" : across < -0.4 ? "left" : "center";
  const high = side === "center" ? (told.hop !== 0 && Math.cos(angle) > 0 ? "top" : "bottom") : "center";
  const away = { right: 5, left: -5, center: 0 }[side];
  return { side, high, awayX: away, awayY: { top: -4, bottom: 5, center: 0 }[high] };
}

function line(told, i, parent) {
  const data = { id: `edge-${i}`, source: `node-${i}`, target: `node-${told.parent}` };
  return { group: "edges", data, classes: told.hop - parent.hop === 1 ? "" : "passing" };
}

// Texts are larger than the picture by a factor, so that they are read at every size of it.
function styles(larger) {
  const ink = colour("ink"), paper = colour("paper");
  return [
    { selector: "node", style: {
      "width": "data(size)", "height": "data(size)", "border-width": 1, "overlay-opacity": 0,
      "label": "data(name)", "font-family": "system-ui, sans-serif" } },
    { selector: "node.seen", style: {
      "shape": "data(shape)", "background-color": "data(fill)", "border-color": paper,
      "outline-width": "data(ring)", "outline-offset": 1, "outline-color": "data(truth)",
      "font-size": 11 * larger, "color": ink, "text-halign": "data(side)", "text-valign": "data(high)",
      "text-margin-x": "data(awayX)", "text-margin-y": "data(awayY)", "text-outline-color": paper,
      "text-outline-width": 2, "min-zoomed-font-size": 6, "z-index": 2 } },
    { selector: "node.root", style: { "font-weight": "bold", "font-size": 13 * larger } },
    { selector: "node.ring", style: {
      "shape": "ellipse", "background-opacity": 0, "border-color": colour("line"), "z-index": 0,
      "font-size": 10 * larger, "color": colour("quiet"), "text-valign": "top", "text-margin-y": 5,
      "text-background-color": paper, "text-background-opacity": 1, "text-background-padding": 2,
      "events": "no" } },
    { selector: "edge", style: {
      "width": 1, "line-color": colour("edge"), "curve-style": "straight", "events": "no",
      "z-index": 1 } },
    { selector: "edge.passing", style: { "line-style": "dashed" } },
    { selector: "edge.way", style: { "width": 2.5, "line-color": ink, "z-index": 3 } },
    { selector: "node.same", style: { "border-width": 3, "border-color": ink } },
    { selector: "node.pointed", style: {
      "border-width": 4, "border-color": ink, "z-index": 5,
      "underlay-color": colour("focus"), "underlay-opacity": 0.35, "underlay-padding": 8,
      "underlay-shape": "ellipse" } },
  ];
}
