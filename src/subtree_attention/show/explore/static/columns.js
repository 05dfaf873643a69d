// The columns of a node: what the table says, which of it can be changed, and what it adds to a logit.

import { bar, button, el, largest, row, signed } from "./dom.js";

// Names and values of the root; on.add(text) changes one, see changes.py.
export function ownColumns({ columns, inputs }, on) {
  return columns.flatMap(([name, value]) => [
    el("dt", {}, name), el("dd", {}, value, ...(inputs[name] ? changesOf(name, value, inputs[name], on) : []))]);
}

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

// Another value: one of some, or any number.
function setting(name, value, oneOf, on) {
  const label = `another value of ${name}`;
  const input = oneOf.length
    ? el("select", { "aria-label": label }, ...oneOf.map((each) => el("option", { selected: each === value }, each)))
    : el("input", { "aria-label": label, value, inputmode: "decimal", size: "8" });
  const form = el("form", {}, input, el("button", {}, "try it"));
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    on.add(`column:${name}=${input.value}`);
  });
  return el("details", { class: "changing" }, el("summary", {}, "change it"), form);
}

// ------------------------------------------------------------------------- what they add to a logit

// columns: see `inputs.columns`; of: what is taken apart, in words.
export function columnRows({ named, rest, bias, all }, of) {
  const most = largest([...named, rest].map((each) => each.all));
  const line = ({ name, own, all: whole }, kind) =>
    row(kind, name, signed(own), bar(whole, most), signed(whole));
  const head = ["column", "of the node itself", "", "of all nodes"].map((name) =>
    (name ? el("th", { scope: "col" }, name) : el("td")));
  const others = rest.features ? [line({ ...rest, name: `${rest.features.toLocaleString("en")} others` }, "quiet")] : [];
  return [
    el("tr", {}, ...head), ...named.map((each) => line(each, false)), ...others,
    row("quiet", "biases", "", "", signed(bias)), row("total", of, "", "", signed(all + bias)),
  ];
}

export const columnsSaid = ({ linear }) => (linear
  ? "What columns and words add, through the input layer: exact, since it is linear."
  : "What columns and words add, back through the input layer: exact given which of its units are active.");
