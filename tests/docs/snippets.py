"""Snippets of Markdown files, and what is done with the commands in them."""

import re
import shlex
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import typer

from experiments.cli import app as experiments
from experiments.field import command as field
from experiments.reproduce.command import WHATS
from subtree_attention import datasets
from subtree_attention.cli.app import app
from subtree_attention.datasets.registry import is_ogb

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path.relative_to(ROOT).as_posix()
    for pattern in ("*.md", "docs/*.md", "src/**/*.md", "experiments/*.md", "results/**/*.md")
    for path in ROOT.glob(pattern)
)
PARSED = re.compile(r"<!-- parsed, not run: .+ -->")
PRINTED = "<!-- printed above -->"
SHAPE = re.compile(r"^(\w+) = .*# \[([\d, ]+)\]", flags=re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, the line it starts at, and the line above it."""

    language: str
    text: str
    line: int
    above: str

    @property
    def parsed_only(self) -> bool:
        return PARSED.fullmatch(self.above) is not None


def blocks(text: str) -> list[Block]:
    """All blocks of a file; one that no rule could cover is an error."""
    found, lines, number = [], text.splitlines(), 0
    while number < len(lines):
        start, line = number, lines[number]
        above = lines[number - 1] if number else ""
        number += 1
        if line.startswith("    ") and not above.strip():
            raise ValueError(f"line {start + 1}: an indented block has no language, use a fence")
        if not line.lstrip().startswith("```"):
            continue
        while number < len(lines) and lines[number].strip() != "```":
            number += 1
        if number == len(lines):
            raise ValueError(f"line {start + 1}: a fence is not closed")
        body = "\n".join(lines[start + 1 : number])
        found.append(Block(line.strip().removeprefix("```"), body, start + 1, above))
        number += 1
    return found


def commands(block: Block) -> Iterator[list[str]]:
    """The words of each command of a shell block, without comments; `sta` where torchrun starts
    that."""
    for line in block.text.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["torchrun"] and STA in words:
            words = ["sta", *words[words.index(STA) + 1 :]]
        if words:
            yield words


def shapes(block: Block) -> dict[str, tuple[int, ...]]:
    """name = ...  # [34, 4]"""
    return {name: tuple(map(int, sizes.split(","))) for name, sizes in SHAPE.findall(block.text)}


STA = "subtree_attention"
EXPERIMENTS = ["python", "-m", "experiments"]


def parse(words: list[str]) -> None:
    """Hold `sta ...` or `python -m experiments ...` against the command line and its names; an
    error says what does not fit."""
    ours, words = (app, words[1:]) if words[0] == "sta" else (experiments, words[3:])
    group = typer.main.get_command(ours)
    with group.make_context("command", words) as context:
        name, command, rest = group.resolve_command(context, words)  # type: ignore[attr-defined]
        with command.make_context(name, [*rest], parent=context) as inner:
            given = inner.params
    if name == "field":
        _parse_field(rest)
    graphs = given.get("graphs") or given.get("graph") or []
    for graph in [graphs] if isinstance(graphs, str) else graphs:
        if not is_ogb(graph):
            datasets.info(graph)
    if name == "reproduce" and given["what"] not in WHATS:
        raise ValueError(f"there is no experiment {given['what']}")


def _parse_field(words: list[str]) -> None:
    """As `parse`, of a command that has a parser of its own."""
    try:
        asked = field.parser().parse_args(words)
    except SystemExit:
        raise ValueError(f"{' '.join(words)} does not fit") from None
    if asked.table != "all" and asked.table not in field.TABLES:
        raise ValueError(f"there is no table {asked.table}")


def check(words: list[str]) -> None:
    """A command that is not ours: what it names must be here."""
    if words[0] == "make" and len(words) == 2:
        named = re.findall(r"^(\w+):", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
        problem = words[1] not in named
    elif words[:2] == ["pip", "install"] and len(words) == 3:
        found = re.fullmatch(r"(?:\.|subtree-attention)(?:\[([\w,]+)\])?", words[2])
        extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
        known = extras["optional-dependencies"]
        problem = found is None or not set((found[1] or "cpu").split(",")) <= known.keys()
    elif words[:2] == ["python", "-m"] and (file := _file_of(words[2])).is_file():
        text = file.read_text() + _file_of("experiments.benchmarks.script").read_text()
        options = [word.removeprefix("--") for word in words[3:] if word.startswith("--")]
        problem = not all(re.search(rf'"--{name}"|\b{name}=', text) for name in options)
    else:
        raise ValueError(f"no rule covers the command: {shlex.join(words)}")
    if problem:
        raise ValueError(f"this does not fit the repository: {shlex.join(words)}")


def _file_of(module: str) -> Path:
    return ROOT / (module.replace(".", "/") + ".py")


def plain(text: str) -> str:
    """Printed text as words: without frames of tables and runs of spaces."""
    return " ".join(re.sub(r"[│┃|]", " ", text).split())
