"""Annotations: labels of several annotators, one per row, turned into candidate sets."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from ltpll.errors import InputError, shown


@dataclass(frozen=True)
class AnnotatorVotes:
    """One entry per annotation; an annotator may give an example several labels, each of them once."""

    rows: npt.NDArray[np.int64]
    annotators: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]
    names: tuple[str, ...]  # annotator names

    def select(self, rows: npt.NDArray[np.int64], n_rows: int) -> AnnotatorVotes:
        """The votes on some of the examples, which are renumbered from 0."""
        position = np.full(n_rows, -1, dtype=np.int64)
        position[rows] = np.arange(len(rows))
        moved = position[self.rows]
        kept = np.flatnonzero(moved >= 0)
        kept = kept[np.argsort(moved[kept], kind="stable")]
        return AnnotatorVotes(moved[kept], self.annotators[kept], self.labels[kept], self.names)


class Rule(NamedTuple):
    """Which of an example's annotated labels become its candidates."""

    kind: Literal["union", "votes", "top"]
    k: int = 1


def vote_rule(text: str) -> Rule:
    """Parse a rule: `union` (all labels), `votes>=2` (labels of at least two annotators) or `top-3` (the three most frequent labels)."""
    plain = text.strip().lower()
    if plain == "union":
        return Rule("union")
    for kind, pattern in (("votes", r"votes\s*>=\s*([0-9]{1,9})"), ("top", r"top-([0-9]{1,9})")):
        found = re.fullmatch(pattern, plain)
        if found and int(found[1]) >= 1:
            return Rule("votes" if kind == "votes" else "top", int(found[1]))
        if found:
            raise InputError(f"The rule {shown(text)} asks for fewer than 1: give a whole number of at least 1, as in votes>=2 or top-3.")
    problem = "names several rules" if len(re.findall(r"union|votes|top-", plain)) > 1 else "is not a rule"
    raise InputError(f"{shown(text)} {problem} for turning annotations into sets: give one of union, votes>=2 and top-3.")


def drop_repeated_votes(
    rows: npt.NDArray[np.int64], annotators: npt.NDArray[np.int64], labels: npt.NDArray[np.int64]
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Drop repeated annotations and sort by example, keeping the order within an example."""
    order = np.lexsort((labels, annotators, rows))  # stable, so the first of several equal entries is kept
    same = np.ones(len(order), dtype=bool)
    same[:1] = False
    for column in (rows, annotators, labels):
        same[1:] &= column[order][1:] == column[order][:-1]
    kept = np.sort(order[~same])
    kept = kept[np.argsort(rows[kept], kind="stable")]
    return rows[kept], annotators[kept], labels[kept]


def sets_from_votes(votes: AnnotatorVotes, n_rows: int, n_classes: int, rule: Rule) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """`indptr` and labels of the candidate sets; labels that tie with the last of the top k are kept."""
    keys, times = np.unique(votes.rows * n_classes + votes.labels, return_counts=True)
    rows, labels = keys // n_classes, keys % n_classes
    if rule.kind == "top":
        order = np.lexsort((-times, rows))
        start = np.searchsorted(rows, np.arange(n_rows + 1))
        # Position of each row's k-th most frequent label; a row with fewer labels keeps all of them.
        last = np.minimum(start[:-1] + rule.k, start[1:]) - 1
        kept = times >= times[order][last][rows]
    else:
        kept = times >= rule.k
    indptr = np.searchsorted(rows[kept], np.arange(n_rows + 1))
    return indptr.astype(np.int64), labels[kept]
