"""Embedding: the features of many texts, each computed once per encoder."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ltpll.pictures.cache import EmbeddingCache

if TYPE_CHECKING:
    from ltpll.text.sentences import SentenceEncoder

BLOCK = 256  # texts whose features are stored at a time


def store_texts(
    texts: Sequence[str],
    encoder: SentenceEncoder,
    cache: Path,
    on_progress: Callable[[int, int], object] | None = None,
    device: str = "auto",
) -> tuple[EmbeddingCache, list[bytes]]:
    """Compute the features of texts that the cache does not have; returns it, and their keys."""
    stored = EmbeddingCache(cache / "embeddings" / encoder.fingerprint(), encoder.n_outputs)
    digests = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in texts]
    for first in range(0, len(texts), BLOCK):
        block = zip(digests[first : first + BLOCK], texts[first : first + BLOCK], strict=True)
        new = {digest: text for digest, text in block if digest not in stored}
        if new:
            stored.store_features(list(new), encoder.encode(list(new.values()), device=device))
        if on_progress is not None:
            on_progress(min(first + BLOCK, len(texts)), len(texts))
    encoder.n_cut = encoder.count_cut(texts)
    return stored, digests
