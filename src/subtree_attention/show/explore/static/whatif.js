// What if: the changes as chips that can be taken back, and what became of the prediction.

import { button, byId, el, percent, short } from "./dom.js";

// named(class) is a class with its mark; on.drop(text) takes a change back, on.clear() all of them.
export function showWhatIf({ changed, predicted, probability }, named, on) {
  byId("what-if").hidden = !changed;
  if (!changed) return;
  const chips = changed.changes.map(({ text, told }) => {
    const drop = button("✕", () => on.drop(text));
    drop.setAttribute("aria-label", `take back: ${told}`);
    return el("li", { class: "chip" }, el("span", { title: told }, short(told, 60)), drop);
  });
  const all = changed.changes.length > 1 ? [el("li", {}, button("take all back", on.clear))] : [];
  byId("changes").replaceChildren(...chips, ...all);
  const told = (name, share) => [named(name), ` (${percent(share)})`];
  const [was, is] = [told(changed.predicted, changed.probability), told(predicted, probability)];
  byId("outcome").replaceChildren("predicted ", ...was, " before, ",
    el("strong", {}, changed.predicted === predicted ? "still " : "now "), ...is);
  byId("kept").textContent = `Exact: this is what the model says of this node on the graph so changed, but ${changed.kept.join("; ")}.`;
}
