"""Similar names: classes that are probably misspelled names of others."""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.errors import InputWarning, shown
from ltpll.formatting import counted

RARE = 2  # rows, at most, of a class that may be misspelled
RARE_SHARE = 0.1  # at most, of the rows of the class that it resembles
# Letters, without digits, of a name; in shorter ones, another letter makes another name.
SHORTEST = 5
SHORTEST_FOLDED = 3  # the same for names that differ only in capitals, blanks or punctuation
LONGEST = 200
MOST_CLASSES = 50_000
MOST_NAMED = 3  # in a warning
# What distinguishes "type A" from "type B", "class 1" from "class 2", and "stage 2a" from "stage
# 2b".
ENUMERATION = r"\b\w?[0-9]+\w?\b|[0-9]+|\b(?:\w|[ivx]+[a-d]?)\b"


def similar_names(
    names: Sequence[Any], rows: Sequence[int] | npt.NDArray[Any]
) -> list[tuple[int, int]]:
    """Find names that are probably misspelled.

    These are names that look like a more frequent one, differ from it only in capitals, or are much
    rarer and differ only in blanks, punctuation or one letter, which may be missing, superfluous,
    replaced or swapped with its neighbour. Names that differ only in what numbers them, such as
    `class 1` and `class 2`, are not similar. Time grows with the number of classes, not with its
    square.

    Args:
        names: The names of the classes; those that are not text are ignored.
        rows: In how many rows each of them is a candidate.

    Returns:
        The numbers of such a class and of the most frequent class that it resembles, in order.

    Examples:
        >>> similar_names(["brown creeper", "brown creper", "wood thrush"], [960, 1, 300])
        [(1, 0)]
    """
    if len(names) > MOST_CLASSES:
        return []
    texts = [i for i, name in enumerate(names) if isinstance(name, str) and rows[i] > 0]
    looks = {i: _visible_text(names[i]) for i in texts}
    folded = {i: re.sub(r"[\W_]+", " ", looks[i].casefold()).strip() for i in texts}
    by_fold: dict[str, int] = {}
    by_deletion: dict[str, int] = {}
    for i in sorted(texts, key=lambda i: -rows[i]):
        by_fold.setdefault(folded[i] or looks[i], i)
        if rows[i] * RARE_SHARE >= 1:
            for text in _with_one_letter_less(folded[i]):
                by_deletion.setdefault(text, i)
    found = []
    for i in texts:
        same = by_fold[folded[i] or looks[i]]
        letters = sum(map(str.isalpha, folded[i]))
        if same != i:
            rare = rows[i] <= RARE_SHARE * rows[same]
            alike = rare or looks[i].casefold() == looks[same].casefold()
            if looks[i] == looks[same] or (letters >= SHORTEST_FOLDED and alike):
                found.append((i, same))
        elif rows[i] <= RARE and letters >= SHORTEST:
            deleted = _with_one_letter_less(folded[i])
            near = {by_deletion[text] for text in deleted if text in by_deletion}
            own = re.sub(ENUMERATION, "", folded[i])
            near = {
                j
                for j in near
                if rows[i] <= RARE_SHARE * rows[j] and own != re.sub(ENUMERATION, "", folded[j])
            }
            if near:
                found.append((i, max(near, key=lambda j: rows[j])))
    return found


def _visible_text(name: str) -> str:
    """The name without invisible letters, and with accents written in one way."""
    if name.isascii():
        return name
    composed = unicodedata.normalize("NFC", name)
    return "".join(letter for letter in composed if unicodedata.category(letter) != "Cf")


def _with_one_letter_less(text: str) -> Iterator[str]:
    """The text, and the text without each of its letters, which it shares with similar texts."""
    yield text
    for k in range(len(text) if len(text) <= LONGEST else 0):
        yield text[:k] + text[k + 1 :]


def warn_of_similar_names(names: Sequence[Any], labels: npt.NDArray[Any]) -> None:
    """Warn about classes that are probably misspelled.

    `labels` are the class numbers of all rows, each once per row.
    """
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
