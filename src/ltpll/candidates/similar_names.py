"""Similar names: rare classes that are probably misspelled names of frequent ones."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ltpll.errors import InputWarning, shown
from ltpll.formatting import counted

RARE = 2  # rows, at most, of a class that may be misspelled
RARE_SHARE = 0.01  # of the rows of the class that it resembles
FOLDED_SHARE = 0.1  # the same for names that differ only in capitals, blanks or punctuation
SHORTEST = 5  # letters, without digits, of a name; in shorter ones, another letter makes another name
SHORTEST_FOLDED = 3
MOST_CLASSES = 50_000
MOST_NAMED = 3  # in a warning
ENUMERATION = r"[0-9]+|\b(?:\w|[ivx]+)\b"  # what distinguishes "type A" from "type B" and "class 1" from "class 2"


class Resemblance(NamedTuple):
    """A rare class whose name resembles that of a frequent one, and in how many rows each of them is."""

    name: str
    rows: int
    frequent: str
    frequent_rows: int


def similar_names(names: Sequence[Any], rows: Sequence[int] | npt.NDArray[Any]) -> list[Resemblance]:
    """Find names that are probably misspelled: rare ones that differ from a frequent one in capitals, blanks or one letter.

    A letter may be missing, superfluous, replaced or swapped with its neighbour. Names that differ only in what numbers them, such as
    `class 1` and `class 2`, are not similar. Time grows with the number of classes, not with its square.

    Args:
        names: The names of the classes; those that are not text are ignored.
        rows: In how many rows each of them is a candidate.

    Returns:
        The rare classes with the most frequent class that each resembles, in the order of `names`.

    Examples:
        >>> similar_names(["brown creeper", "brown creper", "wood thrush"], [960, 1, 300])
        [Resemblance(name='brown creper', rows=1, frequent='brown creeper', frequent_rows=960)]
    """
    if len(names) > MOST_CLASSES:
        return []
    counts = np.asarray(rows)
    most = int(counts.max(initial=0))
    texts = [i for i, name in enumerate(names) if isinstance(name, str) and counts[i] > 0]
    folded = {i: re.sub(r"[\W_]+", " ", names[i].casefold()).strip() for i in texts}
    suspects = [i for i in texts if counts[i] < FOLDED_SHARE * most]
    if not suspects:
        return []
    by_fold: dict[str, int] = {}
    by_deletion: dict[str, int] = {}
    for i in sorted(texts, key=lambda i: -counts[i]):
        by_fold.setdefault(folded[i], i)
        if counts[i] * RARE_SHARE > 1:
            for text in _with_one_letter_less(folded[i]):
                by_deletion.setdefault(text, i)
    found = []
    for i in suspects:
        same = by_fold[folded[i]]
        letters = sum(map(str.isalpha, folded[i]))
        if letters >= SHORTEST_FOLDED and counts[i] < FOLDED_SHARE * counts[same]:
            found.append((i, same))
        elif counts[i] <= RARE and letters >= SHORTEST:
            near = {by_deletion[text] for text in _with_one_letter_less(folded[i]) if text in by_deletion}
            near = {j for j in near if counts[i] < RARE_SHARE * counts[j] and _unnumbered(folded[i]) != _unnumbered(folded[j])}
            if near:
                found.append((i, max(near, key=lambda j: counts[j])))
    return [Resemblance(names[i], int(counts[i]), names[j], int(counts[j])) for i, j in found]


def _with_one_letter_less(text: str) -> Iterator[str]:
    """The text, and the text without each of its letters; two texts that share one of these differ in about one letter."""
    yield text
    for k in range(len(text)):
        yield text[:k] + text[k + 1 :]


def _unnumbered(text: str) -> str:
    return re.sub(ENUMERATION, "", text)


def warn_of_similar_names(names: Sequence[Any], labels: npt.NDArray[Any]) -> None:
    """Warn about classes that are probably misspelled; `labels` are the class numbers of all rows, each once per row."""
    found = similar_names(names, np.bincount(labels, minlength=len(names)))
    if not found:
        return
    sentences = [
        f"{shown(one.name)} is in {counted(one.rows, 'row')} and resembles {shown(one.frequent)} ({counted(one.frequent_rows, 'row')})"
        for one in found[:MOST_NAMED]
    ]
    more = f"; and {counted(len(found) - MOST_NAMED, 'more class', 'more classes')}" if len(found) > MOST_NAMED else ""
    warnings.warn(
        f"The class {'; '.join(sentences)}{more}: correct {'it if it is' if len(found) == 1 else 'those that are'} misspelled.",
        InputWarning,
        stacklevel=3,
    )
