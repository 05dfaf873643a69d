// Asks what is new once a second, keeps it, and shows it: when nobody answers, what is known stays.
import { Chart } from "./chart.js";
import { byId, clock, count, el, svg, tell, written } from "./dom.js";
import { chosen, dotsOf, legendOf, linesOf, meanOf, valueAt } from "./curves.js";

const EVERY = 1000;
const IDLE = 5000; // when all is said, and nobody answers
const SAY_EVERY = 60_000;
const STATES = {
  starting: "Starting", training: "Training", finished: "Finished", stopped: "Stopped", gone: "No answer",
};

let known = null; // the last answer, with all rows that were ever told
let gone = false;
let picked = null; // the curve that somebody has chosen
let cursor = null;
let saidAt = 0;
let last = { state: "", ended: 0 };

const charts = {
  score: new Chart(byId("score"), "Score", (epoch) => move(epoch)),
  loss: new Chart(byId("loss"), "Loss", (epoch) => move(epoch)),
};

function move(epoch) {
  if (epoch === cursor) return;
  cursor = epoch;
  drawCharts();
}

// ------------------------------------------------------------------------------------ asking

async function ask() {
  const curves = known?.session ? [...known.models, ...known.runs] : [];
  const query = new URLSearchParams({
    session: known?.session ?? "", have: curves.map((curve) => curve.epochs).join(","),
  });
  try {
    const answer = await fetch(`/api/state?${query}`, { signal: AbortSignal.timeout(10_000) });
    const told = await answer.json();
    gone = false;
    if (told.error) problem(told.error);
    else take(told);
  } catch {
    gone = true;
  }
  show();
  setTimeout(ask, gone && known?.state !== "training" ? IDLE : EVERY);
}

function take(told) {
  problem("");
  if (known?.session === told.session) {
    for (const kind of ["models", "runs"]) {
      told[kind].forEach((curve, at) => {
        curve.rows = [...(known[kind][at]?.rows ?? []), ...curve.rows];
      });
    }
  }
  known = told;
}

function problem(words) {
  tell(byId("problem"), words);
  byId("problem").hidden = !words;
}

// ----------------------------------------------------------------------------------- showing

const score = (value) =>
  value === null || value === undefined ? "" : written(known.metric.scale * value, known.metric.form);
const scored = (value) => `${score(value)} ${known.metric.unit}`.trim();

function show() {
  const state = gone && known?.state !== "finished" && known?.state !== "stopped" ? "gone" : known?.state ?? "gone";
  byId("state").dataset.state = state;
  tell(byId("state"), STATES[state]);
  if (known?.graph) {
    tell(byId("graph"), known.graph);
    tell(byId("model"), known.model);
    for (const id of ["charts", "below"]) byId(id).hidden = !shown().some((curve) => curve.epochs);
    showNow(state);
    showRuns();
    showModels();
    drawCharts();
    announce(state);
  }
  tell(byId("next"), nextStep(state));
}

// The curves of what goes on now: models that compete, or runs.
const shown = () => (known.competing ? known.models : known.runs);

const ended = () => known.runs.filter((run) => run.test !== null);

function showNow(state) {
  const run = shown().filter((curve) => curve.epochs && curve.test === null && !curve.out).at(-1);
  const going = state === "training" && run;
  const words = {
    finished: `${count(known.runs.length, "run")} done`,
    stopped: "Training was stopped",
    gone: "Nobody answers: the process has ended, or its machine is asleep",
  };
  const which = known.competing ? `Model ${run?.name}` : `R${run?.name.slice(1)} (${known.runs.indexOf(run) + 1} of ${known.total})`;
  const done = ended().length;
  const next = done < known.total ? `Run ${done} (${done + 1} of ${known.total}) is about to begin` : "About to end";
  const soon = done && !known.competing ? next : "About to begin";
  tell(byId("doing"), words[state] ?? (going ? `${which}, epoch ${run.epochs.toLocaleString("en")}` : soon));
  document.title = `${STATES[state]}: ${known.graph}${run?.best ? `, ${scored(run.best.val)}` : ""}`;
  byId("bar").hidden = !going || known.competing;
  const rest = [];
  if (going) {
    byId("bar").max = run.end;
    byId("bar").value = run.epochs;
    if (run.best) rest.push(`best validation ${scored(run.best.val)} at epoch ${run.best.epoch.toLocaleString("en")}`);
    const more = count(Math.max(0, run.end - run.epochs), "epoch");
    if (known.competing) rest.push("compared with the others after some epochs: the better ones go on");
    else rest.push(`ends after epoch ${run.end.toLocaleString("en")} unless validation improves: ${more} left`);
    if (known.left !== null) rest.push(`about ${clock(known.left)} left in all`);
  }
  tell(byId("rest"), rest.join(" · "));
}

function nextStep(state) {
  if (!known?.folder) return "";
  return {
    finished: `In ${known.folder}. Next: sta evaluate, sta report or sta explore ${known.folder}`,
    stopped: `Go on with: sta train --resume --out ${known.folder}`,
    gone: `The curves stay here. If it was stopped, go on with: sta train --resume --out ${known.folder}`,
  }[state] ?? `Into ${known.folder}`;
}

// One thing a minute, and what has ended, for those who listen.
function announce(state) {
  const done = ended();
  const news = [];
  if (done.length > last.ended && last.state) {
    const run = done.at(-1);
    news.push(`${run.name} has ended, ${done.length} of ${known.total}: test ${scored(run.test)}.`);
  }
  if (state !== last.state) news.push(`${STATES[state]}.`);
  const run = shown().at(-1);
  if (!news.length && state === "training" && run?.best && Date.now() - saidAt > SAY_EVERY) {
    news.push(`${run.name}, epoch ${run.epochs}, best validation ${scored(run.best.val)} at epoch ${run.best.epoch}.`);
  }
  last = { state, ended: done.length };
  if (!news.length) return;
  saidAt = Date.now();
  tell(byId("said"), news.join(" "));
}

// ------------------------------------------------------------------------------------ tables

function row(curve, cells) {
  const pick = el("button", { type: "button", "aria-pressed": String(current() === curve) }, curve.name);
  pick.addEventListener("click", () => {
    picked = picked === curve.name ? null : curve.name;
    show();
  });
  const head = el("th", { scope: "row" }, curve.rows.length && shown().includes(curve) ? pick : curve.name);
  return el("tr", { class: current() === curve ? "chosen" : undefined }, head, ...cells);
}

// A table is made anew only where a number has changed: what is in focus stays.
function fill(id, titles, rows) {
  const mark = JSON.stringify([titles, picked, rows.map(({ curve, cells }) => [curve.name, current() === curve, cells])]);
  if (byId(`${id}-body`).dataset.mark === mark) return;
  const focused = [...byId(`${id}-body`).querySelectorAll("button")].indexOf(document.activeElement);
  byId(`${id}-body`).dataset.mark = mark;
  const head = titles.map((title) => el("th", { scope: "col", class: title ? undefined : "words" }, title));
  byId(`${id}-head`).replaceChildren(el("tr", {}, ...head));
  byId(`${id}-body`).replaceChildren(
    ...rows.map(({ curve, cells }) =>
      row(curve, cells.map((cell, at) => el("td", titles[at + 1] ? {} : { class: "words" }, cell)))),
  );
  if (focused >= 0) byId(`${id}-body`).querySelectorAll("button")[focused]?.focus();
}

const bestCells = (curve) => [
  curve.trained ? curve.trained.toLocaleString("en") : "",
  curve.best ? curve.best.epoch.toLocaleString("en") : "",
  curve.best ? score(curve.best.val) : "",
];

function showRuns() {
  byId("runs").hidden = !known.runs.length;
  const unit = known.metric.unit ? ` (${known.metric.unit})` : "";
  fill("runs", ["run", "epochs", "best epoch", `val${unit}`, `test${unit}`, "time"],
    known.runs.map((curve) => ({
      curve,
      cells: [...bestCells(curve), score(curve.test), curve.seconds === null ? "" : clock(curve.seconds)],
    })));
  const tests = ended().map((run) => run.test);
  const mean = tests.reduce((a, b) => a + b, 0) / tests.length;
  const spread = Math.sqrt(tests.reduce((sum, one) => sum + (one - mean) ** 2, 0) / (tests.length - 1));
  const runs = tests.length < known.total ? `the ${count(tests.length, "run")} that have ended` : count(tests.length, "run");
  tell(byId("mean"), tests.length > 1
    ? `Test ${known.metric.label.replace(/ \(.*/, "")}, mean of ${runs}: ${score(mean)} ± ${scored(spread)}` : "");
}

function showModels() {
  byId("models").hidden = !known.models.length;
  tell(byId("models-title"), known.competing ? "Models that compete" : "Models that competed");
  const unit = known.metric.unit ? ` (${known.metric.unit})` : "";
  fill("models", ["model", "epochs", "best epoch", `val${unit}`, ""],
    known.models.map((curve) => ({
      curve, cells: [...bestCells(curve), curve.words + (curve.out && ` (${curve.out})`)],
    })));
}

// ------------------------------------------------------------------------------------ charts

const current = () => chosen(known, shown(), picked);

function drawCharts() {
  if (!known?.graph || byId("charts").hidden) return;
  tell(byId("score-title"), known.metric.label[0].toUpperCase() + known.metric.label.slice(1));
  const curves = shown().filter((curve) => curve.rows.length);
  const now = current();
  const mean = known.competing ? null : meanOf(curves);
  const end = curves.reduce((most, curve) => Math.max(most, curve.epochs), 1);
  if (cursor !== null) cursor = Math.min(cursor, end);
  const best = now?.best && now.rows.length
    ? { at: [now.best.epoch, known.metric.scale * now.best.val], text: `best: ${scored(now.best.val)}, epoch ${now.best.epoch}` }
    : null;
  const said = cursor === null ? "" : readoutOf(now, mean);
  const common = { last: end, cursor, spoken: said && `: ${said}` };
  const dots = (columns) => dotsOf(curves, now, cursor, columns, known);
  charts.score.draw({
    ...common, best, dots: dots(["val", "train"]), lines: linesOf(curves, now, mean, ["train", "val"], known),
  });
  charts.loss.draw({ ...common, dots: dots(["loss"]), lines: linesOf(curves, now, mean, ["loss"], known) });
  tell(byId("readout"), cursor === null ? "" : `Epoch ${cursor.toLocaleString("en")}: ${said}`);
  showLegend(legendOf(curves, now, mean, known));
}

function readoutOf(now, mean) {
  const parts = [];
  const told = (row, name) =>
    `${name}: val ${scored(row[3])}, train ${scored(row[2])}, loss ${Number(row[1].toPrecision(4))}`;
  const own = now && valueAt(now.rows, cursor);
  if (own) parts.push(told(own, now.name));
  const all = mean && valueAt(mean, cursor);
  if (all) parts.push(told(all, "mean"));
  return parts.join(" · ");
}

function showLegend(items) {
  const mark = JSON.stringify(items);
  if (byId("legend").dataset.mark === mark) return;
  byId("legend").dataset.mark = mark;
  byId("legend").replaceChildren(...items.map(({ kind, text }) => {
    const sample = svg("svg", { "aria-hidden": "true", viewBox: "0 0 26 12" });
    if (kind === "best") sample.append(svg("circle", { class: "dot best", cx: 13, cy: 6, r: 4.5 }));
    else sample.append(svg("path", { class: `line ${kind}`, d: "M1,6L25,6" }));
    return el("li", {}, sample, text);
  }));
}

new ResizeObserver(drawCharts).observe(byId("score"));
ask();
