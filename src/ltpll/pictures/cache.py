"""Cache: embeddings by the content of pictures, so that each is computed once per backbone."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ltpll.errors import InputError
from ltpll.files import cache_folder, check_writable
from ltpll.pictures.files import PictureError, check_picture_file, split_box

VARIABLE = "LTPLL_CACHE"
WAY_OUT = f"set {VARIABLE} to another folder for the cache"
WAIT_SECONDS = 60  # for other processes that write
TABLE = "embeddings (digest BLOB PRIMARY KEY, features BLOB)"


def embedding_cache_folder() -> Path:
    """The folder of what can be made again: $LTPLL_CACHE, or ltpll in the user's cache folder."""
    return cache_folder(VARIABLE)


def content_digest(file: str) -> bytes:
    """The SHA-256 of a picture's file and of the part that is meant, or a `PictureError`."""
    check_picture_file(file)
    name, box = split_box(file)
    try:
        with Path(name).open("rb") as content:
            digest = hashlib.file_digest(content, "sha256")
    except OSError as error:
        raise PictureError(f"cannot be read ({error.strerror or error})") from None
    if box is not None:
        digest.update(repr(box).encode())
    return digest.digest()


class EmbeddingCache:
    """Embeddings of one backbone in a database, to which several processes may add."""

    def __init__(self, folder: Path, n_features: int) -> None:
        check_writable(folder, WAY_OUT)
        self.file, self.n_features = folder / "embeddings.sqlite", n_features
        with self._database() as database:
            database.execute(f"CREATE TABLE IF NOT EXISTS {TABLE}")
            self._known = {
                digest for (digest,) in database.execute("SELECT digest FROM embeddings")
            }

    def __contains__(self, digest: bytes) -> bool:
        return digest in self._known

    def store_features(self, digests: Sequence[bytes], features: npt.NDArray[np.float32]) -> None:
        """Store the embeddings, (n, n_features), of pictures with these digests."""
        rows = [row.astype("<f4").tobytes() for row in features]
        with self._database() as database:
            database.executemany(
                "INSERT OR IGNORE INTO embeddings VALUES (?, ?)", zip(digests, rows, strict=True)
            )
        self._known.update(digests)

    def stored_features(self, digests: Sequence[bytes]) -> npt.NDArray[np.float32]:
        """The embeddings of known pictures, (n, n_features)."""
        query = "SELECT features FROM embeddings WHERE digest = ?"
        features = np.empty((len(digests), self.n_features), "<f4")
        with self._database() as database:
            for i, digest in enumerate(digests):
                features[i] = np.frombuffer(database.execute(query, (digest,)).fetchone()[0], "<f4")
        return features

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        """A connection to the database, to which all changes are written at the end."""
        try:
            with closing(sqlite3.connect(self.file, WAIT_SECONDS)) as database, database:
                yield database
        except sqlite3.Error as error:
            raise InputError(f"{self.file} cannot be used ({error}): {WAY_OUT}.") from error
