// What one takes along: a link, pictures and a table of what is shown.

import { byId, called } from "./dom.js";

const dark = matchMedia("(prefers-color-scheme: dark)");

// picture() makes a PNG of what is seen; say(text) is heard by screen readers.
export function setUpTaking(picture, say) {
  byId("copy").addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(location.href);
      tell(byId("copy"), "Copied", say);
    } catch {
      tell(byId("copy"), "Copy it from the address bar", say);
    }
  });
  byId("as-png").addEventListener("click", async () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(await picture());
    link.download = byId("as-png").dataset.file;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
}

// The button says for a moment what was done.
function tell(button, text, say) {
  const before = button.dataset.text ??= button.textContent;
  button.textContent = text;
  say(text);
  clearTimeout(button.waiting);
  button.waiting = setTimeout(() => (button.textContent = before), 1500);
}

// asking: the parameters of what is shown.
export function showTaking(view, asking) {
  const file = `subtree-${called(view).replace(/[^\p{L}\p{N}]+/gu, "-").slice(0, 40)}`;
  for (const kind of ["svg", "csv"]) {
    const link = byId(`as-${kind}`), given = new URLSearchParams(asking);
    if (kind === "svg") given.set("look", dark.matches ? "dark" : "light");
    link.href = `/api/node.${kind}?${given}`;
    link.download = `${file}.${kind}`;
  }
  byId("as-png").dataset.file = `${file}.png`;
}
