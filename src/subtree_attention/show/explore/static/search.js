// The search box: nodes that match while one types, by pointer or by keys.

import { byId, el, percent, short, titled } from "./dom.js";

const WAIT = 120; // milliseconds without a key before the server is asked

export function search(ask, go) {
  const input = byId("find"), found = byId("found"), none = byId("none");
  let nodes = [], active = -1, timer = 0, last = 0;

  function open(is) {
    found.hidden = !is;
    active = -1;
    input.setAttribute("aria-expanded", String(is));
    input.removeAttribute("aria-activedescendant");
  }

  function choose(id) {
    input.value = "";
    miss("");
    open(false);
    go(id);
  }

  // Says that nothing was found, or takes that back.
  function miss(text) {
    none.textContent = text && `Nothing is called, or has in it, '${short(text, 60)}'.`;
    none.hidden = !text;
    input.setAttribute("aria-invalid", String(Boolean(text)));
  }

  function activate(place) {
    active = (place + nodes.length) % nodes.length;
    [...found.children].forEach((item, i) => item.setAttribute("aria-selected", String(i === active)));
    input.setAttribute("aria-activedescendant", `found-${active}`);
    found.children[active].scrollIntoView({ block: "nearest" });
  }

  function show(text) {
    const items = nodes.map((node, i) => {
      const item = el("li", { role: "option", id: `found-${i}`, "aria-selected": "false" },
        el("span", {}, ...titled(node), ...where(node)),
        el("span", { class: "quiet" }, `${node.predicted} ${percent(node.probability)}`));
      item.addEventListener("pointerdown", (event) => event.preventDefault()); // the box keeps the focus
      item.addEventListener("click", () => choose(node.id));
      return item;
    });
    found.replaceChildren(...items);
    open(items.length > 0);
    miss(items.length ? "" : text);
  }

  async function look() {
    clearTimeout(timer);
    const asked = ++last, text = input.value;
    if (!text) {
      miss("");
      open(false);
      return false;
    }
    const answer = await ask(text);
    if (asked !== last || !answer || input.value !== text) return false;
    nodes = answer;
    show(text);
    return true;
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
  byId("search").addEventListener("submit", async (event) => {
    event.preventDefault();
    if (active >= 0) return choose(nodes[active].id);
    const text = input.value;
    if (!(await look())) return; // the server knows; so no address leads nowhere
    if (nodes.length === 1 || nodes[0]?.id === text) choose(nodes[0].id);
    else if (nodes.length) activate(0); // Enter once more takes the first
  });
}

// In which column the text stands, where that is not what the node is called.
function where({ column, excerpt, id, name }) {
  if (column === null || excerpt === id || excerpt === name) return [];
  return [el("span", { class: "quiet excerpt" }, `${column}: ${short(excerpt, 80)}`)];
}
