"""Embedding: the features of many texts, each computed once per encoder, and written to a file."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ltpll.pictures.cache import EmbeddingCache
from ltpll.pictures.embedding import EmbeddedBlock
from ltpll.pictures.output import ID, write_features
from ltpll.tables.columns import TextColumn, read_rows
from ltpll.tables.opening import open_table

if TYPE_CHECKING:
    from ltpll.text.sentences import SentenceEncoder

OnProgress = Callable[[int, int], object]
BLOCK = 256  # texts whose features are stored at a time


def embedded_texts(
    texts: Sequence[str],
    encoder: SentenceEncoder,
    *,
    cache: Path,
    on_progress: OnProgress | None = None,
    device: str = "auto",
) -> npt.NDArray[np.float32]:
    """Compute the features of texts; those of known texts come from the cache.

    Args:
        texts: The texts.
        encoder: The encoder, whose `n_cut` is set as by `encode`.
        cache: A folder that keeps features, such as `embedding_cache_folder()`, so that no text is
            encoded twice. After an interrupt, the same call goes on.
        on_progress: Called with the number of texts that are done and the total.
        device: "auto" (CUDA if available), "cpu" or "cuda".

    Returns:
        The features, (n, n_outputs).

    Raises:
        InputError: They cannot be encoded, or the cache cannot be written.
    """
    features = np.empty((len(texts), encoder.n_outputs), np.float32)
    with closing(embedded_text_blocks(texts, encoder, cache, device=device)) as blocks:
        for block in blocks:
            features[block.kept] = block.features
            if on_progress is not None:
                on_progress(block.stop, len(texts))
    return features


def embedded_text_blocks(
    texts: Sequence[str], encoder: SentenceEncoder, cache: Path, *, device: str = "auto"
) -> Generator[EmbeddedBlock]:
    """As `embedded_texts`, a block at a time."""
    stored = EmbeddingCache(cache / "embeddings" / encoder.fingerprint(), encoder.n_outputs)
    digests = [hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest() for text in texts]
    for first in range(0, len(texts), BLOCK):
        rows = range(first, min(first + BLOCK, len(texts)))
        new = {digests[row]: texts[row] for row in rows if digests[row] not in stored}
        if new:
            stored.store_features(list(new), encoder.encode(list(new.values()), device=device))
        found = stored.stored_features([digests[row] for row in rows])
        yield EmbeddedBlock(rows.stop, list(rows), found, {})
    encoder.n_cut = encoder.count_cut(texts)


def read_texts(path: Path, column: str) -> dict[str, list[str]]:
    """The texts in a column of a table, and the ids of their rows if it has a column id.

    Rows with the same id and the same text, such as the answers of several annotators, are one.

    Raises:
        InputError: The table cannot be read, or has no such column.
    """
    table = open_table(path)
    names = [ID, column] if ID in table.names and column != ID else [column]
    columns = [TextColumn(table, table.column(name)) for name in names]
    read_rows(table, columns)
    found = [one.values().tolist() for one in columns]
    if len(found) == 2:
        found = [list(part) for part in zip(*dict.fromkeys(zip(*found, strict=True)), strict=True)]
    return dict(zip([ID, "text"][-len(found) :], found, strict=True))


def embed_texts(
    rows: dict[str, list[str]],
    encoder: SentenceEncoder,
    out: Path,
    *,
    cache: Path,
    on_progress: OnProgress | None = None,
    device: str = "auto",
) -> npt.NDArray[np.float32]:
    """Write the features of texts to an .npy file, in constant memory, as `embed_pictures` does.

    Args:
        rows: The texts, and their ids if there are any, as from `read_texts`.
        out: The file to write.
        encoder, cache, on_progress, device: As for `embedded_texts`.

    Returns:
        The features, mapped from the file.

    Raises:
        InputError: As by `embedded_texts`, or if `out` cannot be written.
    """
    texts = rows["text"]
    blocks = embedded_text_blocks(texts, encoder, cache, device=device)
    ids = {name: cells for name, cells in rows.items() if name == ID}
    return write_features(out, len(texts), encoder.n_outputs, blocks, ids, on_progress).features
