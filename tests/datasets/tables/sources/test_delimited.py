"""Text in any usual encoding, packing, line end and delimiter is the same table."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from subtree_attention import from_tables
from subtree_attention.datasets import TableError
from subtree_attention.datasets.tables.read import read_table

TEXT = "id,name,note\na,Köln,x\n\nb,日本一,y\n"
FRAME = {"id": ["a", "b"], "name": ["Köln", "日本一"], "note": ["x", "y"]}
Write = Callable[[str, str | bytes], Path]


def zst(text: bytes) -> bytes:
    """Two frames one behind the other, as a parallel packer writes them."""
    return zstandard.compress(text[:20]) + zstandard.compress(text[20:])


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("suffix", ["", ".gz", ".zst"])
def test_a_text_is_read_however_it_is_written(
    encoding: str, end: str, suffix: str, write: Write
) -> None:
    pack = {"": bytes, ".gz": gzip.compress, ".zst": zst}[suffix]
    path = write(f"nodes.csv{suffix}", pack(TEXT.replace("\n", end).encode(encoding)))
    table = read_table(path, "nodes")
    assert table.frame.to_dict(as_series=False) == FRAME
    assert table.place(1) == f"{path}, line 4"


@pytest.mark.parametrize("sign", [",", ";", "\t", "|"])
def test_the_delimiter_is_what_the_first_line_has(sign: str, write: Write) -> None:
    table = read_table(write("nodes.tsv", TEXT.replace(",", sign)), "nodes")
    assert table.frame.to_dict(as_series=False) == FRAME


def test_a_delimiter_within_quotes_is_none(write: Write) -> None:
    table = read_table(write("nodes.csv", 'id,"a|b|c"\n1,2\n'), "nodes")
    assert table.frame.to_dict(as_series=False) == {"id": ["1"], "a|b|c": ["2"]}


def test_a_line_break_within_quotes_is_none_of_the_table(write: Write) -> None:
    path = write("nodes.csv", 'id,text\ra,"one\rtwo"\rb,three\r')
    table = read_table(path, "nodes")
    assert table.frame["text"].to_list() == ["one\rtwo", "three"]
    assert table.place(1) == f"{path}, line 4"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("n.csv.gz", b"hello", "n.csv.gz is no whole gzip file: Not a gzipped file"),
        (
            "n.csv.gz",
            gzip.compress(TEXT.encode() * 99, mtime=0)[:-9],
            "no whole gzip file: .*ended",
        ),
        ("n.csv.zst", b"hello", "n.csv.zst is no whole Zstandard file: "),
        ("n.csv.zst", zst(TEXT.encode() * 99)[:-9], "no whole Zstandard file: it is cut off"),
        ("n.csv", TEXT.encode("utf-16") + b"x", "n.csv is neither UTF-8 nor UTF-16: no text"),
        ("n.csv", "id\nKöln\n".encode("latin1"), "line 2: not UTF-8; .*: iconv .* .*n.csv > utf8"),
        (
            "n.csv.gz",
            gzip.compress("id\nKöln\n".encode("latin1"), mtime=0),
            r"line 2: not UTF-8; .*: zcat .*n.csv.gz \| iconv",
        ),
        (
            "n.csv.zst",
            zstandard.compress(b"id,a\nx,1,2\n"),
            "n.csv.zst, line 2: 3 values, but the first line names 2",
        ),
    ],
)
def test_what_is_broken_is_said(name: str, content: bytes, message: str, write: Write) -> None:
    with pytest.raises(TableError, match=message):
        read_table(write(name, content), "nodes")


def test_without_zstandard_the_reason_is_said(
    write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "zstandard", None)
    with pytest.raises(ImportError, match=r"n\.csv\.zst needs zstandard: pip install zstandard"):
        read_table(write("n.csv.zst", zst(TEXT.encode())), "nodes")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("n.sav", "files '.sav' are not read"),
        ("n", "files without a suffix are not read"),
        ("n.xls", "save it as .xlsx"),
        ("n.csv.zip", "unpack it first"),
        ("n.parquet.gz", "files '.parquet.gz' are not read"),
        ("n.pkl", "a pickle may run code"),
    ],
)
def test_other_files_are_refused_by_name(name: str, hint: str, write: Write) -> None:
    with pytest.raises(TableError, match=rf"{name}: .*{hint}.* Read are CSV .*Parquet .*Excel"):
        read_table(write(name, "id\na\n"), "nodes")


def test_a_graph_from_packed_and_wide_text(write: Write) -> None:
    nodes = write(
        "n.csv.gz", gzip.compress("id|age|label\ra|1|x\rb|2|y\r c|3|x\r".encode("utf-16"), mtime=0)
    )
    edges = write("e.tsv.zst", zstandard.compress(b"source\ttarget\r\na\tb\r\nb\tc\r\n"))
    data = from_tables(nodes, edges, target="label")
    assert data.ids == ["a", "b", "c"]
    assert data.num_edges == 4
    assert data.source == str(nodes)
