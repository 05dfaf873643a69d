"""A sheet of an Excel workbook, read by polars with fastexcel."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from ..lazy import pl
from ..table import Table, TableError, check_names, one_line, without_blanks


def read(path: Path, sheet: str = "") -> Table:
    """The sheet of that name, or the only one: its first row holds the names of the columns."""
    try:
        engine = import_module("fastexcel")
    except ModuleNotFoundError:
        raise ImportError(
            f'{path}: Excel needs fastexcel: pip install "subtree-attention[excel]"'
        ) from None
    try:
        sheets = engine.read_excel(path).sheet_names
    except Exception as error:  # its own kinds, of which some versions have others
        raise TableError(f"{path} is no Excel workbook: {one_line(error)}") from None
    listed = ", ".join(sheets)
    if not sheet and len(sheets) > 1:
        raise TableError(
            f"{path} has {len(sheets)} sheets: {listed}. Name one behind the path, as in "
            f"'{path}#{sheets[0]}'"
        )
    if sheet and sheet not in sheets:
        raise TableError(f"{path} has no sheet '{sheet}'. It has: {listed}")
    name = f"{path}#{sheet}" if sheet else str(path)
    names = _rows(path, sheet or sheets[0], has_header=False, read_options={"n_rows": 1})
    if not names.height:
        raise TableError(f"{name} is empty: the first row holds the names of the columns")
    header = ["" if cell is None else str(cell).strip() for cell in names.row(0)]
    check_names(f"{name}, row 1", header)
    frame = _rows(path, sheet or sheets[0], infer_schema_length=None)
    frame.columns = header
    frame, rows = without_blanks(frame)
    return Table(name, frame, rows, where=lambda row: f"{name}, row {row + 2}")


def _rows(path: Path, sheet: str, **how: Any) -> pl.DataFrame:
    """Rows as they stand, blank ones too: so that they can be counted."""
    try:
        return pl.read_excel(
            path,
            sheet_name=sheet,
            drop_empty_rows=False,
            drop_empty_cols=False,
            raise_if_empty=False,
            **how,
        )
    except Exception as error:
        raise TableError(f"{path}: sheet '{sheet}' cannot be read: {one_line(error)}") from None
