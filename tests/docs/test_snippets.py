"""Every snippet of the documentation runs, or is held against the command line where it says so."""

from collections.abc import Callable

import pytest

from tests.docs.snippets import (
    EXPERIMENTS,
    PAGES,
    PRINTED,
    ROOT,
    Block,
    blocks,
    check,
    commands,
    parse,
    plain,
    shapes,
)

Outcome = tuple[int, str, str]
TEXT = {"text", "math", "csv"}
"""Languages that nothing could run."""
PARSED_ONLY = {
    "docs/beyond.md": 3,
    "README.md": 27,
    "docs/explore.md": 1,
    "docs/large.md": 3,
    "docs/parallel.md": 3,
    "docs/performance.md": 3,
    "docs/pyg.md": 2,
    "docs/reproduction.md": 11,
    "docs/scale.md": 2,
    "docs/search.md": 3,
    "docs/serve.md": 2,
    "docs/tables.md": 4,
    "docs/watch.md": 3,
    "experiments/README.md": 3,
}
"""Commands of ours that are not run: how many, so that nobody adds one without a thought."""


class Reader:
    """Somebody who does what a page says, from top to bottom, in an empty folder."""

    def __init__(self, sta: Callable[..., Outcome]) -> None:
        self.sta, self.names, self.printed = sta, dict[str, object](), ""
        self.parsed = self.checked_shapes = 0

    def follow(self, block: Block) -> None:
        if block.language == "python":
            self.run_python(block)
        elif block.language == "bash":
            for words in commands(block):
                self.obey(words, block)
        elif block.language not in TEXT:
            raise ValueError(f"no rule covers a block of language '{block.language}'")
        elif block.above == PRINTED:
            for line in block.text.splitlines():
                assert plain(line) in plain(self.printed)

    def run_python(self, block: Block) -> None:
        exec(compile(block.text, f"line {block.line}", "exec"), self.names)
        for name, shape in shapes(block).items():
            assert tuple(self.names[name].shape) == shape, name  # type: ignore[attr-defined]
            self.checked_shapes += 1

    def obey(self, words: list[str], block: Block) -> None:
        if words[0] != "sta" and words[:3] != EXPERIMENTS:
            check(words)
        elif block.parsed_only:
            parse(words)
            self.parsed += 1
        else:
            code, out, err = self.sta(*words[1:])
            assert code == 0, err
            self.printed += out


@pytest.mark.parametrize("page", [page for page in PAGES if blocks((ROOT / page).read_text())])
def test_a_page_does_what_it_says(page: str, run_sta: Callable[..., Outcome]) -> None:
    reader = Reader(run_sta)
    for block in blocks((ROOT / page).read_text()):
        try:
            reader.follow(block)
        except BaseException as error:
            error.add_note(f"{page}, line {block.line}")
            raise
    assert reader.parsed == PARSED_ONLY.get(page, 0)
    if page == "README.md":
        assert reader.checked_shapes == 4
    if page == "docs/tutorial.md":  # an answer worth a tutorial; chance is a third
        assert reader.names["right"] >= 0.7 * len(reader.names["unknown"])  # type: ignore


# ----------------------------------------------------------------------------- the rules themselves


@pytest.mark.parametrize(
    "text",
    ["```\nx\n```", "```rust\nx\n```", "```bash\nrm -rf /tmp/x\n```", "```bash\nmake coffee\n```"],
)
def test_a_snippet_that_no_rule_covers_is_refused(
    text: str, run_sta: Callable[..., Outcome]
) -> None:
    [block] = blocks(text)
    with pytest.raises(ValueError, match=r"no rule covers|does not fit"):
        Reader(run_sta).follow(block)


@pytest.mark.parametrize(
    ("text", "message"), [("a\n\n    sta train", "fence"), ("```bash", "closed")]
)
def test_a_block_that_cannot_be_told_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        blocks(text)


@pytest.mark.parametrize(
    "line",
    [
        "sta trian cora",
        "sta train cora --hop 3",
        "sta train coraa",
        "python -m experiments reproduce table9",
        "python -m experiments bench --round 3",
        "sta report",
        "sta tune cora --runs many",
    ],
)
def test_a_wrong_command_is_not_parsed(line: str) -> None:
    with pytest.raises(Exception, match=r"(?i)no such|unknown|no experiment|missing|valid"):
        parse(line.split())


@pytest.mark.parametrize(
    "line",
    [
        'pip install "subtree-attention[nothing]"',
        "python -m experiments.benchmarks.table1 --nothing 3",
    ],
)
def test_a_command_that_names_what_is_not_there_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match="does not fit"):
        check(next(commands(Block("bash", line, 1, ""))))


def test_a_false_shape_and_a_false_print_are_found(run_sta: Callable[..., Outcome]) -> None:
    reader = Reader(run_sta)
    with pytest.raises(AssertionError):
        reader.follow(Block("python", "import torch\nx = torch.ones(2)  # [3]", 1, ""))
    reader.printed = "│ age │ number │"
    reader.follow(Block("text", "age  number", 1, PRINTED))
    with pytest.raises(AssertionError):
        reader.follow(Block("text", "age  category", 1, PRINTED))
