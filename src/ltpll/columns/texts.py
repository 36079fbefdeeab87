"""Columns of texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy.typing as npt

from ltpll.columns.cells import as_texts
from ltpll.columns.numbers import Encoded
from ltpll.text import TfidfText


@dataclass(frozen=True)
class TextColumn:
    """A column of texts, as the numbers of an encoder."""

    encoder: Any

    @classmethod
    def fit(cls, name: str, values: Any, encoder: Any = None) -> Self:
        """Learn words and letters from the training rows, unless an encoder is given."""
        return cls(TfidfText().fit(_texts(values)) if encoder is None else encoder)

    @property
    def names(self) -> list[str]:
        """What is appended to the name of the column for each output."""
        return [f" [{k + 1}]" for k in range(self.encoder.n_outputs)]

    def encode(self, name: str, values: Any) -> Encoded:
        """The numbers of the texts, (rows, outputs)."""
        found: Encoded = self.encoder.transform(_texts(values))
        return found

    def record(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """What was learned, as values that JSON has, and arrays."""
        found: tuple[dict[str, Any], dict[str, npt.NDArray[Any]]] = self.encoder.record()
        return found

    @classmethod
    def from_record(cls, values: Mapping[str, Any], arrays: Mapping[str, Any]) -> Self:
        """The column that `record` describes."""
        return cls(TfidfText.from_record(values, arrays))


def _texts(values: Any) -> list[str]:
    return [text or "" for text in as_texts(values)]
