// The address of a view: #/node/ID?hops=3&head=all&by=attention&class=NAME&rather=NAME&open=2:60 and any
// number of changes, without=node:ID, without=edge:ID>ID, without=word:COLUMN:WORD, set=column:NAME=VALUE;
// or of the start:
// #/?split=test&colour=predicted&true=NAME&predicted=NAME&mistakes=only&by=tsne&lasso=X,Y,...&at=X,Y,Z

const OPTIONS = ["hops", "head", "by", "class", "rather", "open"];
const CHANGES = ["without", "set"];

export function parse(hash) {
  const found = /^#\/node\/([^?]*)(?:\?(.*))?$/.exec(hash);
  if (!found) return { id: null, options: {} };
  const given = new URLSearchParams(found[2] ?? "");
  const options = Object.fromEntries([...given].filter(([name]) => OPTIONS.includes(name)));
  const changes = [...given].filter(([name]) => CHANGES.includes(name)).map(([name, text]) =>
    (name === "set" && !text.startsWith("column:") ? `column:${text}` : text)); // as on the command line
  return { id: decoded(found[1]), options: changes.length ? { ...options, changes } : options };
}

// Options and changes as parameters, of an address or for the server.
export function parameters(options) {
  const given = new URLSearchParams();
  for (const name of OPTIONS) if (options[name]) given.set(name, options[name]);
  for (const text of options.changes ?? []) given.append(text.startsWith("column:") ? "set" : "without", text);
  return given;
}

export function format(id, options) {
  const given = parameters(options);
  return `#/node/${encodeURIComponent(id)}${given.size ? `?${given}` : ""}`;
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a stray % that somebody typed
  }
}

// ---------------------------------------------------------------------------------- of the start

const numbers = (text) => text.split(",").map(Number);
const pairs = (flat) => flat.flatMap((x, i) => (i % 2 ? [] : [[x, flat[i + 1]]]));
const round = (values) => values.flat().map((value) => Number(value.toFixed(3))).join();

// What is asked of the start, as far as it is anything: null where the page may choose.
export function parseStart(hash, graph) {
  const given = new URLSearchParams(/^#\/\?(.*)$/.exec(hash)?.[1] ?? "");
  const one = (name, allowed) => (allowed.includes(given.get(name)) ? given.get(name) : null);
  const classes = (name) => given.getAll(name).filter((cls) => graph.classes.includes(cls));
  const finite = (name, fits) => {
    const found = given.has(name) ? numbers(given.get(name)) : [];
    return fits(found.length) && found.every(Number.isFinite) ? found : null;
  };
  const lasso = finite("lasso", (length) => length >= 6 && length % 2 === 0);
  const at = finite("at", (length) => length === 3);
  return {
    split: one("split", graph.splits.map((split) => split.name)),
    colour: one("colour", ["predicted", "true"]),
    by: one("by", ["pca", "tsne"]),
    mistakes: one("mistakes", ["only"]),
    true: classes("true"), predicted: classes("predicted"),
    lasso: lasso && pairs(lasso),
    at: at && { x: at[0], y: at[1], zoom: at[2] },
  };
}

export function formatStart(options) {
  const given = new URLSearchParams();
  for (const name of ["split", "colour", "by", "mistakes"]) if (options[name]) given.set(name, options[name]);
  for (const name of ["true", "predicted"]) for (const cls of options[name] ?? []) given.append(name, cls);
  if (options.lasso) given.set("lasso", round(options.lasso));
  if (options.at) given.set("at", round([options.at.x, options.at.y, options.at.zoom]));
  return given.size ? `#/?${given}` : "#/";
}
