// The page: an address becomes a view. A new root is a step of the history, and so is a change; a control is not.

import { format, parameters, parse } from "./address.js";
import { ask } from "./ask.js";
import { Classes } from "./colours.js";
import { byId, called, count, el, percent, short } from "./dom.js";
import { Drawing } from "./drawing.js";
import { MiniMap } from "./minimap.js";
import { more, Panels } from "./panels.js";
import { Points } from "./points.js";
import { search } from "./search.js";
import { Start } from "./start.js";
import { setUpTaking, showTaking } from "./take.js";

let graph, classes, panels, drawing, start, mini, view = null;
let trail = [], asked = 0;

// ------------------------------------------------------------------------------- where we are

// What is asked is shown, and only then is it a step of the history: what is not found leaves no trace.
async function go(id, before = trail) {
  const options = carried();
  const shown = await render({ id, options }, ({ name }) => {
    trail = [...before, { id, name }];
    history.pushState({ trail }, "", format(id, options));
  });
  if (shown) scrollTo({ top: 0 });
}

// Options that another root has too: what was opened or changed is this one's.
function carried() {
  const { open, changes, rather, ...options } = parse(location.hash).options;
  return options.class ? { ...options, rather } : options; // it may be what another root is predicted
}

function change(options) {
  const here = parse(location.hash), asks = "class" in options || "rather" in options;
  // After a change, another question is a step too: else Back would take both away at once.
  const step = here.options.changes && asks ? "pushState" : "replaceState";
  history[step](history.state, "", format(here.id, { ...here.options, ...options }));
  render();
}

// More nodes of a level; those of others stay as they are.
function open(rest) {
  if (rest.opened === null) return;
  const others = (parse(location.hash).options.open ?? "").split(",").filter(
    (each) => each && each.split(":")[0] !== String(rest.hop));
  change({ open: [...others, `${rest.hop}:${rest.opened}`].join(",") });
}

// What if: each change is a step of the history, so that Back takes it back.
async function alter(update, said) {
  const { id, options } = parse(location.hash), changes = update(options.changes ?? []);
  const next = { ...options, changes };
  const shown = await render({ id, options: next }, () => history.pushState({ trail }, "", format(id, next)), said);
  if (!shown) return;
  byId("said").textContent = byId(view.changed ? "outcome" : "verdict").textContent;
  byId("what-if").scrollIntoView({ block: "nearest" });
}

const whatIf = {
  add: (text, said) => alter(
    (changes) => [...changes.filter((each) => each !== text && !replaces(text, each)), text], said),
  drop: (text) => alter((changes) => changes.filter((each) => each !== text)),
  clear: () => alter(() => []),
};

// A column has one value.
const replaces = (text, each) => text.startsWith("column:") && each.startsWith(text.slice(0, text.indexOf("=") + 1));

// An address that was typed, or a link from elsewhere, has no trail yet.
function walked({ id, name }) {
  if (!history.state?.trail) {
    const visited = id === null || trail.at(-1)?.id === id ? trail : [...trail, { id, name }];
    history.replaceState({ trail: visited }, "");
  }
  return history.state.trail;
}

// To a node as the root; `before` are the roots that it is reached by.
function link(node, before) {
  const options = carried(), text = called(node);
  const title = node.name || text.length > 28 ? `${text} ${node.id}` : false;
  const anchor = el("a", { href: format(node.id, options), title }, short(text, 28));
  anchor.addEventListener("click", (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return; // a new tab or window
    event.preventDefault();
    go(node.id, before);
  });
  return anchor;
}

function showTrail(current) {
  const from = Math.max(0, trail.length - 8);
  const items = trail.slice(from).map((node, i) => {
    const here = from + i + 1 === trail.length && node.id === current;
    const text = short(called(node), 20);
    return el("li", {}, here ? el("span", { "aria-current": "page" }, text) : link(node, trail.slice(0, from + i)));
  });
  if (from) items.unshift(el("li", { class: "quiet" }, "…"));
  byId("trail").replaceChildren(...items);
}

// ------------------------------------------------------------------------------------ showing

// `arrive` is called once there is something to show, `said` with what is wrong; by default the address is where
// we are.
async function render(address = parse(location.hash), arrive = null, said = complain) {
  if (!graph) return false; // it begins by rendering
  const { id, options } = address, mine = ++asked;
  try {
    const { show, root } = id === null ? await startPage() : await rootPage(id, options);
    if (mine !== asked) return false; // something else was asked meanwhile
    if (arrive) arrive(root);
    else trail = walked(root);
    byId("problem").hidden = true;
    keepingFocus(show);
    showTrail(id);
    return true;
  } catch (problem) {
    if (mine !== asked) return false;
    if (!arrive && id !== null && problem.status) await renderLess(address, problem);
    said(problem);
    return false;
  }
}

// Of an address that asks for what is not there: the start in place of no node, else the node without its changes, or
// without any options.
function renderLess({ id, options: { changes, ...options } }, { status }) {
  history.replaceState(history.state, "", status === 404 ? "#/" : format(id, changes ? options : {}));
  return render();
}

// What had the focus may be gone or hidden: then the heading of what is shown has it.
function keepingFocus(show) {
  const lost = () => document.activeElement === document.body || !document.activeElement.checkVisibility();
  const had = !lost(), inCard = byId("card").contains(document.activeElement);
  show();
  if (!had || !lost()) return;
  byId(byId("view").hidden ? "start-title" : inCard ? "drawing" : "root").focus({ preventScroll: true });
}

function complain(problem) {
  byId("problem").textContent = problem.message;
  byId("problem").hidden = false;
}

const startPage = async () => ({ show: await start.page(), root: { id: null } });

async function rootPage(id, given) {
  const options = { hops: String(Math.min(3, graph.hops)), head: "all", by: "attention", ...given };
  const asking = parameters(options);
  asking.set("id", id);
  const answer = await ask("node", asking);
  const show = () => {
    const moved = view?.id !== answer.id;
    view = answer;
    document.title = `${short(called(view))} · ${graph.title} · sta explore`;
    byId("start").hidden = true;
    byId("view").hidden = false;
    showControls(options);
    panels.show(view, options);
    showColumns(asking);
    showTaking(view, asking);
    drawing.show(view, options, classes);
    mini.show([...new Set(view.nodes.map((node) => node.number))]).catch(complain);
    const shown = count(view.nodes.length, "node");
    byId("drawing").setAttribute("aria-label", `Subtree of ${called(view)}, ${shown} shown. The list below tells the same.`);
    if (moved) byId("said").textContent = `Root ${called(view)}: predicted ${view.predicted}, ${percent(view.probability)}`;
  };
  return { show, root: answer };
}

// Which columns made it is asked for afterwards: it takes longer, and nothing waits for it.
async function showColumns(asking) {
  const mine = view;
  const columns = await ask("columns", asking).catch(complain);
  if (columns && mine === view) panels.showColumns(columns, view);
}

function showControls(options) {
  const controls = byId("controls").elements, { rather } = controls;
  for (const name of ["by", "head", "hops"]) controls[name].value = options[name];
  controls.hops.setAttribute("aria-valuetext", `${options.hops} of ${graph.hops} hops`);
  byId("hops-now").textContent = `${controls.hops.value} of ${graph.hops}`;
  controls.class.options[0].textContent = `predicted (${view.predicted})`;
  controls.class.value = options.class ?? (view.class === view.predicted ? "" : view.class);
  for (const option of rather.options) option.disabled = option.value === view.class;
  rather.value = options.rather ?? "";
}

// ------------------------------------------------------------------------------------- set up

function setUpControls() {
  const form = byId("controls");
  const option = (name) => el("option", { value: name }, name);
  const heads = Array.from({ length: graph.heads }, (_, i) => String(i + 1));
  form.elements.head.replaceChildren(...["all", ...heads].map(option));
  form.elements.class.replaceChildren(...["", ...graph.classes].map(option));
  form.elements.rather.replaceChildren(el("option", { value: "" }, "no other"), ...graph.classes.map(option));
  form.elements.hops.max = graph.hops;
  form.addEventListener("input", ({ target }) => {
    const { name, value } = target, same = name === "class" && value === parse(location.hash).options.rather;
    change({ [name]: value, ...(same ? { rather: "" } : {}) });
  });
  form.addEventListener("submit", (event) => event.preventDefault());
  byId("closer").addEventListener("click", () => drawing.zoom(1.25));
  byId("farther").addEventListener("click", () => drawing.zoom(0.8));
  byId("fit").addEventListener("click", () => drawing.fit());
  setUpTaking(() => drawing.picture(), (text) => (byId("said").textContent = text));
}

const choose = (node) => node.id !== view.id && go(node.id);

function point(node) {
  panels.card(node, node ? actions(node) : []);
  if (node) uncover();
  const focused = document.activeElement === byId("drawing");
  if (node && focused) byId("said").textContent = `${panels.title(node)}: ${panels.told(node)}`;
}

// On a small screen the card comes from below: the picture stays above it.
function uncover() {
  const card = byId("card"), picture = byId("drawing").getBoundingClientRect();
  const over = picture.bottom - card.getBoundingClientRect().top;
  if (getComputedStyle(card).position === "fixed" && over > 0) scrollBy({ top: Math.min(over, Math.max(picture.top, 0)) });
}

// What can be done with a node, a step of its walk or the rest of a level: the buttons of its card.
function actions(node) {
  if (node.rest) return node.opened === null ? [] : [[more(node), () => open(node)]];
  const [from, to] = node.walk, step = from !== to && [["cut its edge", () => whatIf.add(`edge:${from}>${to}`)]];
  if (node.step) return step || [];
  if (node.id === view.id) return [];
  return [
    ["make it the root", () => choose(node)], ["leave it out", () => leaveOut(node)],
    ...(node.walk.length > 1 && step ? step : []),
  ];
}

const leaveOut = (node) => !node.rest && node.id !== view.id && whatIf.add(`node:${node.id}`);

async function begin() {
  search((text) => ask("search", { text }).catch(() => null), (id) => go(id));
  byId("card").addEventListener("pointerenter", () => drawing.stay());
  byId("card").addEventListener("pointerleave", (event) => event.pointerType === "mouse" && drawing.leave());
  graph = await ask("graph");
  classes = new Classes(graph.classes);
  panels = new Panels(graph, classes, { link, open, ...whatIf });
  const points = new Points(graph.nodes);
  mini = new MiniMap(byId("mini-map"), byId("mini-told"), points);
  start = new Start({ graph, classes, points, panels, link, open: go, complain });
  byId("graph-title").textContent = graph.title;
  drawing = new Drawing(byId("drawing"), { choose, open, point, leaveOut });
  setUpControls();
  addEventListener("popstate", () => render());
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => render());
  await render();
}

begin().catch(complain);
