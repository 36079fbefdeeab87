"""Formulas: the apostrophe before texts that a spreadsheet would run, written and taken away again.

A table that is written and read again has the cells that it had before.
"""

from __future__ import annotations

from typing import Any

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
