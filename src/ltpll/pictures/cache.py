"""Cache: embeddings stored by the content of their pictures, so that a picture is embedded once per backbone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ltpll.files import acquire_lock, cache_folder, cannot_write_error, check_writable
from ltpll.pictures.decoding import KnownHashes

VARIABLE = "LTPLL_CACHE"
WAY_OUT = f"set {VARIABLE} to another folder for the cache"
HASH = 32  # bytes of SHA-256
AT_ONCE = 256  # new rows that are written together


def cache_root() -> Path:
    """The folder of everything that can be computed again: $LTPLL_CACHE, or ltpll in the user's cache folder."""
    return cache_folder(VARIABLE)


class EmbeddingCache:
    """The embeddings of one backbone: a file of hashes and a file of rows, to which several processes may append.

    Row i belongs to hash i. Rows are written before their hashes, and whatever has no counterpart in the other file is the remains of an
    interrupted process: it is ignored, and overwritten by the next one. What other processes add after opening is not seen.

    Args:
        folder: The folder, which is created.
        n_features: The length of a row.

    Raises:
        InputError: The folder cannot be written.
    """

    def __init__(self, folder: Path, n_features: int) -> None:
        check_writable(folder, WAY_OUT)
        self.folder, self.n_features = folder, n_features
        self._hashes, self._rows = folder / "hashes.bin", folder / f"rows-{n_features}.f32"
        with self._lock():
            self._n = self._complete()
        with self._hashes.open("rb") as file:
            content = file.read(HASH * self._n)
        self._row_of = {content[HASH * i : HASH * (i + 1)]: i for i in range(self._n)}
        self._new: dict[bytes, npt.NDArray[np.float32]] = {}

    def __len__(self) -> int:
        return len(self._row_of)

    @property
    def known(self) -> KnownHashes:
        """The hashes whose rows can be read."""
        return KnownHashes(self._hashes, self._n)

    def rows(self, digests: Sequence[bytes]) -> npt.NDArray[np.float32]:
        """The embeddings of known pictures, (n, n_features)."""
        # Mapped anew each time: pages that stay mapped would count as memory of this process.
        stored = np.memmap(self._rows, np.float32, "r", shape=(self._n, self.n_features))
        return np.asarray(stored[[self._row_of[digest] for digest in digests]])

    def add(self, digests: Sequence[bytes], rows: npt.NDArray[np.float32]) -> None:
        """Store new embeddings; some of them are written later, at the latest by `flush`."""
        self._new |= {
            digest: row.copy()
            for digest, row in zip(digests, rows, strict=True)
            if digest not in self._row_of
        }
        if len(self._new) >= AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Write what was added."""
        if not self._new:
            return
        try:
            with self._lock():
                n = self._complete()
                for path, size, content in (
                    (
                        self._rows,
                        4 * self.n_features,
                        np.stack(list(self._new.values())).astype(np.float32).tobytes(),
                    ),
                    (self._hashes, HASH, b"".join(self._new)),
                ):
                    with path.open("r+b") as file:
                        file.truncate(size * n)
                        file.seek(size * n)
                        file.write(content)
                        file.flush()
                        os.fsync(file.fileno())
        except OSError as error:
            raise cannot_write_error(self.folder, error, WAY_OUT) from error
        self._new = {}

    def _lock(self) -> AbstractContextManager[object]:
        return acquire_lock(self.folder / ".lock")

    def _complete(self) -> int:
        """The number of rows with a hash."""
        for path in (self._hashes, self._rows):
            path.touch()
        return min(
            self._hashes.stat().st_size // HASH, self._rows.stat().st_size // (4 * self.n_features)
        )
