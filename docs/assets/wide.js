// What scrolls sideways can be reached by keyboard and says what it is; what does not is no stop.
const BOXES = ".wide, .highlight > pre";
const NAMES = { table: "Table", math: "Formula", code: "Code", img: "Picture" };

function update(box) {
  if (box.scrollWidth <= box.clientWidth) {
    for (const name of ["tabindex", "role", "aria-label"]) box.removeAttribute(name);
    return;
  }
  const inside = box.querySelector("table, math, code, img").localName;
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", `${NAMES[inside]}, scrolls sideways`);
}

// The content too: it grows when its font has come.
const watched = new ResizeObserver((seen) => {
  for (const box of new Set(seen.map(({ target }) => target.closest(BOXES)))) update(box);
});
for (const box of document.querySelectorAll(BOXES)) {
  for (const each of [box, ...box.children]) watched.observe(each);
}
