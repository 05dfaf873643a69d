// The search box: ids that match while one types, by pointer or by keys.

import { byId, el, percent, short } from "./dom.js";

const WAIT = 120; // milliseconds without a key before the server is asked

export function search(ask, go) {
  const input = byId("find"), found = byId("found");
  let nodes = [], active = -1, timer = 0, last = 0;

  function open(is) {
    found.hidden = !is;
    active = -1;
    input.setAttribute("aria-expanded", String(is));
    input.removeAttribute("aria-activedescendant");
  }

  function choose(id) {
    input.value = "";
    open(false);
    go(id);
  }

  function activate(place) {
    active = (place + nodes.length) % nodes.length;
    [...found.children].forEach((item, i) => item.setAttribute("aria-selected", String(i === active)));
    input.setAttribute("aria-activedescendant", `found-${active}`);
    found.children[active].scrollIntoView({ block: "nearest" });
  }

  function show() {
    const items = nodes.map((node, i) => {
      const item = el("li", { role: "option", id: `found-${i}`, "aria-selected": "false" },
        el("span", {}, short(node.id, 60)),
        el("span", { class: "quiet" }, `${node.predicted} ${percent(node.probability)}`));
      item.addEventListener("pointerdown", (event) => {
        event.preventDefault(); // before the box loses the focus and closes
        choose(node.id);
      });
      return item;
    });
    if (!items.length) items.push(el("li", { class: "quiet" }, "No id matches."));
    found.replaceChildren(...items);
    open(true);
  }

  async function look() {
    const asked = ++last, text = input.value;
    if (!text) return open(false);
    const answer = await ask(text);
    if (asked === last && answer && input.value === text) {
      nodes = answer;
      show();
    }
  }

  input.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(look, WAIT);
  });
  look(); // what was typed while the page was loading
  input.addEventListener("blur", () => open(false));
  input.addEventListener("keydown", (event) => {
    if (event.key === "Escape") open(false);
    if (found.hidden || !nodes.length) return;
    if (event.key === "ArrowDown") activate(active + 1);
    else if (event.key === "ArrowUp") activate(active < 0 ? nodes.length - 1 : active - 1);
    else return;
    event.preventDefault();
  });
  byId("search").addEventListener("submit", (event) => {
    event.preventDefault();
    if (active >= 0) choose(nodes[active].id);
    else if (input.value) choose(input.value); // the server says if there is no such node
  });
}
