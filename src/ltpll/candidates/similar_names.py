"""Similar names: classes that are probably misspelled names of others."""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

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


class Resemblance(NamedTuple):
    """A class whose name resembles that of a more frequent one, and the rows of both."""

    name: str
    rows: int
    frequent: str
    frequent_rows: int


def similar_names(
    names: Sequence[Any], rows: Sequence[int] | npt.NDArray[Any]
) -> list[Resemblance]:
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
        The classes with the most frequent class that each resembles, in the order of `names`.

    Examples:
        >>> similar_names(["brown creeper", "brown creper", "wood thrush"], [960, 1, 300])
        [Resemblance(name='brown creper', rows=1, frequent='brown creeper', frequent_rows=960)]
    """
    if len(names) > MOST_CLASSES:
        return []
    counts = np.asarray(rows)
    texts = [i for i, name in enumerate(names) if isinstance(name, str) and counts[i] > 0]
    looks = {i: _visible_text(names[i]) for i in texts}
    folded = {i: re.sub(r"[\W_]+", " ", looks[i].casefold()).strip() for i in texts}
    by_fold: dict[str, int] = {}
    by_deletion: dict[str, int] = {}
    for i in sorted(texts, key=lambda i: -counts[i]):
        by_fold.setdefault(folded[i] or looks[i], i)
        if counts[i] * RARE_SHARE >= 1:
            for text in _with_one_letter_less(folded[i]):
                by_deletion.setdefault(text, i)
    found = []
    for i in texts:
        same = by_fold[folded[i] or looks[i]]
        letters = sum(map(str.isalpha, folded[i]))
        rare = counts[i] <= RARE_SHARE * counts[same]
        if same != i and looks[i] == looks[same]:
            found.append((i, same))
        elif same != i and letters >= SHORTEST_FOLDED:
            if rare or looks[i].casefold() == looks[same].casefold():
                found.append((i, same))
        elif counts[i] <= RARE and letters >= SHORTEST:
            deleted = (text for text in _with_one_letter_less(folded[i]) if text in by_deletion)
            near = {
                j
                for j in map(by_deletion.__getitem__, deleted)
                if counts[i] <= RARE_SHARE * counts[j]
                and _without_numbers(folded[i]) != _without_numbers(folded[j])
            }
            if near:
                found.append((i, max(near, key=lambda j: counts[j])))
    return [Resemblance(names[i], int(counts[i]), names[j], int(counts[j])) for i, j in found]


def _visible_text(name: str) -> str:
    """The name without invisible letters, and with accents written in one way."""
    composed = unicodedata.normalize("NFC", name)
    if composed.isascii():
        return composed
    return "".join(letter for letter in composed if unicodedata.category(letter) != "Cf")


def _with_one_letter_less(text: str) -> Iterator[str]:
    """The text, and the text without each of its letters.

    Two texts that share one of these differ in about one letter.
    """
    yield text
    for k in range(len(text) if len(text) <= LONGEST else 0):
        yield text[:k] + text[k + 1 :]


def _without_numbers(text: str) -> str:
    return re.sub(ENUMERATION, "", text)


def warn_of_similar_names(names: Sequence[Any], labels: npt.NDArray[Any]) -> None:
    """Warn about classes that are probably misspelled.

    `labels` are the class numbers of all rows, each once per row.
    """
    found = similar_names(names, np.bincount(labels, minlength=len(names)))
    if not found:
        return
    sentences = []
    for one in found[:MOST_NAMED]:
        alike = _visible_text(one.name) == _visible_text(one.frequent)
        name, frequent = (
            ascii(text[:LONGEST]) if alike else shown(text) for text in (one.name, one.frequent)
        )
        rows, others = counted(one.rows, "row"), counted(one.frequent_rows, "row")
        sentences.append(f"{name} is in {rows} and resembles {frequent} ({others})")
    if len(found) > MOST_NAMED:
        sentences.append(f"and {counted(len(found) - MOST_NAMED, 'more class', 'more classes')}")
    which = "it if it is" if len(found) == 1 else "those that are"
    warnings.warn(
        f"The class {'; '.join(sentences)}: correct {which} misspelled.", InputWarning, stacklevel=3
    )
