// The columns of a node: what the table says, which of it can be changed, and what it adds to a logit.

import { bar, button, el, largest, row, signed } from "./dom.js";

// Names and values of the root; on.add(text, complain) changes one, see changes.py.
export function ownColumns({ columns, inputs }, on) {
  return columns.flatMap(([name, value, now]) => [
    el("dt", {}, name), el("dd", {}, since(value, now), ...(inputs[name] ? changesOf(name, value, inputs[name], on) : []))]);
}

// A value, and what it is after changes.
export const since = (value, now) => (now ? `${value}, now ${now}` : value);

function changesOf(name, value, { words, one_of: oneOf, numeric }, on) {
  if (words.length) return [wordsOf(name, words, on)];
  return numeric || oneOf.length ? [setting(name, value, oneOf, on)] : [];
}

// Words of the node, each of which can be left out.
function wordsOf(name, words, on) {
  const items = words.map((word) => {
    const without = button(word, () => on.add(`word:${name}:${word}`));
    without.setAttribute("aria-label", `leave out '${word}'`);
    return without;
  });
  return el("details", { class: "changing" }, el("summary", {}, "leave out a word"), el("p", { class: "words" }, ...items));
}

let fields = 0;

// Another value: one of some, or any number.
function setting(name, value, oneOf, on) {
  const label = `another value of ${name}`;
  const input = oneOf.length
    ? el("select", { "aria-label": label }, ...oneOf.map((each) => el("option", { selected: each === value }, each)))
    : el("input", { "aria-label": label, value, inputmode: "decimal", size: "8" });
  const wrong = el("p", { class: "wrong", role: "alert", id: `wrong-value-${(fields += 1)}` });
  const form = el("form", {}, input, el("button", {}, "try it"), wrong);
  input.setAttribute("aria-describedby", wrong.id);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    on.add(`column:${name}=${input.value}`, (problem) => {
      wrong.textContent = problem.message;
      input.setAttribute("aria-invalid", "true");
      input.focus();
    });
  });
  return el("details", { class: "changing" }, el("summary", {}, "change it"), form);
}

// ------------------------------------------------------------------------- what they add to a logit

// columns: see `inputs.columns`; of: what is taken apart, in words. What the root has of it can be left out.
export function columnRows({ named, rest, bias, all, columns }, of, view, on) {
  const most = largest([...named, rest].map((each) => each.all));
  const kinds = new Map(columns.map(({ name, kind }) => [name, kind]));
  const line = (each, kind) => row(kind, el("span", {}, each.name, ...without(each, kinds, view, on)),
    signed(each.own), bar(each.all, most), signed(each.all));
  const head = ["column", "its own", "", "of all nodes"].map((name) =>
    (name ? el("th", { scope: "col" }, name) : el("td")));
  const others = rest.features ? [line({ ...rest, name: `${rest.features.toLocaleString("en")} others` }, "quiet")] : [];
  return [
    el("tr", {}, ...head), ...named.map((each) => line(each, false)), ...others,
    row("quiet", "biases", "", "", signed(bias)), row("total", of, "", "", signed(all + bias)),
  ];
}

// A word of the root is left out; a feature of a matrix is 0 then.
function without({ name, column, own }, kinds, { inputs }, on) {
  const word = inputs[column]?.words.find((each) => name === `${column}: ${each}`);
  const text = word ? `word:${column}:${word}` : kinds.get(column) === "matrix" && `column:${name}=0`;
  if (!own || !text) return [];
  const made = button("✕", () => on.add(text));
  made.setAttribute("aria-label", `leave out ${name}`);
  made.title = "leave it out";
  return [made];
}

export const columnsSaid = ({ linear }) => (linear
  ? "What columns and words add, through the input layer: exact, since it is linear."
  : "What columns and words add, back through the input layer: exact given which of its units are active.");
