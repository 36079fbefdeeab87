"""Embedding: the features of many pictures, computed while threads decode the next ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ltpll.errors import InputError, shown
from ltpll.pictures.cache import EmbeddingCache, content_digest
from ltpll.pictures.files import DECODING, decode_picture
from ltpll.pictures.output import PATH, check_features_file, write_features
from ltpll.pictures.reading import PictureRows, call_for_pictures

if TYPE_CHECKING:
    from ltpll.backbones import Backbone

LEAST_BLOCK = 64  # so that the threads of the network rarely wait for each other
BLOCKS_AHEAD = 3  # are decoded while one is embedded


def embedded_pictures(
    folder: Path,
    paths: Sequence[str],
    backbone: Backbone,
    *,
    cache: Path,
    out: Path | None = None,
    on_error: str = "stop",
    on_progress: Callable[[int, int], None] | None = None,
    device: str = "auto",
    precision: str = "float32",
) -> PictureRows:
    """Embed pictures with a pretrained network, into memory or, in constant memory, into a file.

    The file appears when it is complete, with a table beside it, `.rows.csv`, that gives the
    picture of every row and the reason for every picture that was left out. After an interrupt or a
    crash, the same call takes what was done from the cache.

    `folder`, `paths`, `on_error` and `on_progress` are those of `read_pictures`; `cache` is a
    folder that keeps embeddings, such as `embedding_cache_folder()`. The features are mapped from
    the file if there is one.

    Raises:
        InputError: A picture cannot be read and `on_error` is not "skip", a path leads out of the
            folder, no picture can be read, or `out` cannot be written.
    """
    if out is not None:
        check_features_file(out)
        if not paths:
            raise InputError(f"There are no pictures to embed in {folder}.")
    # Here, since preparing the network takes seconds.
    from ltpll.backbones.embedder import Embedder

    embed = Embedder(backbone, device, precision, cache=cache / "networks")  # type: ignore[arg-type]
    # What the embedding of a picture depends on besides its content.
    key = f"{backbone.fingerprint()}-{precision}-{DECODING}"
    stored = EmbeddingCache(cache / "embeddings" / key, backbone.n_features)
    digests: dict[int, bytes] = {}  # by row
    problems: dict[int, str] = {}

    def decode(file: str) -> tuple[bytes, npt.NDArray[np.uint8] | None]:
        """The digest of a picture, and its pixels unless its embedding is known."""
        digest = content_digest(file)
        return digest, None if digest in stored else decode_picture(file, backbone.preprocessing)

    size = embed.batch_size * max(1, LEAST_BLOCK // embed.batch_size)
    ahead = BLOCKS_AHEAD * size
    with closing(call_for_pictures(decode, folder, paths, on_error, ahead)) as decoded:
        for first in range(0, len(paths), size):
            new: dict[int, npt.NDArray[np.uint8]] = {}
            for row, found in enumerate(islice(decoded, size), first):
                if isinstance(found, str):
                    problems[row] = found
                    continue
                digests[row], pixels = found
                if pixels is not None:
                    new[row] = pixels
            if new:
                features = embed(np.stack(list(new.values())))
                _check_finite(features, [paths[row] for row in new])
                stored.store_features([digests[row] for row in new], features)
            if on_progress is not None:
                on_progress(min(first + size, len(paths)), len(paths))
    if out is None:
        x = stored.stored_features(list(digests.values()))
    else:
        x = write_features(out, stored, digests, {PATH: paths}, problems)
    listed = [(str(paths[row]), reason) for row, reason in problems.items()]
    return PictureRows(x, np.asarray(list(digests), dtype=np.int64), listed)


def _check_finite(features: npt.NDArray[Any], paths: Sequence[str]) -> None:
    """Refuse features that are not numbers, which would ruin every training run on them."""
    bad = np.flatnonzero(~np.isfinite(features).all(axis=1))
    if len(bad):
        raise InputError(
            f"The backbone gives NaN or infinite features for {shown(paths[bad[0]], 200)}: check "
            "its weights, or use float32."
        )
