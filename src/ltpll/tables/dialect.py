"""Dialects: how text files are written: marks between columns and in numbers, formulas as text."""

from __future__ import annotations

import codecs
import csv
import io
import re
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from ltpll.errors import InputError

SAMPLE, SAMPLE_ROWS = 256 << 10, 1000  # bytes and rows that are looked at
DELIMITERS = (",", ";", "\t")
NO_TEXT = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, b"PAR1", b"PK\3\4", b"\x1f\x8b")
NUMBER = r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?"
# Numbers with a decimal comma, perhaps with points between thousands.
COMMA_NUMBER = r"[+-]?([0-9]{1,3}(\.[0-9]{3})+(,[0-9]+)?|[0-9]*,?[0-9]+([eE][+-]?[0-9]+)?)"
ANY_NUMBER = re.compile(f"{NUMBER}|{COMMA_NUMBER}")
THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2}[.,][0-9]{3}")  # or three decimals


class Dialect(NamedTuple):
    """How a text file is written.

    The decimal mark is "?" if numbers have commas that may as well separate thousands.
    """

    delimiter: str
    decimal: str = "."


def find_dialect(path: Path, usual: str) -> Dialect:
    """Recognise how a text file is written, by its header and first rows.

    Another delimiter than the usual one is taken only if it makes more columns of the header, and
    the same number of most rows.

    Examples:
        >>> _ = Path("german.csv").write_text("id;candidates;x\\na;cat|dog;1,5\\nb;fox;0,25\\n")
        >>> find_dialect(Path("german.csv"), ",")
        Dialect(delimiter=';', decimal=',')
    """
    with path.open("rb") as file:
        content = file.read(SAMPLE)
    if content.startswith(NO_TEXT):
        raise InputError(
            f"{path} is not text in UTF-8 but in UTF-16, Parquet, Excel or compressed: "
            "save it as UTF-8 text, or correct its suffix."
        )
    if len(content) == SAMPLE:  # the last row may go on
        content = content[: content.rfind(b"\n") + 1] or content
    text = content.decode("utf-8-sig", "replace")
    best, rows = usual, _first_rows(text, usual) or [[]]
    for mark in DELIMITERS:
        others = _first_rows(text, mark) or [[]]
        n = len(others[0])
        fits = 2 * sum(len(row) == n for row in others) > len(others)
        if n > max(1, len(rows[0])) and fits:
            best, rows = mark, others
    return Dialect(best, "." if best == "," else _decimal_mark(rows))


def _first_rows(text: str, delimiter: str) -> list[list[str]]:
    """The rows that are not blank, as far as they can be read."""
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    found: list[list[str]] = []
    with suppress(csv.Error):
        found.extend(row for row in islice(rows, SAMPLE_ROWS) if any(map(str.strip, row)))
    return found


def _decimal_mark(rows: list[list[str]]) -> str:
    """The decimal mark in the columns that mostly hold numbers."""
    marked: list[str] = []
    for cells in zip(*(row for row in rows[1:] if len(row) == len(rows[0])), strict=True):
        filled = [text for cell in cells if (text := cell.strip())]
        numbers = [text for text in filled if ANY_NUMBER.fullmatch(text)]
        if 2 * len(numbers) > len(filled):
            marked += [text for text in numbers if "," in text or "." in text]
    if not any("," in text for text in marked):
        return "."
    clear = {"," in text for text in marked if not THOUSANDS.fullmatch(text)}
    return "," if clear == {True} else "?"


# ---- formulas ------------------------------------------------------------------------------------

# Texts that a spreadsheet would run get an apostrophe when they are written, which is taken away
# when they are read: a table that is written and read again has the cells that it had before.

# An equals sign and the like, also full-width or behind white space and invisible characters, which
# spreadsheets ignore, or behind apostrophes, so that taking one away is unambiguous.
_FORMULA = r"^'*([\pZ\pC]*[=+\-@＝＋－＠]|[\t\r\n])"
_NUMBER = r"(?i)^\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+|inf|infinity)(e[+-]?[0-9]+)?\s*$"


def with_apostrophes(cells: Any) -> Any:
    """Put an apostrophe before texts that a spreadsheet would run; numbers such as -1 are safe."""
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    return pc.if_else(_risky(cells), pc.binary_join_element_wise("'", cells, ""), cells)


def without_apostrophes(cells: Any) -> Any:
    """Take away the apostrophes of `with_apostrophes` from a binary array of a text file."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not pc.any(pc.starts_with(cells, "'")).as_py():
        return cells
    try:
        texts = cells.cast(pa.string())
    except pa.ArrowInvalid:
        return cells  # not UTF-8, which whoever needs the column refuses
    rest = pc.utf8_slice_codeunits(texts, 1)
    return pc.if_else(pc.and_(pc.starts_with(texts, "'"), _risky(rest)), rest, texts).cast(
        cells.type
    )


def _risky(texts: Any) -> Any:
    import pyarrow.compute as pc

    found = pc.and_(
        pc.match_substring_regex(texts, _FORMULA),
        pc.invert(pc.match_substring_regex(texts, _NUMBER)),
    )
    return pc.fill_null(found, False)
