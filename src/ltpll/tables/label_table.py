"""Label table: the examples of a table, whatever kind of file it was read from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.candidates import Candidates
from ltpll.candidates.votes import AnnotatorVotes


@dataclass(frozen=True)
class LabelTable:
    """The content of a table, one entry per example in the order of the table."""

    ids: npt.NDArray[np.object_]  # distinct: the column of ids, or of paths, or row numbers from 1
    candidates: Candidates | None
    labels: npt.NDArray[np.int64] | None = (
        None  # true class numbers, for evaluation only; −1 if unknown
    )
    splits: npt.NDArray[np.object_] | None = None
    paths: npt.NDArray[np.object_] | None = None
    features: npt.NDArray[Any] | None = None  # (N, d), float32 or, if that would blur them, float64
    feature_names: tuple[str, ...] = ()
    votes: AnnotatorVotes | None = None
    frame: Any = None  # a DataFrame in the place of features, if columns are not all finite numbers
    left_out: tuple[str, ...] = ()  # columns that are no features
    groups: npt.NDArray[np.object_] | None = None  # picture or scene, as in the candidates
    columns: Mapping[str, str] = field(default_factory=dict)  # by the field of `Reading`
    urls: npt.NDArray[np.object_] | None = None  # what a labelling tool calls the pictures
    notes: tuple[str, ...] = ()  # sentences about what was skipped
    reviewed: npt.NDArray[np.bool_] | None = None  # whether the candidates are a person's answer

    def __len__(self) -> int:
        return len(self.ids)

    def select(self, rows: npt.NDArray[np.int64]) -> LabelTable:
        """Some of the examples in the given order, each at most once."""
        names = "ids", "labels", "splits", "paths", "features", "groups", "urls", "reviewed"
        arrays = {name: getattr(self, name) for name in names}
        return replace(
            self,
            **{name: array[rows] for name, array in arrays.items() if array is not None},
            frame=None if self.frame is None else self.frame.iloc[rows],
            candidates=None if self.candidates is None else self.candidates.select(rows),
            votes=None if self.votes is None else self.votes.select(rows, len(self)),
        )
