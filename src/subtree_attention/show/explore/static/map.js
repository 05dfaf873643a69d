// The map: all nodes as points, drawn by deck.gl, with names over them.

import { colour, COLOURS } from "./colours.js";
import { Names } from "./mapnames.js";
import { Nearest, NO_CLASS } from "./points.js";
import { byShape, shapedLayers, sizeOf } from "./shapes.js";

const GLIDE = 900; // milliseconds from one map to the other
const GLIDING = 100_000; // points that are still moved smoothly
const REACH = 12; // pixels around the pointer in which a node is found
const STEP = 80; // pixels that an arrow key moves the map by
const MOST_ZOOM = 12; // doublings
const CORNERS = 60; // of a lasso, as its address holds it
const DRAWN = 50_000; // points that are drawn where there is no GPU
const still = matchMedia("(prefers-reduced-motion: reduce)");

const rgb = (name) => colour(name).match(/[\d.]+/g).slice(0, 3).map(Number);

// [class] -> its colour: of a class that is not known, that of quiet text.
export function palette() {
  const classes = Array.from({ length: COLOURS }, (_, i) => rgb(`class-${i}`)), unknown = rgb("quiet");
  return (cls) => (cls === NO_CLASS ? unknown : classes[cls % COLOURS]);
}

function drawsBySoftware(context) {
  const about = context.getExtension("WEBGL_debug_renderer_info");
  const name = context.getParameter(about ? about.UNMASKED_RENDERER_WEBGL : context.RENDERER);
  return /swiftshader|llvmpipe|software|basic render/i.test(name);
}

export class Scatter {
  // `frame` holds `canvas`, which the points are drawn into, `line`, a polygon of SVG, and `names`,
  // a list. `on` has hover(node, x, y), choose(node, x, y, touched), lasso(polygon) and move(view) to
  // be called.
  constructor({ frame, canvas, line, names, classes }, on) {
    Object.assign(this, { frame, canvas, line, on });
    this.names = new Names(names, classes);
    this.view = { x: 0, y: 0, zoom: 0 }; // zoom: doublings from where all of it is seen
    this.lassoing = false;
  }

  // Whether the browser can draw it.
  async start() {
    const context = document.createElement("canvas").getContext("webgl2");
    if (!context) return false;
    this.slow = drawsBySoftware(context);
    const deck = await import("./vendor/deck.gl.min.mjs"), { Deck, OrthographicView } = deck;
    this.shapes = shapedLayers(deck);
    this.map = new Deck({
      parent: this.canvas,
      views: new OrthographicView({ flipY: false }),
      viewState: this.state(),
      controller: { keyboard: false, scrollZoom: { speed: 0.01, smooth: false } },
      useDevicePixels: Math.min(2, devicePixelRatio),
      onViewStateChange: ({ viewState }) => this.look({
        x: viewState.target[0], y: viewState.target[1], zoom: viewState.zoom - this.fitting(),
      }),
      getCursor: () => "inherit",
    });
    this.listen();
    return true;
  }

  // ---------------------------------------------------------------------------- where one looks

  get size() {
    return [this.canvas.clientWidth || 1, this.canvas.clientHeight || 1];
  }

  fitting() {
    return Math.log2((0.94 * Math.min(...this.size)) / 2);
  }

  get scale() {
    return 2 ** (this.view.zoom + this.fitting());
  }

  state() {
    const least = this.fitting() - 1;
    return {
      target: [this.view.x, this.view.y, 0], zoom: this.view.zoom + this.fitting(),
      minZoom: least, maxZoom: least + MOST_ZOOM,
    };
  }

  look(view, told = true) {
    const held = (value) => Math.max(-1.2, Math.min(1.2, value));
    this.view = { x: held(view.x), y: held(view.y), zoom: Math.max(-1, Math.min(MOST_ZOOM - 1, view.zoom)) };
    this.map?.setProps({ viewState: this.state(), ...(this.shown && { layers: this.layers() }) });
    this.over();
    if (told) this.on.move(this.view);
  }

  zoom(doublings) {
    this.look({ ...this.view, zoom: this.view.zoom + doublings });
  }

  fit() {
    this.look({ x: 0, y: 0, zoom: 0 });
  }

  pan(right, up) {
    this.look({ ...this.view, x: this.view.x + (STEP * right) / this.scale, y: this.view.y + (STEP * up) / this.scale });
  }

  place(event) {
    const box = this.canvas.getBoundingClientRect(), [width, height] = this.size;
    const x = event.clientX - box.left, y = event.clientY - box.top;
    return { x, y, at: [this.view.x + (x - width / 2) / this.scale, this.view.y - (y - height / 2) / this.scale] };
  }

  project([x, y]) {
    const [width, height] = this.size;
    return [width / 2 + (x - this.view.x) * this.scale, height / 2 - (y - this.view.y) * this.scale];
  }

  // ------------------------------------------------------------------------------------ drawing

  // chosen: lists of nodes, see Points.sort; colours: the class that each node is filled by, and
  // that of the ring of a mistake.
  show(places, chosen, colours, polygon) {
    const from = this.places;
    Object.assign(this, { chosen, colours, polygon, nearest: null });
    const glides = from && from !== places && !still.matches && places.length <= 2 * GLIDING;
    cancelAnimationFrame(this.frameAsked);
    this.places = places;
    this.names.of(chosen, places, colours.fill);
    if (glides) this.glide(from, places, performance.now());
    else this.draw(places);
  }

  glide(from, to, begun) {
    const between = new Float32Array(to.length);
    const step = (now) => {
      const gone = Math.max(0, Math.min(1, (now - begun) / GLIDE)), eased = gone * gone * (3 - 2 * gone);
      for (let i = 0; i < to.length; i += 1) between[i] = from[i] + (to[i] - from[i]) * eased;
      this.draw(gone < 1 ? between : to);
      if (gone < 1) this.frameAsked = requestAnimationFrame(step);
    };
    step(begun);
  }

  draw(places) {
    const [right, wrong, rest] = this.thinned(), of = palette(), grey = rgb("quiet");
    const shine = this.places.length > 100_000 ? 170 : 215;
    const position = (nodes) => {
      const value = new Float32Array(2 * nodes.length);
      for (let i = 0; i < nodes.length; i += 1) {
        value[2 * i] = places[2 * nodes[i]];
        value[2 * i + 1] = places[2 * nodes[i] + 1];
      }
      return { value, size: 2 };
    };
    const paint = (nodes, look, alpha) => {
      const value = new Uint8Array(4 * nodes.length);
      for (let i = 0; i < nodes.length; i += 1) {
        const [red, green, blue] = look(nodes[i]), at = 4 * i;
        value[at] = red;
        value[at + 1] = green;
        value[at + 2] = blue;
        value[at + 3] = alpha;
      }
      return { value, size: 4, normalized: true };
    };
    const { fill, ring } = this.colours, filled = (node) => of(fill[node]);
    const data = (nodes, look, alpha, more) => ({
      length: nodes.length,
      attributes: { getPosition: position(nodes), getFillColor: paint(nodes, look, alpha), ...more },
    });
    this.shown = [
      { kind: "rest", shape: 0, data: data(rest, () => grey, 40) },
      ...byShape(right, fill).map(([shape, nodes]) => ({ kind: "right", shape, data: data(nodes, filled, shine) })),
      ...byShape(wrong, fill).map(([shape, nodes]) => ({
        kind: "wrong", shape,
        data: data(nodes, filled, 255, { getLineColor: paint(nodes, (node) => of(ring[node]), 255) }),
      })),
    ];
    this.map.setProps({ layers: this.layers() });
    this.over();
  }

  // Of the nodes that are chosen and of the rest, as many as can be drawn in time: every so many-th.
  thinned() {
    const { right, wrong, rest } = this.chosen, most = this.slow ? DRAWN : Infinity;
    this.every = Math.max(1, Math.ceil((right.length + wrong.length) / most));
    const others = Math.ceil(rest.length / most);
    const some = (nodes, every) => (every > 1 ? nodes.filter((_, i) => i % every === 0) : nodes);
    return [some(right, this.every), some(wrong, this.every), some(rest, others)];
  }

  // What lies over the points moves with them.
  over() {
    this.drawLasso(this.polygon);
    this.names.put((place) => this.project(place), this.size);
  }

  layers() {
    const [width, height] = this.size, all = this.places.length / 2;
    const room = Math.max(0.9, Math.min(5, 0.28 * Math.sqrt((width * height) / all)));
    const radius = Math.min(12, room * 2 ** (0.45 * this.view.zoom));
    return this.shown.map(({ kind, shape, data }) => new this.shapes[shape]({
      id: kind + shape, data, positionFormat: "XY", radiusUnits: "pixels", getRadius: 1,
      radiusScale: { rest: 0.8, right: 1, wrong: 1.3 }[kind] * sizeOf(shape) * radius,
      stroked: kind === "wrong", lineWidthUnits: "pixels", getLineWidth: Math.max(1.2, Math.min(3, 0.6 * radius)),
    }));
  }

  // ----------------------------------------------------------------------- pointers and keys

  listen() {
    let down = null;
    const frame = this.frame, inMap = (event) => this.canvas.contains(event.target);
    frame.addEventListener("pointerdown", (event) => {
      down = inMap(event) && event.isPrimary ? { x: event.clientX, y: event.clientY } : null;
      if (down && (this.lassoing || event.shiftKey)) this.draws(event);
    }, true); // before the library has it
    frame.addEventListener("pointermove", (event) => {
      if (event.buttons || event.pointerType === "touch") return;
      this.point(inMap(event) ? event : null);
    });
    frame.addEventListener("pointerleave", (event) => event.pointerType !== "touch" && this.point(null));
    frame.addEventListener("pointerup", (event) => {
      const still = down && Math.hypot(event.clientX - down.x, event.clientY - down.y) < 5;
      down = null;
      if (!still || !inMap(event) || this.loop) return;
      const touched = event.pointerType === "touch", { x, y } = this.place(event);
      this.on.choose(this.under(event, touched ? 2 * REACH : REACH), x, y, touched);
    });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.look(this.view, false)).observe(this.canvas);
  }

  under(event, reach = REACH) {
    if (!this.chosen) return null;
    this.nearest ??= new Nearest([this.chosen.right, this.chosen.wrong], this.places);
    return this.nearest.at(...this.place(event).at, reach / this.scale);
  }

  point(event) {
    const node = event && !this.lassoing ? this.under(event) : null;
    this.frame.classList.toggle("on-node", node !== null);
    const { x, y } = event ? this.place(event) : { x: 0, y: 0 };
    this.on.hover(node, x, y);
  }

  key(event) {
    const does = {
      ArrowLeft: () => this.pan(-1, 0), ArrowRight: () => this.pan(1, 0),
      ArrowUp: () => this.pan(0, 1), ArrowDown: () => this.pan(0, -1),
      "+": () => this.zoom(0.5), "=": () => this.zoom(0.5), "-": () => this.zoom(-0.5), 0: () => this.fit(),
    }[event.key];
    if (!does || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    does();
  }

  // ----------------------------------------------------------------------------------- the lasso

  lassoMode(is) {
    this.lassoing = is;
    this.frame.classList.toggle("lassoing", is);
  }

  draws(event) {
    event.stopPropagation();
    event.preventDefault();
    const frame = this.frame, loop = (this.loop = [this.place(event).at]);
    const move = (next) => {
      loop.push(this.place(next).at);
      this.drawLasso(loop);
    };
    const end = (last) => {
      frame.removeEventListener("pointermove", move, true);
      this.loop = null;
      this.lassoMode(false);
      this.drawLasso(this.polygon);
      const every = Math.ceil(loop.length / CORNERS);
      if (last.type === "pointerup" && loop.length > 2) this.on.lasso(loop.filter((_, i) => i % every === 0));
    };
    frame.setPointerCapture(event.pointerId);
    frame.addEventListener("pointermove", move, true);
    for (const name of ["pointerup", "pointercancel"]) frame.addEventListener(name, end, { once: true });
  }

  drawLasso(polygon) {
    const corners = (this.loop ?? polygon ?? []).map((corner) => this.project(corner).map(Math.round).join());
    this.line.setAttribute("points", corners.join(" "));
  }
}
