"""Embedding: the features of many texts, each computed once per encoder, in a file."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ltpll.pictures.cache import EmbeddingCache
from ltpll.pictures.output import ID, check_features_file, texts_of_columns, write_features
from ltpll.tables.opening import open_table

if TYPE_CHECKING:
    from ltpll.text.sentences import SentenceEncoder

BLOCK = 256  # texts whose features are stored at a time


def read_texts(path: Path, column: str) -> dict[str, list[str]]:
    """The texts in a column of a table, and the ids of their rows if it has a column id.

    Rows with the same id and the same text, such as the answers of several annotators, are one.
    """
    table = open_table(path)
    texts = texts_of_columns(table, [column])[column]
    if ID not in table.names or column == ID:
        return {"text": texts}
    rows = dict.fromkeys(zip(texts_of_columns(table, [ID])[ID], texts, strict=True))
    return {ID: [name for name, _ in rows], "text": [text for _, text in rows]}


def embed_texts(
    rows: dict[str, list[str]],
    encoder: SentenceEncoder,
    out: Path,
    *,
    cache: Path,
    on_progress: Callable[[int, int], object] | None = None,
    device: str = "auto",
) -> npt.NDArray[np.float32]:
    """Write the features of texts to an .npy file, in constant memory, and map it.

    The texts and their ids, if there are any, are those of `read_texts`. The cache is a folder that
    keeps features, so that no text is encoded twice, also after an interrupt.
    """
    check_features_file(out)
    stored, digests = store_texts(rows["text"], encoder, cache, on_progress, device)
    ids = {name: cells for name, cells in rows.items() if name == ID}
    return write_features(out, stored, dict(enumerate(digests)), ids)


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
