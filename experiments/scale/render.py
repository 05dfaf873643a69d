"""The tables of docs/scale.md, from results/scale.json and results/scale-halo.json alone."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from experiments.field.render import place_between
from experiments.scale.fit import ALLOWED
from experiments.scale.machines import DEVICES, GB, LINKS
from experiments.scale.plan import FAMILIES, HALO
from experiments.scale.published import PUBLISHED
from subtree_attention.io import read_json

DOCS = Path("docs/scale.md")
RESULTS = Path("results")
SCALE = "scale.json"
SHOWN = "H200"
WORDS = {
    "memory": "memory",
    "link": "link",
    "replicated": "dense work that all ranks do",
    "columns": "more ranks than columns",
    "": "",
}


def render(results: Path = RESULTS, page: Path = DOCS) -> Path:
    """Write the tables between their marks."""
    found, halos = read_json(results / SCALE), read_json(results / HALO)
    texts = {
        "speeds": speeds(found),
        "checks": checked(found),
        "machines": machines(),
        "halo": partitions(halos["partitions"]),
        "cuts": cuts(found["cuts"]),
        "published": published(),
    }
    for graph in dict.fromkeys(row["graph"] for row in found["needs"]):
        texts[f"needs {graph}"] = needed(found["needs"], graph)
    texts["machines compared"] = compared(found["needs"])
    for name, text in texts.items():
        if not place_between(page, f"scale {name}", text):
            raise ValueError(f"{page} has no mark for 'scale {name}'")
    return page


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def speeds(found: dict[str, Any]) -> str:
    gpu, cpu = found["speeds"], found["cpu"]
    tera = [f"{gpu[name] / 1e12:.2f} TB/s" for name in ("memory", "cached", "factors", "copy")]
    rows = [
        ("states gathered from memory", tera[0], f"{cpu['memory'] / GB:.1f} GB/s"),
        ("states gathered from the cache", tera[1], f"{cpu['cached'] / GB:.1f} GB/s"),
        ("factors gathered (first hops)", tera[2], "-"),
        ("states written once (a copy, measured)", tera[3], "-"),
        ("a hop at the least", f"{gpu['launch'] * 1e6:.1f} µs", "-"),
        ("the cache", f"{gpu['cache'] / 1e6:.0f} MB (its maker's)", f"{cpu['cache'] / 1e6:.1f} MB"),
    ]
    return table(("", "H200", "one core"), rows)


def checked(found: dict[str, Any]) -> str:
    rows = []
    for words, chosen in (
        ("GPU, seconds, fitted", _of(found, "seconds", fitted=True)),
        ("GPU, seconds, states beyond the cache", _of(found, "seconds", large=True)),
        ("GPU, bytes, states beyond the cache", _of(found, "bytes", large=True)),
        ("GPU, seconds, states within the cache", _of(found, "seconds", large=False)),
        ("GPU, bytes, states within the cache", _of(found, "bytes", large=False)),
        ("CPU, seconds of a hop, fitted", _of(found, "seconds", fitted=True, cpu=True)),
        ("CPU, seconds, states beyond 100 MB", _of(found, "seconds", large=True, cpu=True)),
        ("CPU, seconds, smaller states", _of(found, "seconds", large=False, cpu=True)),
    ):
        off = sorted(chosen, key=lambda check: abs(check["ratio"] - 1))
        ratios = [check["ratio"] for check in chosen]
        within = sum(abs(ratio - 1) <= ALLOWED for ratio in ratios)
        rows.append(
            (
                words,
                f"{within} of {len(ratios)}",
                f"{min(ratios):.2f} to {max(ratios):.2f}",
                f"{off[-1]['what']}: {off[-1]['ratio']:.2f}",
            )
        )
    return table(("", "within 25 %", "formula over measured", "furthest off"), rows)


def _of(
    found: dict[str, Any],
    kind: str,
    fitted: bool = False,
    large: bool | None = None,
    cpu: bool = False,
) -> list[dict[str, Any]]:
    return [
        check
        for check in found["checks"]
        if check["kind"] == kind
        and check["fitted"] == fitted
        and (large is None or check["large"] == large)
        and check["file"].startswith("hops-cpu") == cpu
    ]


def machines() -> str:
    devices = [
        (d.name, f"{d.memory / GB:.0f} GB", f"{d.bandwidth / 1e12:.2f} TB/s", d.source)
        for d in DEVICES.values()
    ]
    links = [
        (link.name, "", f"{link.bandwidth / GB:.0f} GB/s", link.source) for link in LINKS.values()
    ]
    return table(("", "memory", "bandwidth, one direction", "by"), [*devices, *links])


def partitions(records: list[dict[str, Any]]) -> str:
    """The largest graph of each family and method, with 8 and 64 parts."""
    rows = []
    for family, method in dict.fromkeys((r["family"], r["method"]) for r in records):
        here = [r for r in records if (r["family"], r["method"]) == (family, method)]
        size = max(record["nodes"] for record in here)
        by_parts = {r["parts"]: r for r in here if r["nodes"] == size}
        cells = [family, f"{size:,}", method]
        for parts in (8, 64):
            found = by_parts.get(parts)
            cells += (
                ["-", "-", "-"]
                if found is None
                else [f"{found['cut']:.0%}", f"{found['halo']:.2f}", f"{found['rule']:.2f}"]
            )
        rows.append(cells)
    head = ["graph", "nodes", "by", "cut, 8 parts", "halo", "rule", "cut, 64 parts", "halo", "rule"]
    return table(head, rows)


def cuts(found: list[dict[str, Any]]) -> str:
    rows = [
        (c["graph"], c["family"], str(c["parts"]), f"{c['halo']:.2f}", f"{c['inner']:.0%}")
        for c in found
    ]
    return table(("graph", "cut like", "parts", "halo rows over N", "rows without any"), rows)


def needed(rows: list[dict[str, Any]], graph: str) -> str:
    """A row for a model, a number of devices and a way."""
    first, second = FAMILIES
    lines = []
    for row in rows:
        if row["graph"] != graph or row["machine"] != SHOWN or row["family"] != first:
            continue
        like = ("machine", "graph", "model", "devices", "way")
        hard = next(
            r for r in rows if r["family"] == second and all(r[name] == row[name] for name in like)
        )
        lines.append(
            (
                row["model"].partition(",")[0].partition(":")[0],
                str(row["devices"]),
                row["way"],
                _gigabytes(row["bytes"]),
                _seconds(row) + _other(row, hard),
                _parts_of(row),
                _gigabytes(row["sent"]) if row["fits"] else "",
                row["note"] if row["fits"] or row["limit"] == "columns" else "",
                WORDS[row["limit"]],
            )
        )
    head = (
        "model",
        "GPUs",
        "way",
        "GB each",
        "seconds a step",
        "hops / link / dense",
        "GB sent each",
    )
    return table((*head, "how", "what stops it"), lines)


def _other(row: dict[str, Any], hard: dict[str, Any]) -> str:
    if not row["fits"] or row["seconds"] == hard["seconds"]:
        return ""
    return f" (mixed: {_seconds(hard)})"


def _seconds(row: dict[str, Any]) -> str:
    return _number(row["seconds"]) if row["fits"] else "does not fit"


def _parts_of(row: dict[str, Any]) -> str:
    if not row["fits"]:
        return ""
    return " / ".join(_number(row[name]) for name in ("walk", "link", "dense"))


def _gigabytes(value: float | None) -> str:
    return "-" if value is None or value == 0 else f"{value / GB:,.0f}"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}" if value >= 20 else f"{value:.2g}"


def compared(rows: list[dict[str, Any]]) -> str:
    """The soonest way that fits, on each machine."""
    lines = []
    names = list(dict.fromkeys(row["machine"] for row in rows))
    keys = dict.fromkeys((row["graph"], row["model"], row["devices"]) for row in rows)
    for graph, model, devices in keys:
        cells = []
        for name in names:
            here = [
                row
                for row in rows
                if (row["machine"], row["graph"], row["model"], row["devices"], row["family"])
                == (name, graph, model, devices, FAMILIES[0])
                and row["fits"]
            ]
            best = min(here, key=lambda row: row["seconds"], default=None)
            cells.append(
                "nothing fits" if best is None else f"{_number(best['seconds'])} s, {best['way']}"
            )
        lines.append((graph, model.partition(",")[0].partition(":")[0], str(devices), *cells))
    return table(("graph", "model", "GPUs", *names), lines)


def published() -> str:
    return table(("system, as published", "what", "on", "reported"), PUBLISHED)
