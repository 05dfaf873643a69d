// Elements from names and texts. Whatever comes from a table becomes text, never markup.

export const byId = (id) => document.getElementById(id);

export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const signed = (value) =>
  (value < 0 ? "−" : "+") + Math.abs(value).toFixed(3); // a minus as wide as the plus

export const percent = (share, digits = 1) => {
  const least = 0.1 ** digits; // of what is told
  return share > 0 && 100 * share < least / 2 ? `< ${least.toFixed(digits)} %` : `${(100 * share).toFixed(digits)} %`;
};

export const few = (number) => // in few characters: 139, 12.4k
  number.toLocaleString("en", { notation: "compact", maximumFractionDigits: 1 });

export const count = (number, word) =>
  `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;

export const hopName = (hop) =>
  ({ global: "global attention", residual: "residual" })[hop] ?? `hop ${hop}`;

export function short(text, length = 40) {
  const characters = [...text]; // so that none is cut in two
  return characters.length > length ? `${characters.slice(0, length - 1).join("")}…` : text;
}

export const total = (values) => values.reduce((sum, value) => sum + value, 0);

// What a node is called: by its name, or else by its id.
export const called = (node) => node.name ?? node.id;

export const pictureOf = (node) => `/api/picture?${new URLSearchParams({ id: node.id })}`;

// Its name, with the id beside it where they differ.
export const titled = (node, length = 60) => [short(called(node), length), ...idOf(node)];

// The id where a node is called by its name: names may be shared.
export const idOf = (node) => (node.name ? [el("span", { class: "quiet id" }, ` ${short(node.id, 24)}`)] : []);

export const button = (text, does) => {
  const made = el("button", { type: "button" }, text);
  made.addEventListener("click", does);
  return made;
};

// ------------------------------------------------------------------------------------- tables

export function row(kind, name, ...cells) {
  return el("tr", { class: kind }, el("th", { scope: "row" }, name), ...cells.map((cell) => el("td", {}, cell)));
}

export function bar(value, most, kind = value < 0 ? "minus" : "plus") {
  const inner = el("span", { class: `bar ${kind}` });
  inner.style.width = `${(100 * Math.abs(value)) / most}%`;
  return inner;
}

export const largest = (values) => Math.max(...values.map(Math.abs), 1e-12);
