// What is drawn of some runs: the current one, their mean, and the others faint behind it.

const COLUMN = { loss: 1, train: 2, val: 3 };

// Rows may be thinned out: the one at an epoch, or the last one before it.
export function valueAt(rows, epoch) {
  let [low, high] = [0, rows.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rows[middle][0] <= epoch) low = middle + 1;
    else high = middle;
  }
  const found = rows[low - 1];
  return low === rows.length && found && found[0] < epoch ? undefined : found;
}

// The mean over runs, as far as every run that has ended has come, and at least two have.
export function meanOf(curves) {
  const done = curves.filter((curve) => curve.test !== null);
  if (done.length < 2) return null;
  const until = done.reduce((least, curve) => Math.min(least, curve.epochs), Infinity);
  const longest = done.reduce((one, other) => (other.rows.length > one.rows.length ? other : one));
  return longest.rows.filter((row) => row[0] <= until).map(([epoch]) => {
    const rows = done.map((curve) => valueAt(curve.rows, epoch)).filter(Boolean);
    return [epoch, ...[1, 2, 3].map((at) => rows.reduce((sum, row) => sum + row[at], 0) / rows.length)];
  });
}

// Whose curve stands out: the one that was picked, or that trains; when all is done, none but the mean.
export function chosen(known, curves, picked) {
  const own = curves.find((curve) => curve.name === picked);
  if (own) return own;
  const begun = curves.filter((curve) => curve.rows.length);
  const going = begun.filter((curve) => curve.test === null && !curve.out).at(-1);
  return going ?? (meanOf(begun) ? null : begun.find((curve) => curve.out === "won") ?? begun.at(-1) ?? null);
}

const scaled = (name, known) => (name === "loss" ? 1 : known.metric.scale);
const points = (rows, name, known) =>
  rows.map((row) => [row[0], scaled(name, known) * row[COLUMN[name]]]);

export function linesOf(curves, now, mean, names, known) {
  const lines = [];
  for (const name of names) {
    for (const curve of curves) {
      // Behind a mean, or another run, training scores of the others would only hide what counts.
      if (curve !== now && name !== "train") lines.push({ kind: `${name} faint`, points: points(curve.rows, name, known) });
    }
    if (mean && name !== "train") lines.push({ kind: "mean", points: points(mean, name, known) });
    else if (mean && !now) lines.push({ kind: name, points: points(mean, name, known) });
    if (now) lines.push({ kind: name, points: points(now.rows, name, known) });
  }
  return lines;
}

export function dotsOf(curves, now, cursor, names, known) {
  const dots = [];
  if (names.includes("val")) {
    for (const curve of curves) {
      if (curve !== now && curve.best && curve.test !== null) {
        dots.push({ at: [curve.best.epoch, known.metric.scale * curve.best.val], kind: "small of-val" });
      }
    }
  }
  const row = cursor === null || !now ? undefined : valueAt(now.rows, cursor);
  for (const name of row ? names : []) {
    dots.push({ at: [row[0], scaled(name, known) * row[COLUMN[name]]], kind: `of-${name}` });
  }
  return dots;
}

export function legendOf(curves, now, mean, known) {
  const items = [];
  if (now) {
    items.push({ kind: "val", text: `${now.name}: validation` }, { kind: "train", text: "training" });
    items.push({ kind: "best", text: "best epoch" });
  } else items.push({ kind: "train", text: "training, mean" });
  if (mean) items.push({ kind: "mean", text: now ? "mean of runs that have ended" : "validation, mean" });
  if (curves.length > 1) items.push({ kind: "val faint", text: known.competing ? "other models" : "each run" });
  return items;
}
