"""Similar names: classes whose names differ only in capitals, blanks, punctuation or accents."""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.errors import LONGEST, InputWarning, shown
from ltpll.formatting import counted

RARE_SHARE = 0.1  # at most, of the rows of a class that another resembles in its letters alone
FEWEST_LETTERS = 3  # of names that differ in more than invisible letters
MOST_NAMED = 3  # in a warning


def similar_names(
    names: Sequence[Any], rows: Sequence[int] | npt.NDArray[Any]
) -> list[tuple[int, int]]:
    """Find names that are probably other spellings of more frequent ones.

    They look the same, differ only in capitals, or are much rarer and differ only in blanks or
    punctuation.

    Args:
        names: The names of the classes; those that are not text are ignored.
        rows: In how many rows each of them is a candidate.

    Returns:
        The numbers of such a class and of the most frequent class that it resembles, in order.

    Examples:
        >>> similar_names(["brown creeper", "Brown_creeper", "wood thrush"], [960, 1, 300])
        [(1, 0)]
    """
    texts = [i for i, name in enumerate(names) if isinstance(name, str) and rows[i] > 0]
    looks = {i: _visible_text(names[i]) for i in texts}
    letters = {i: re.sub(r"[\W_]+", " ", looks[i].casefold()).strip() for i in texts}
    frequent: dict[str, int] = {}
    for i in sorted(texts, key=lambda i: -rows[i]):
        frequent.setdefault(letters[i] or looks[i], i)
    found = []
    for i in texts:
        other = frequent[letters[i] or looks[i]]
        rare = rows[i] <= RARE_SHARE * rows[other]
        alike = rare or looks[i].casefold() == looks[other].casefold()
        alike &= sum(map(str.isalpha, letters[i])) >= FEWEST_LETTERS
        if i != other and (alike or looks[i] == looks[other]):
            found.append((i, other))
    return found


def _visible_text(name: str) -> str:
    """The name without invisible letters, and with accents written in one way."""
    if name.isascii():
        return name
    composed = unicodedata.normalize("NFC", name)
    return "".join(letter for letter in composed if unicodedata.category(letter) != "Cf")


def warn_of_similar_names(names: Sequence[Any], labels: npt.NDArray[Any]) -> None:
    """Warn about similar names; `labels` are the class numbers of all rows, each once per row."""
    rows = np.bincount(labels, minlength=len(names))
    found = similar_names(names, rows)
    sentences = []
    for pair in found[:MOST_NAMED]:
        one, other = (str(names[i]) for i in pair)
        show = ascii if _visible_text(one) == _visible_text(other) else shown
        own, others = (counted(int(rows[i]), "row") for i in pair)
        resembled = f"{show(other[:LONGEST])} ({others})"
        sentences.append(f"{show(one[:LONGEST])} is in {own} and resembles {resembled}")
    if len(found) > MOST_NAMED:
        sentences.append(f"and {counted(len(found) - MOST_NAMED, 'more class', 'more classes')}")
    if found:
        which = "it if it is" if len(found) == 1 else "those that are"
        message = f"The class {'; '.join(sentences)}: correct {which} misspelled."
        warnings.warn(message, InputWarning, stacklevel=3)
