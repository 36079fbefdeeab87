"""Columns of texts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Self

import numpy.typing as npt
from sklearn.base import clone

from ltpll.columns.cells import as_texts
from ltpll.columns.numbers import Encoded
from ltpll.errors import InputError
from ltpll.text import SentenceEncoder, TfidfText

Record = tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]
PRETRAINED = "pretrained"


class PretrainedText:
    """Texts as the features of a pretrained language model, for `ColumnEncoder(text=…)`.

    Features are cached by the content of each text, so that no text is encoded twice.

    Args:
        source: What `SentenceEncoder.from_pretrained` takes, such as "minilm".
        device: "cpu", "cuda" or "auto".

    Examples:
        >>> from ltpll import ColumnEncoder
        >>> encoder = ColumnEncoder(text=PretrainedText("minilm"))
    """

    def __init__(self, source: str, device: str = "auto") -> None:
        self.source = str(Path(source).resolve()) if Path(source).exists() else source
        self.device = device
        self.on_progress: Callable[[int, int], object] | None = None

    @property
    def encoder(self) -> SentenceEncoder:
        return _pretrained(self.source)

    @property
    def n_outputs(self) -> int:
        n: int = self.encoder.n_outputs
        return n

    @property
    def n_cut(self) -> int:
        n: int = self.encoder.n_cut
        return n

    def transform(self, texts: Sequence[str]) -> Encoded:
        """The features of the texts, (texts, outputs)."""
        from ltpll.pictures.cache import embedding_cache_folder
        from ltpll.text.embedding import store_texts

        cache, how = embedding_cache_folder(), (self.on_progress, self.device)
        stored, digests = store_texts(texts, self.encoder, cache, *how)
        return stored.stored_features(digests)

    def record(self) -> Record:
        """Where the model is, and what it must be; a run does not hold the model itself."""
        return {PRETRAINED: self.source, "fingerprint": self.encoder.fingerprint()}, {}

    @classmethod
    def from_record(cls, values: Mapping[str, Any]) -> Self:
        """The encoder that `record` describes.

        Raises:
            InputError: The model is not there anymore, or is another one.
        """
        made = cls(values[PRETRAINED])
        if made.encoder.fingerprint() != values["fingerprint"]:
            raise InputError(
                f"The text encoder {made.source!r} is not the one that the run was trained with: "
                "restore it, or train again."
            )
        return made


@lru_cache(maxsize=1)
def _pretrained(source: str) -> SentenceEncoder:
    return SentenceEncoder.from_pretrained(source)


@dataclass(frozen=True)
class TextColumn:
    """A column of texts, as the numbers of an encoder."""

    encoder: Any

    @classmethod
    def fit(cls, name: str, values: Any, encoder: Any = None) -> Self:
        """Learn words and letters from the training rows; a pretrained encoder learns nothing."""
        encoder = TfidfText() if encoder is None else encoder
        learns = hasattr(encoder, "fit")
        return cls(clone(encoder, safe=False).fit(_texts(values)) if learns else encoder)

    @property
    def names(self) -> list[str]:
        """What is appended to the name of the column for each output."""
        return [f" [{k + 1}]" for k in range(self.encoder.n_outputs)]

    def encode(self, name: str, values: Any) -> Encoded:
        """The numbers of the texts, (rows, outputs)."""
        found: Encoded = self.encoder.transform(_texts(values))
        return found

    def record(self) -> Record:
        """What was learned, as values that JSON has, and arrays."""
        found: Record = self.encoder.record()
        return found

    @classmethod
    def from_record(cls, values: Mapping[str, Any], arrays: Mapping[str, Any]) -> Self:
        """The column that `record` describes."""
        if PRETRAINED in values:
            return cls(PretrainedText.from_record(values))
        return cls(TfidfText.from_record(values, arrays))


def _texts(values: Any) -> list[str]:
    return [text or "" for text in as_texts(values)]
