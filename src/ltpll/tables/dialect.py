"""Dialects: which mark separates the columns of a text file, and which one its decimals."""

from __future__ import annotations

import codecs
import csv
import io
import re
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

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

    def notes(self, usual: str) -> tuple[str, ...]:
        """A sentence about what differs from the usual delimiter and decimal points, if any."""
        mark = "a tab" if self.delimiter == "\t" else repr(self.delimiter)
        found = [f"{mark} between columns"] if self.delimiter != usual else []
        found += ["',' as decimal mark"] if self.decimal == "," else []
        return (f"Read with {' and '.join(found)}.",) if found else ()


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
