// The address of a view: #/node/ID?hops=3&head=all&by=attention&class=NAME&open=2:60, or #/ for the start.

const OPTIONS = ["hops", "head", "by", "class", "open"];

export function parse(hash) {
  const found = /^#\/node\/([^?]*)(?:\?(.*))?$/.exec(hash);
  if (!found) return { id: null, options: {} };
  const given = new URLSearchParams(found[2] ?? "");
  const pairs = [...given].filter(([name]) => OPTIONS.includes(name));
  return { id: decoded(found[1]), options: Object.fromEntries(pairs) };
}

export function format(id, options) {
  const given = new URLSearchParams();
  for (const name of OPTIONS) if (options[name]) given.set(name, options[name]);
  return `#/node/${encodeURIComponent(id)}${given.size ? `?${given}` : ""}`;
}

function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text; // a stray % that somebody typed
  }
}
