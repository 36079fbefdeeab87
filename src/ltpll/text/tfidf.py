"""`TfidfText`: texts as TF-IDF of words and letters, reduced by an SVD."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.base import BaseEstimator, TransformerMixin

from ltpll.errors import InputError, first_line, shown
from ltpll.validation import whole_number

FORMAT = "tfidf-text-1"
LONGEST = 10_000  # characters of a text that are read
SAMPLE_TEXTS, SAMPLE_CHARACTERS = 20_000, 10_000_000  # from which the SVD is computed
BLOCK = 1_000  # texts that are transformed at a time, which bounds the memory
SMALLEST = 1e-5  # singular value that counts, relative to the largest
KINDS: dict[str, dict[str, Any]] = {
    "words": {"analyzer": "word", "ngram_range": (1, 2)},
    "characters": {"analyzer": "char_wb", "ngram_range": (3, 5)},
}
ARRAYS = ("idf", "components")
Array = npt.NDArray[Any]


class TfidfText(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Texts as TF-IDF of words and of letters, reduced by an SVD; it needs scikit-learn only.

    Single words and pairs of words are counted, and sequences of three to five characters within
    words, which find spelling mistakes, endings and languages without spaces. The logarithms of
    the counts are weighted by rarity, and each text is scaled to length one. At most 10,000
    characters of a text are read. Vocabulary and SVD come from at most 20,000 texts and 10 million
    characters, drawn at random from longer lists.

    Args:
        n_components: The largest number of features; there are fewer if the texts are few or alike.
        max_features: The largest number of words and pairs of words, and of sequences of
            characters, that are known: the most frequent ones.
        seed: From which texts are drawn and the SVD starts.

    Attributes:
        n_outputs: The number of features; known after `fit`.
        n_cut: How many texts of the last call were longer than 10,000 characters.

    Examples:
        >>> from ltpll.text import TfidfText
        >>> texts = ["a grey wolf", "two grey wolves", "the red car", "red cars"]
        >>> features = TfidfText(n_components=2).fit(texts).transform(texts)
        >>> features.shape
        (4, 2)
        >>> bool(features[0] @ features[1] > 0.9 > 0.1 > features[0] @ features[2])
        True
    """

    def __init__(
        self, n_components: int = 128, *, max_features: int = 20_000, seed: int = 0
    ) -> None:
        self.n_components = n_components
        self.max_features = max_features
        self.seed = seed
        self.n_cut = 0
        self._vectorizers: list[Any] = []
        self._components: npt.NDArray[np.float32] = np.empty((0, 0), np.float32)

    @property
    def n_outputs(self) -> int:
        return len(self._components)

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """A name for each feature: tfidf0, tfidf1, and so on."""
        return np.asarray([f"tfidf{k}" for k in range(self.n_outputs)], dtype=object)

    def fit(self, texts: Sequence[str], y: Any = None) -> Self:
        """Learn the vocabulary, its rarity and the directions of the largest variation.

        Args:
            texts: The texts; empty ones are allowed.
            y: Ignored.

        Raises:
            InputError: If they are not texts, or a setting is not a number.
        """
        from sklearn.utils.extmath import randomized_svd

        n_components = whole_number(self.n_components, 1, "n_components")
        max_features = whole_number(self.max_features, 1, "max_features")
        known, self.n_cut = readable_texts(texts, LONGEST)
        sample = self._sample(known)
        self._vectorizers = []
        for name in KINDS:
            vectorizer = _vectorizer(name, max_features=max_features)
            try:
                vectorizer.fit(sample)
            except ValueError:  # there is no word
                vectorizer = None
            self._vectorizers.append(vectorizer)
        counts = self._counts(sample)
        n = min(n_components, *counts.shape)
        if n == 0:
            self._components = np.empty((0, counts.shape[1]), np.float32)
            return self
        # As TruncatedSVD does.
        _, sizes, directions = randomized_svd(counts, n, n_iter=5, random_state=self.seed)
        large = sizes > SMALLEST * sizes.max()
        self._components = np.ascontiguousarray(directions[large], np.float32)
        return self

    def transform(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Compute features.

        Args:
            texts: The texts.

        Returns:
            Rows of length one, (n, n_outputs); zeros for texts without known words or letters.

        Raises:
            InputError: If they are not texts.
        """
        known, self.n_cut = readable_texts(texts, LONGEST)
        features = np.zeros((len(known), self.n_outputs), np.float32)
        for first in range(0, len(known) if self.n_outputs else 0, BLOCK):
            block = self._counts(known[first : first + BLOCK]) @ self._components.T
            lengths = np.linalg.norm(block, axis=1, keepdims=True)
            # Shorter rows are rounding errors.
            features[first : first + BLOCK] = np.where(
                lengths > 1e-6, block / np.maximum(lengths, 1e-6), 0
            )
        return features

    def record(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Everything that `from_record` needs: JSON values, and arrays by name."""
        words = [[] if one is None else one.get_feature_names_out() for one in self._vectorizers]
        values = {
            "format": FORMAT,
            "n_components": self.n_components,
            "max_features": self.max_features,
            "seed": self.seed,
        } | {name: list(map(str, part)) for name, part in zip(KINDS, words, strict=True)}
        rarity = [np.empty(0) if one is None else one.idf_ for one in self._vectorizers]
        idf = np.concatenate(rarity).astype(np.float32)
        return values, dict(zip(ARRAYS, (idf, self._components), strict=True))

    @classmethod
    def from_record(cls, values: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """The fitted encoder that `record` described; a damaged record is an InputError."""
        try:
            if values["format"] != FORMAT:
                raise ValueError(f"its format is {shown(values['format'])}, not {FORMAT!r}")
            least = {"n_components": 1, "max_features": 1, "seed": 0}
            encoder = cls(
                **{name: whole_number(values[name], n, name) for name, n in least.items()}
            )
            vocabularies = [values[name] for name in KINDS]
            idf, components = (np.asarray(arrays[name], np.float32) for name in ARRAYS)
            if components.ndim != 2 or components.shape[1:] != idf.shape:
                raise ValueError("its arrays have different lengths")
            if not np.isfinite(idf).all() or not np.isfinite(components).all():
                raise ValueError("its arrays are not finite")
            ends = np.cumsum([len(words) for words in vocabularies])
            *parts, rest = np.split(idf, ends)
            if len(rest):
                raise ValueError("its arrays are longer than its vocabulary")
            for name, words, rarity in zip(KINDS, vocabularies, parts, strict=True):
                vectorizer = _vectorizer(name, vocabulary=words) if words else None
                if vectorizer is not None:
                    vectorizer.idf_ = rarity  # scikit-learn checks that it fits the vocabulary
                encoder._vectorizers.append(vectorizer)
            encoder._components = np.ascontiguousarray(components)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise InputError(
                f"The record of a text encoder is damaged ({first_line(error)}): train again."
            ) from None
        return encoder

    def _sample(self, texts: list[str]) -> list[str]:
        """The texts to learn from, in their order."""
        order = np.random.default_rng(self.seed).permutation(len(texts))[:SAMPLE_TEXTS]
        lengths = np.asarray([len(texts[row]) for row in order], np.int64)
        before = np.cumsum(lengths) - lengths
        return [texts[row] for row in np.sort(order[before < SAMPLE_CHARACTERS])]

    def _counts(self, texts: list[str]) -> sp.csr_matrix:
        """The weighted counts of all known words and sequences of characters."""
        parts = [one.transform(texts) for one in self._vectorizers if one is not None]
        return (
            sp.hstack(parts, "csr") if parts else sp.csr_matrix((len(texts), 0), dtype=np.float32)
        )


def _vectorizer(name: str, **how: Any) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(**KINDS[name], sublinear_tf=True, dtype=np.float32, **how)


def readable_texts(texts: Sequence[str], longest: int) -> tuple[list[str], int]:
    """Texts of at most `longest` characters that can be encoded, and how many had to be cut."""
    if isinstance(texts, str):
        raise InputError(f"The texts are one text, {shown(texts)}: give a list of texts.")
    wrong = next((row for row, text in enumerate(texts) if not isinstance(text, str)), None)
    if wrong is not None:
        raise InputError(
            f"Row {wrong} of the texts is {shown(texts[wrong])}: give '' for a missing text."
        )
    # Halves of surrogate pairs are replaced, which neither tokenizers nor files accept.
    found = [str(text[:longest]).encode("utf-8", "replace").decode() for text in texts]
    return found, sum(len(text) > longest for text in texts)
