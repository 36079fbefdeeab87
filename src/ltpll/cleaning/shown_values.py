"""Shown values: the part of each row that reports and queues show to people."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ltpll.tables.columns import MISSING

if TYPE_CHECKING:
    from ltpll.tables.label_table import LabelTable

MOST_COLUMNS = 6
MOST_NUMBERS = 20  # columns of numbers; where there are more, as in embeddings, none says much
PROSE, LONG, SHORT = 40, 300, 60  # characters: on average, kept of one column, and of the others
MOST_ROWS = 20_000
# Line ends, characters that a terminal or a spreadsheet obeys, and those that reorder text.
CONTROLS = re.compile(r"[\s\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]+")
ShownValues = dict[str, npt.NDArray[np.object_]]


def shown_values(table: LabelTable, doubt: npt.NDArray[Any]) -> ShownValues:
    """What people see of each row: its longest text and a few other values, as short texts.

    Args:
        table: The table; `frame`, or else `features` and their names, hold the columns.
        doubt: How doubtful each row is; of a large table, the most doubtful ones are shown.

    Returns:
        For each column, the longest text first, a text for each row; None where there is none.

    Examples:
        >>> from ltpll.tables.read_tables import read_table
        >>> table = read_table(Path("birds.csv"))
        >>> sorted(shown_values(table, np.zeros(len(table))))
        ['x', 'y']
    """
    import pandas as pd

    frame = table.frame
    if frame is None:
        if table.features is None or len(table.feature_names) > MOST_NUMBERS:
            return {}
        frame = pd.DataFrame(table.features, columns=list(table.feature_names))
    rows = np.argsort(-doubt, kind="stable")[:MOST_ROWS]
    some = frame.iloc[rows]
    numeric = {name for name, kind in some.dtypes.items() if pd.api.types.is_numeric_dtype(kind)}
    columns = [one for one in some if len(numeric) <= MOST_NUMBERS or one not in numeric]
    cells = {one: [_text(cell) for cell in some[one].tolist()] for one in columns}
    lengths = {one: float(np.mean([len(text or "") for text in cells[one]])) for one in columns}
    longest = max(lengths, key=lambda one: lengths[one], default=None)
    order = sorted(columns, key=lambda one: one != longest or lengths[one] < PROSE)
    found: ShownValues = {}
    for one in order:
        if len(found) == MOST_COLUMNS or len(set(cells[one])) == 1 < len(rows):
            continue
        most = LONG if one == longest else SHORT
        texts = np.full(len(table), None, dtype=object)
        texts[rows] = [_cut(text, most) for text in cells[one]]
        found[_cut(CONTROLS.sub(" ", str(one)).strip(), SHORT) or "-"] = texts
    return found


def _text(cell: Any) -> str | None:
    """A cell on one line; None if it is missing."""
    if isinstance(cell, float):
        return f"{cell:.6g}" if np.isfinite(cell) else None
    text = CONTROLS.sub(" ", str(cell)[: 2 * LONG]).strip()
    return None if text.lower() in MISSING or text in ("NaT", "<NA>") else text


def _cut(text: str | None, most: int) -> Any:
    return text if text is None or len(text) <= most else f"{text[: most - 1]}…"
