"""Kinds of columns, recognised from their cells."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any, Literal, NamedTuple

import numpy as np

from ltpll.columns.cells import CellError, Texts, as_numbers, as_texts, date_order
from ltpll.errors import shown
from ltpll.tables.columns import are_levels

Kind = Literal["number", "category", "date", "text", "ignore"]
KINDS: tuple[Kind, ...] = ("number", "category", "date", "text", "ignore")
PROSE_WORDS = 4  # on average, from which differing texts are prose
# Letters of Thai, Lao, Burmese, Khmer, Japanese and Chinese, which have no spaces between words.
WITHOUT_SPACES = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]")
LETTERS_OF_WORD = 2
DIFFERING = 0.5  # distinct texts, as a share of all
NAMES = 0.95  # distinct texts, as a share of all, from which they name the rows
LIKE_IDS = "another text in nearly every row, as ids have"
FEW_ROWS = 20  # with fewer, distinct values say nothing


class Recognised(NamedTuple):
    """What a column seems to hold; `why` says why it is ignored."""

    kind: Kind
    why: str = ""


def recognise(name: str, values: Any) -> Recognised:
    """The kind of a column.

    Raises:
        CellError: Most cells are numbers, but not all, or dates have two orders.
    """
    import pandas as pd

    values = pd.Series(values)
    if pd.api.types.is_datetime64_any_dtype(values):
        return Recognised("date") if values.nunique() > 1 else _constant()
    if pd.api.types.is_bool_dtype(values) or isinstance(values.dtype, pd.CategoricalDtype):
        return Recognised("category") if values.nunique() > 1 else _constant()
    if pd.api.types.is_numeric_dtype(values):
        return _of_numbers(as_numbers(name, values))
    texts = as_texts(values)
    known = np.asarray([text for text in texts if text is not None], dtype=object)
    if len(set(known.tolist())) <= 1 and not 0 < len(known) < len(texts):
        return _constant()
    numeric = pd.to_numeric(pd.Series(known), errors="coerce").notna().to_numpy()
    if numeric.all():
        return _of_numbers(as_numbers(name, values))
    words = [*Counter(known[~numeric].tolist()).values()]
    if numeric.mean() > 0.5 and not are_levels(len(set(known.tolist())), words, len(known)):
        word = shown(known[~numeric][0])
        raise CellError(
            f"The column {shown(name)} holds numbers in {int(numeric.sum()):,} rows, but also "
            f"{word}: correct such cells, leave them empty, or make the column a category."
        )
    if date_order(name, known) is not None:
        return Recognised("date")
    return _of_texts(known)


def _constant() -> Recognised:
    return Recognised("ignore", "the same in all rows")


def _of_numbers(found: Any) -> Recognised:
    known = found[~np.isnan(found)]
    if len(np.unique(known)) <= 1 and not 0 < len(known) < len(found):
        return _constant()
    counting = np.abs(np.diff(known)) == 1 if len(known) == len(found) >= FEW_ROWS else [False]
    if np.all(counting) and len(np.unique(known)) == len(known):
        return Recognised("ignore", "a running number")
    return Recognised("number")


def _words(text: str) -> float:
    return len(text.split()) + len(WITHOUT_SPACES.findall(text)) / LETTERS_OF_WORD


def _of_texts(known: Texts) -> Recognised:
    distinct = len(set(known.tolist())) / len(known)
    words = float(np.mean([_words(text) for text in known]))
    if words >= PROSE_WORDS and distinct >= DIFFERING:
        return Recognised("text")
    if distinct >= NAMES and len(known) >= FEW_ROWS:
        return Recognised("ignore", LIKE_IDS)
    return Recognised("category")
