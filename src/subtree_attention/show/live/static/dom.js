// Elements from names and texts: whatever comes from a folder becomes text, never markup.

export const byId = (id) => document.getElementById(id);

function made(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

export const el = (tag, attributes = {}, ...children) =>
  made(document.createElement(tag), attributes, children);

export const svg = (tag, attributes = {}, ...children) =>
  made(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

// Only what has changed is touched, so that a screen reader or a selection is not disturbed.
export function tell(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export const clock = (seconds) => {
  const whole = Math.round(seconds);
  const two = (number) => String(number).padStart(2, "0");
  const minutes = `${Math.floor(whole / 60) % 60}`;
  const hours = Math.floor(whole / 3600);
  return hours ? `${hours}:${two(minutes)}:${two(whole % 60)}` : `${minutes}:${two(whole % 60)}`;
};

export const count = (number, word) =>
  `${number.toLocaleString("en")} ${word}${number === 1 ? "" : "s"}`;

// As Python's format: .2f or .4g.
export function written(value, form) {
  const digits = Number(form.slice(1, -1));
  return form.endsWith("f") ? value.toFixed(digits) : String(Number(value.toPrecision(digits)));
}
