"""The table of the nodes as it was written, to be shown and searched; and pictures: see `told`."""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

from .. import pictures
from ..told import STAND_IN, Pictures, Texts, Told
from . import lists, ranks
from .lazy import pl
from .spool import Spool
from .table import Table, TableError, text_of
from .values import between_of, cells_of, find_between, is_text, vectors_of

MOST = 2**28
"""Bytes of all columns together: a million nodes with ten columns of twenty letters."""
LOOKED_AT = 4 * MOST
"""Bytes of a column in files, of which a cell may be longer than what is kept of it."""
COLUMNS = 200
CELL = 2_000
"""Characters of a cell."""
LISTED = 16
"""Entries of a list."""
NAMES = ("name", "title", "full_name", "fullname", "display_name", "displayname", "label")
"""Columns that say what nodes are called, in any case; the first of them that there is."""
DIFFERENT = 0.5
"""At least this share of the nodes must have a name of its own, or it names kinds of nodes."""
LONG = 200
"""Letters that a name has at most: what is longer is a text."""
NO_NAME = "none"


class Shown(NamedTuple):
    """How nodes are to be shown.

    Attributes:
        name: the column of the names; None: found by what it is called, `NO_NAME`: none.
        picture: that of the pictures: paths, or rows of pixels, with their size behind it if they
            are no square, as 'scan:8x12'.
        folder: where such paths begin.
    """

    name: str | None = None
    picture: str | None = None
    folder: Path = Path()


def folder_of(nodes: Any) -> Path:
    """The folder of a table, from which on it names pictures."""
    if not isinstance(nodes, str | Path):
        return Path()
    path = Path(nodes)
    while re.search(r"[*?\[]", str(path)):  # a pattern of parts
        path = path.parent
    return path if path.is_dir() else path.parent


def tell(
    table: Table, id: str, shown: Shown, taken: Collection[str] = ()
) -> tuple[Told | None, list[str]]:
    """What a table of nodes says, and notes on it; nothing where several ranks read it.

    Args:
        table: of the nodes.
        id: the column of the ids, which a graph has already.
        shown: what is asked for.
        taken: columns that are no names, unless one is asked for.
    """
    name = shown.name
    if ranks.are_there():
        return None, []
    kinds = table.frame.schema
    columns = [column for column in kinds if column != id and kinds[column] != pl.Binary]
    if name is not None and name != NO_NAME:
        table.check(name, "--name")
    if name is None:
        name = _find_name(table, [column for column in columns if column not in taken])
    kept, room = dict[str, Texts](), MOST
    for column in sorted(columns, key=lambda column: column != name)[:COLUMNS]:
        if _is_large(table, column):
            continue
        texts = _written(table, column)
        size = int(texts.str.len_bytes().sum()) + len(texts)
        if size <= room:
            kept[column], room = _packed(texts), room - size
    name = name if name in kept else None
    notes = [] if name is None else [f"nodes are shown by their '{name}' (--name)"]
    notes += _left([column for column in columns if column not in kept])
    drawn = None
    if shown.picture is not None:
        drawn, more = _pictures(table, shown.picture, shown.folder)
        notes += more
    return Told({column: kept[column] for column in columns if column in kept}, name, drawn), notes


def _left(columns: list[str]) -> list[str]:
    """That columns are not kept, if so."""
    if not columns:
        return []
    words = ", ".join(f"'{column}'" for column in columns[:3])
    more = f" and {len(columns) - 3:,} more" if len(columns) > 3 else ""
    return [
        f"not kept as they are written, so neither shown nor searched: {words}{more} (at most "
        f"{COLUMNS} columns with {MOST / 2**20:.0f} MiB in all are)"
    ]


def _is_large(table: Table, column: str) -> bool:
    """Whether a column is too large even to be looked at: one of a table that is in files. Lists
    are read in parts."""
    frame = table.frame
    if not isinstance(frame, Spool) or frame.schema[column].is_nested():
        return False
    return frame.size_of(column) > LOOKED_AT


def _written(table: Table, column: str) -> pl.Series:
    """A column as it was written, "" where nothing stands."""
    frame = table.frame
    if isinstance(frame, Spool) and frame.schema[column].is_nested():
        return pl.concat(map(_texts, frame.parts(column)))
    return _texts(frame[column])


def _find_name(table: Table, columns: list[str]) -> str | None:
    """The column that says what nodes are called, by its own name and by what it holds."""
    by_name = {column.casefold().replace(" ", "_"): column for column in reversed(columns)}
    for column in filter(None, map(by_name.get, NAMES)):
        if table.frame.schema[column] != pl.String or _is_large(table, column):
            continue
        values = table.frame[column]
        different = values.drop_nulls().n_unique() >= DIFFERENT * len(values)
        if different and not (values.str.len_chars() > LONG).any():
            return column
    return None


def _texts(values: pl.Series) -> pl.Series:
    """Values as they were written."""
    kind = values.dtype
    if kind.is_nested():
        texts = _as_json(values)
    elif kind.is_temporal():
        texts = text_of(values).str.replace(r"\.0+$", "")  # polars writes all microseconds
    elif kind.is_float() and ((values == values.floor()) & (values.abs() < 2**53)).all():
        texts = values.cast(pl.Int64).cast(pl.String)  # pandas has 7.0 for 7, beside a gap
    else:
        texts = text_of(values)
    texts = texts.fill_null("")
    if not (texts.str.len_bytes() > CELL).any():
        return texts
    cut = texts.str.slice(0, CELL - 1) + "…"
    return cut.zip_with(texts.str.len_chars() > CELL, texts)


def _as_json(values: pl.Series) -> pl.Series:
    """Lists and records as JSON; of long lists the first entries."""
    if isinstance(values.dtype, pl.Array):
        values = values.arr.to_list()
    written = values.is_not_null()
    more = pl.repeat("", len(values), eager=True)
    if isinstance(values.dtype, pl.List):
        more = more.set((values.list.len() > LISTED).fill_null(False), "…")
        values = values.list.head(LISTED)
    whole = pl.DataFrame({"v": values}).to_struct().struct.json_encode()
    return (whole.str.slice(len('{"v":')).str.head(-1) + more).set(~written, None)


def _packed(texts: pl.Series) -> Texts:
    """Texts in one piece; a zero in one is shown as what cannot be shown."""
    if texts.str.contains("\0", literal=True).any():
        texts = texts.str.replace_all("\0", STAND_IN, literal=True)
    return Texts.joined(texts.str.join("\0").item())


# ------------------------------------------------------------------------------------- pictures


def picture_column(table: Table, picture: str) -> tuple[str, tuple[int, int] | None]:
    """The column of the pictures, and how high and wide they are, if that is said."""
    column, mark, size = picture.rpartition(":")
    sides = re.fullmatch(r"(\d{1,4})x(\d{1,4})", size)
    if picture in table.frame.columns or not mark or sides is None:
        table.check(picture, "--picture")
        return picture, None
    table.check(column, "--picture")
    return column, (int(sides[1]), int(sides[2]))


def holds_paths(table: Table, column: str) -> bool:
    """Whether the pictures of a column are files."""
    kind = table.frame.schema[column]
    if kind.is_nested() or not is_text(values := table.frame[column]):
        return False
    return not lists.are_numbers(cells_of(values).drop_nulls(), find_between(values))


def _pictures(table: Table, picture: str, folder: Path) -> tuple[Pictures, list[str]]:
    column, sides = picture_column(table, picture)
    what = f"{table.name}: column '{column}' (--picture)"
    if holds_paths(table, column):
        if sides is not None:
            raise TableError(f"{what} holds paths of pictures: leave out ':{sides[0]}x{sides[1]}'")
        try:
            return pictures.from_files(cells_of(table.frame[column]).to_list(), folder, what)
        except ValueError as error:
            raise TableError(str(error)) from None
    vectors, missing = vectors_of(table, column, between_of(table, column))
    width = vectors.shape[1]
    side = round(width**0.5)
    sides = (side, side) if sides is None else sides
    if sides[0] * sides[1] != width or not width:
        raise TableError(
            f"{what} holds rows of {width} pixels, which are not {sides[0]} x {sides[1]}: say how "
            f"high and wide they are, as --picture {column}:8x12"
        )
    return pictures.from_pixels(vectors.reshape(-1, *sides), ~missing)
