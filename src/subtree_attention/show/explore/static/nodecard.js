// What is said of a node of the map where it is pointed at; on touch, with a link to its subtree.

import { ask } from "./ask.js";
import { called, el, pictureOf, short } from "./dom.js";

const WAIT = 60; // milliseconds on a node before the server is asked
const KEPT = 500; // nodes that are not asked for again

export class NodeCard {
  constructor(card, panels, link) {
    Object.assign(this, { card, panels, link, known: new Map(), node: null });
  }

  // At a place of the map; null hides it.
  show(node, x = 0, y = 0, touched = false) {
    if (node === null) {
      this.node = null;
      this.card.hidden = true;
      return;
    }
    if (node !== this.node) {
      this.node = node;
      clearTimeout(this.timer);
      this.card.hidden = true;
      this.timer = setTimeout(() => this.fill(node, touched), this.known.has(node) ? 0 : WAIT);
    }
    this.put(x, y);
  }

  // Beside the pointer, on the side that has room.
  put(x, y) {
    const { clientWidth: width, clientHeight: height } = this.card.parentElement, { style } = this.card;
    style.left = x < width / 2 ? `${x + 16}px` : "auto";
    style.right = x < width / 2 ? "auto" : `${width - x + 16}px`;
    style.top = y < height / 2 ? `${y + 12}px` : "auto";
    style.bottom = y < height / 2 ? "auto" : `${height - y + 12}px`;
  }

  async fill(node, touched) {
    const about = await this.about(node);
    if (node !== this.node || !about) return;
    const title = short(called(about), 60);
    const picture = about.picture
      ? el("img", { src: pictureOf(about), alt: "", width: "56", height: "56" }) : null;
    this.card.classList.toggle("touched", touched);
    const open = touched ? this.link(about) : null;
    if (open) open.textContent = "Open its subtree";
    this.card.replaceChildren(...[
      picture,
      el("div", {},
        el("p", { class: "card-title" }, title),
        about.name ? el("p", { class: "quiet" }, about.id) : null,
        el("p", {}, ...this.panels.verdict(about)), open && el("p", {}, open)),
    ].filter(Boolean));
    this.card.hidden = false;
  }

  async about(node) {
    if (!this.known.has(node)) {
      const found = await ask("map/nodes", { numbers: node }).catch(() => []); // said where it is chosen
      if (this.known.size >= KEPT) this.known.clear();
      this.known.set(node, found[0]);
    }
    return this.known.get(node);
  }
}
