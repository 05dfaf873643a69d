// The nodes of the map as numbers: where they lie, their classes and splits, and which are chosen.

import { ask, askBytes } from "./ask.js";

const SPLITS = ["test", "val", "train", "unlabelled", "other"];
export const NO_CLASS = 65535;

export class Points {
  constructor(count) {
    this.count = count;
    this.places = new Map(); // by "pca" and "tsne": x and y of each node
  }

  // Once; whoever asks again waits for the same answer.
  load() {
    this.loading ??= Promise.all([this.about(), this.placed("pca")]).then(() => this);
    return this.loading;
  }

  async about() {
    const bytes = await askBytes("map/points"), n = this.count;
    this.true = new Uint16Array(bytes, 0, n);
    this.predicted = new Uint16Array(bytes, 2 * n, n);
    this.split = new Uint8Array(bytes, 4 * n, n);
  }

  async placed(by) {
    if (!this.places.has(by)) this.places.set(by, new Float32Array(await askBytes("map/positions", { by })));
    return this.places.get(by);
  }

  status() {
    return ask("map");
  }

  isMistake(node) {
    return this.true[node] !== NO_CLASS && this.true[node] !== this.predicted[node];
  }

  // Nodes as lists of numbers: those chosen that are right (or not known), the mistakes among them,
  // and the rest. `true` and `predicted` are sets of classes, null for any; `lasso` is a polygon on
  // the map `places`, or null.
  sort({ split, true: truth, predicted, mistakes, lasso, places }) {
    const of = SPLITS.indexOf(split), n = this.count;
    const parts = [new Uint32Array(n), new Uint32Array(n), new Uint32Array(n)], ends = [0, 0, 0];
    const inside = lasso && within(lasso);
    for (let node = 0; node < n; node += 1) {
      const wrong = this.isMistake(node);
      const chosen = (of < 0 || this.split[node] === of)
        && (!truth || truth.has(this.true[node]))
        && (!predicted || predicted.has(this.predicted[node]))
        && (!mistakes || wrong)
        && (!inside || inside(places[2 * node], places[2 * node + 1]));
      const part = chosen ? Number(wrong) : 2;
      parts[part][ends[part]] = node;
      ends[part] += 1;
    }
    const [right, wrong, rest] = parts.map((part, i) => part.subarray(0, ends[i]));
    return { right, wrong, rest };
  }
}

// Whether a point is in a polygon, [[x, y], ...]: a ray from it crosses an odd number of sides.
export function within(polygon) {
  const xs = polygon.map(([x]) => x), ys = polygon.map(([, y]) => y);
  const low = [Math.min(...xs), Math.min(...ys)], high = [Math.max(...xs), Math.max(...ys)];
  return (x, y) => {
    if (x < low[0] || x > high[0] || y < low[1] || y > high[1]) return false;
    let inside = false;
    for (let i = 0, j = xs.length - 1; i < xs.length; j = i, i += 1) {
      const crosses = ys[i] > y !== ys[j] > y;
      if (crosses && x < xs[i] + ((y - ys[i]) / (ys[j] - ys[i])) * (xs[j] - xs[i])) inside = !inside;
    }
    return inside;
  };
}

// Finds the node next to a place, among some lists of them: they are sorted by the square cell of
// the map that they lie in.
export class Nearest {
  constructor(lists, places) {
    this.places = places;
    const count = lists.reduce((sum, nodes) => sum + nodes.length, 0);
    const side = (this.side = Math.max(1, Math.min(1024, Math.ceil(Math.sqrt(count / 2)))));
    const cell = (node) => this.along(places[2 * node + 1]) * side + this.along(places[2 * node]);
    this.starts = new Uint32Array(side * side + 1);
    for (const nodes of lists) for (const node of nodes) this.starts[cell(node) + 1] += 1;
    for (let i = 0; i < side * side; i += 1) this.starts[i + 1] += this.starts[i];
    const next = this.starts.slice();
    this.sorted = new Uint32Array(count);
    for (const nodes of lists) for (const node of nodes) this.sorted[next[cell(node)]++] = node;
  }

  along(value) {
    return Math.max(0, Math.min(this.side - 1, Math.floor(((value + 1) / 2) * this.side)));
  }

  // The nearest node within a distance; null if there is none.
  at(x, y, distance) {
    let best = null, least = distance * distance;
    for (let row = this.along(y - distance); row <= this.along(y + distance); row += 1) {
      const from = this.starts[row * this.side + this.along(x - distance)];
      const to = this.starts[row * this.side + this.along(x + distance) + 1];
      for (let i = from; i < to; i += 1) {
        const node = this.sorted[i];
        const far = (this.places[2 * node] - x) ** 2 + (this.places[2 * node + 1] - y) ** 2;
        if (far < least) [best, least] = [node, far];
      }
    }
    return best;
  }
}
