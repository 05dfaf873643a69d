// A chart of lines over epochs: axes, lines, dots, and a cursor that a pointer or the arrow keys move.
import { svg } from "./dom.js";

const EARLY = 0.1; // the first climb is cut off, or it would be all that is seen
const ROOM = { left: 46, right: 14, top: 14, bottom: 34 };

// Three to six round numbers from low to high.
export function ticks(low, high) {
  const rough = (high - low) / 6;
  const unit = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * unit).find((one) => one >= rough * 0.99);
  const found = [];
  for (let n = Math.ceil(low / step - 1e-9); n <= Math.floor(high / step + 1e-9); n += 1) {
    found.push(Number((n * step).toPrecision(10)));
  }
  return found;
}

// What can be seen of a line: the lowest and the highest point of each pixel, and the last one.
function thinned(points, pixels) {
  if (points.length <= 2 * pixels) return points;
  const kept = [];
  const size = points.length / pixels;
  for (let at = 0; at < pixels; at += 1) {
    const part = points.slice(Math.floor(at * size), Math.floor((at + 1) * size));
    const by = (better) => part.reduce((one, other) => (better(other[1], one[1]) ? other : one));
    const ends = [by((a, b) => a < b), by((a, b) => a > b)].sort((a, b) => a[0] - b[0]);
    kept.push(...(ends[0] === ends[1] ? [ends[0]] : ends));
  }
  const last = points[points.length - 1];
  return kept[kept.length - 1] === last ? kept : [...kept, last];
}

// From the lowest to the highest value that is worth seeing: of later epochs, once there are some.
function range(lines, last) {
  const later = last < 20 ? 0 : EARLY * last;
  const values = lines.flatMap((line) => line.points.filter((point) => point[0] > later).map((point) => point[1]));
  return [values.reduce((a, b) => Math.min(a, b)), values.reduce((a, b) => Math.max(a, b))];
}

export class Chart {
  // place: the element to fill; name: for a screen reader; moved(epoch or null): the cursor was moved.
  constructor(place, name, moved) {
    this.place = place;
    this.moved = moved;
    this.frame = svg("svg", {
      tabindex: 0, role: "slider", "aria-label": `${name}: move through the epochs by the arrow keys`,
      "aria-valuemin": 1, "aria-valuemax": 1, "aria-valuenow": 1,
    });
    place.replaceChildren(this.frame);
    this.across = [1, 2];
    this.clip = `inside-${place.id}`;
    for (const kind of ["pointermove", "pointerdown"]) {
      this.frame.addEventListener(kind, (event) => this.moved(this.epochAt(event.clientX)));
    }
    this.frame.addEventListener("pointerleave", () => this.moved(null));
    this.frame.addEventListener("blur", () => this.moved(null));
    this.frame.addEventListener("keydown", (event) => this.key(event));
  }

  epochAt(clientX) {
    const box = this.frame.getBoundingClientRect();
    const share = (clientX - box.left - ROOM.left) / (box.width - ROOM.left - ROOM.right);
    const [first, last] = this.across;
    return Math.round(first + Math.min(1, Math.max(0, share)) * (last - first));
  }

  key(event) {
    const last = this.last ?? 1;
    const now = this.cursor ?? last;
    const page = Math.max(1, Math.round(last / 20));
    const to = {
      ArrowLeft: now - 1, ArrowDown: now - 1, ArrowRight: now + 1, ArrowUp: now + 1,
      PageDown: now - page, PageUp: now + page, Home: 1, End: last,
    }[event.key];
    if (event.key === "Escape") this.moved(null);
    if (to === undefined) return;
    event.preventDefault();
    this.moved(Math.min(last, Math.max(1, to)));
  }

  // lines: {points: [[epoch, value]], kind, title}; dots: {at: [epoch, value], kind};
  // best: {at, text}, marked; last: the last epoch of all; cursor: an epoch, and spoken of it.
  draw({ lines, dots = [], best = null, last, cursor = null, spoken = "" }) {
    const { width, height } = this.place.getBoundingClientRect();
    const drawn = lines.filter((line) => line.points.length);
    if (!drawn.length || width < 80) return;
    this.last = last;
    this.cursor = cursor;
    this.across = [1, Math.max(2, last)];
    let [low, high] = range(drawn, last);
    const log = low > 0 && high / low > 50;
    const to = log ? Math.log10 : (value) => value;
    const room = 0.05 * (to(high) - to(low)) || 0.05 * Math.abs(to(high)) || 1;
    [low, high] = [to(low) - room, to(high) + room];
    const right = width - ROOM.right;
    const bottom = height - ROOM.bottom;
    const x = (epoch) =>
      ROOM.left + ((epoch - 1) / (this.across[1] - 1)) * (right - ROOM.left);
    const y = (value) => bottom - ((to(value) - low) / (high - low)) * (bottom - ROOM.top);
    const place = ([epoch, value]) => `${x(epoch).toFixed(1)},${y(value).toFixed(1)}`;
    const frame = { x: ROOM.left - 3, y: ROOM.top - 6, width: right - ROOM.left + 6, height: bottom - ROOM.top + 6 };
    const parts = [svg("clipPath", { id: this.clip }, svg("rect", frame))];
    for (const tick of ticks(low, high)) {
      const value = log ? 10 ** tick : tick;
      const up = y(value).toFixed(1);
      parts.push(svg("line", { class: "grid", x1: ROOM.left, x2: right, y1: up, y2: up }));
      const text = String(Number(value.toPrecision(log ? 2 : 6)));
      parts.push(svg("text", { x: ROOM.left - 8, y: Number(up) + 4, "text-anchor": "end" }, text));
    }
    for (const tick of ticks(1, this.across[1]).filter((value) => Number.isInteger(value))) {
      parts.push(svg("text", { x: x(tick), y: bottom + 17, "text-anchor": "middle" }, tick.toLocaleString("en")));
    }
    parts.push(svg("text", { x: (ROOM.left + right) / 2, y: height - 2, "text-anchor": "middle" }, "epoch"));
    if (best) {
      parts.push(svg("line", { class: "mark", x1: x(best.at[0]), x2: x(best.at[0]), y1: ROOM.top, y2: bottom }));
    }
    for (const line of drawn) {
      const points = thinned(line.points, right - ROOM.left).map(place);
      if (points.length === 1) points.push(points[0]);
      const shape = svg("path", {
        class: `line ${line.kind}`, d: `M${points.join("L")}`, "clip-path": `url(#${this.clip})`,
        "stroke-linecap": "round", // so that a line of one point is seen
      });
      parts.push(shape);
    }
    if (cursor !== null) {
      parts.push(svg("line", { class: "cursor", x1: x(cursor), x2: x(cursor), y1: ROOM.top, y2: bottom }));
    }
    for (const { at, kind } of dots) {
      const [cx, cy] = place(at).split(",");
      if (cy > bottom || cy < ROOM.top) continue;
      parts.push(svg("circle", { class: `dot ${kind}`, cx, cy, r: kind.includes("small") ? 3 : 4.5 }));
    }
    if (best) parts.push(...this.bestMark(best, place(best.at).split(",").map(Number), right, bottom));
    this.frame.replaceChildren(...parts);
    const now = cursor ?? last;
    for (const [name, value] of [["max", last], ["now", now], ["text", `epoch ${now}${spoken}`]]) {
      this.frame.setAttribute(`aria-value${name}`, value);
    }
  }

  // The best epoch: a ring on its line, and far from the line, where there is room, what it is.
  bestMark({ text }, [cx, cy], right, bottom) {
    const after = cx < (ROOM.left + right) / 2;
    const away = { x: cx + (after ? 9 : -9), y: cy < (ROOM.top + bottom) / 2 ? bottom - 8 : ROOM.top + 10, "text-anchor": after ? "start" : "end" };
    return [svg("circle", { class: "dot best", cx, cy, r: 5.5 }), svg("text", { class: "best", ...away }, text)];
  }
}
