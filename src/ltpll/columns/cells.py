"""Cells of a column: what is missing, what is a number, and what is a text or a date."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.errors import InputError, shown
from ltpll.tables.columns import MISSING

ISO_DATE = re.compile(r"\d{4}-\d{1,2}-\d{1,2}([T ]\d{1,2}:\d{2}.*)?")
OTHER_DATE = re.compile(r"(\d{1,2})([./-])(\d{1,2})\2(\d{4}|\d{2})( \d{1,2}:\d{2}(:\d{2})?)?")
LARGEST = 1e150  # number, whose square is still finite
Texts = npt.NDArray[np.object_]
Numbers = npt.NDArray[np.float64]


class CellError(InputError):
    """A cell does not fit its column; the message names both."""


def as_texts(values: Any) -> Texts:
    """The cells as texts without blanks around them, None where one is missing.

    Whole numbers have no decimal point, whatever their type: pandas makes floats of integers with
    gaps.
    """
    import pandas as pd

    try:
        places, distinct = pd.factorize(pd.Series(values).astype(object))
    except TypeError:
        raise CellError(
            "A column holds lists or other objects: write one value per cell."
        ) from None
    found = np.asarray([*map(_as_text, distinct.tolist()), None], dtype=object)
    return np.asarray(found[places])


def _as_text(value: Any) -> str | None:
    whole = isinstance(value, float) and value.is_integer()
    text = str(int(value) if whole else value).strip()
    return None if text.lower() in MISSING or text in ("NaT", "<NA>") else text


def as_numbers(name: str, values: Any) -> Numbers:
    """The cells as numbers, NaN where one is missing.

    Raises:
        CellError: A cell is something else, or infinite.
    """
    import pandas as pd

    if pd.api.types.is_numeric_dtype(values):
        found = pd.Series(values).to_numpy(dtype=np.float64, na_value=np.nan)
    else:
        texts = pd.Series(as_texts(values), dtype=object)
        found = pd.to_numeric(texts, errors="coerce").to_numpy(dtype=np.float64)
        for row in np.flatnonzero(np.isnan(found) & texts.notna().to_numpy())[:1]:
            raise CellError(
                f"Row {row + 1} holds {shown(texts[row])} in the column {shown(name)} of numbers: "
                "correct the cell, leave it empty, or make the column a category."
            )
    numbers: Numbers = found
    for row in np.flatnonzero(np.abs(numbers) > LARGEST)[:1]:
        raise CellError(
            f"Row {row + 1} has an infinite value, or one beyond {LARGEST:g}, in the column "
            f"{shown(name)}: correct the cell, or leave it empty."
        )
    return numbers


def date_order(name: str, texts: Texts) -> str | None:
    """How the dates of a column are written: "iso", "day first", "month first", or None if some
    text is no date.

    Dates such as 03/04/2024 that fit both orders have the day first.

    Raises:
        CellError: Some dates have the day first, and others the month.
    """
    first: dict[str, str] = {}
    known = [text for text in texts if text is not None]
    if all(ISO_DATE.fullmatch(text) for text in known):
        return "iso" if known else None
    for text in known:
        match = OTHER_DATE.fullmatch(text)
        if match is None:
            return None
        if int(match[1]) > 12:
            first.setdefault("day first", text)
        elif int(match[3]) > 12:
            first.setdefault("month first", text)
    if len(first) == 2:
        both = " and ".join(map(shown, first.values()))
        raise CellError(
            f"The dates in the column {shown(name)} have two orders, as {both} show: write them "
            "as 2024-12-31."
        )
    return next(iter(first), "day first")


def as_times(name: str, values: Any, order: str) -> Numbers:
    """The cells as days since 1970, NaN where one is missing.

    Raises:
        CellError: A cell is no date of this order.
    """
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(values):
        times = pd.to_datetime(pd.Series(values), utc=True)
    else:
        texts = pd.Series(as_texts(values), dtype=object)
        how: dict[str, Any] = {"format": "ISO8601"}
        if order != "iso":
            how = {"format": "mixed", "dayfirst": order == "day first"}
        pattern = ISO_DATE if order == "iso" else OTHER_DATE
        month = 3 if order == "day first" else 1  # pandas would swap day and month in silence

        def fits(text: Any) -> bool:
            match = pattern.fullmatch(text) if isinstance(text, str) else None
            return match is not None and (order == "iso" or int(match[month]) <= 12)

        times = pd.to_datetime(texts.where(texts.map(fits), None), errors="coerce", utc=True, **how)
        for row in np.flatnonzero(times.isna().to_numpy() & texts.notna().to_numpy())[:1]:
            raise CellError(
                f"Row {row + 1} holds {shown(texts[row])} in the column {shown(name)} of dates: "
                "write it as 2024-12-31, or leave it empty."
            )
    epoch = pd.Timestamp(0, tz="UTC")
    days: Numbers = ((times - epoch) / pd.Timedelta(days=1)).to_numpy(dtype=np.float64)
    return days
