"""Decoding: processes that decode pictures into shared memory while the network is busy with others.

The processes import this module, so it must not import torch.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import signal
import sys
import warnings
from collections.abc import Collection, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ltpll.errors import InputError
from ltpll.pictures.files import (
    Geometry,
    PictureError,
    check_picture_file,
    decode_picture,
    split_box,
)

AHEAD = 4  # blocks in shared memory: one is embedded while the others are decoded
CHUNK = 8  # pictures per message
MOST_CHUNKS = 16  # per process and not yet decoded; their answers must fit into a pipe, or both ends would wait for each other


class Outcome(NamedTuple):
    """What became of one picture: decoded, unless there is a problem or its content is known."""

    digest: bytes = b""  # SHA-256 of the file; empty if it was not needed
    problem: str = ""
    known: bool = False

    @property
    def decoded(self) -> bool:
        return not self.problem and not self.known


@dataclass(frozen=True)
class Block:
    """Consecutive pictures; the pixels, (n, side, side, 3), are valid until the next block is asked for."""

    first: int
    pixels: npt.NDArray[np.uint8]
    outcomes: list[Outcome]


@dataclass(frozen=True)
class KnownHashes:
    """The first `n` hashes of a file, 32 bytes each: pictures with this content need not be decoded."""

    path: Path
    n: int

    def load(self) -> set[bytes]:
        with self.path.open("rb") as file:
            content = file.read(32 * self.n)
        return {content[i : i + 32] for i in range(0, len(content), 32)}


def decoded_blocks(
    files: Sequence[str],
    geometry: Geometry,
    *,
    block: int,
    workers: int,
    hashed: bool = False,
    known: KnownHashes | None = None,
) -> Generator[Block]:
    """Decode pictures in order, a block at a time.

    Args:
        files: The files.
        geometry: How they become squares.
        block: The number of pictures per block; the last one may be smaller.
        workers: The number of processes; 0 decodes in this process.
        hashed: Whether the content is hashed.
        known: Content that is not decoded; needs `hashed`.

    Raises:
        InputError: A process died.
    """
    if workers == 0 or not files:
        return _decoded_here(files, geometry, block, hashed, known)
    return _decoded_in_processes(files, geometry, block, workers, hashed, known)


def _decoded_here(
    files: Sequence[str], geometry: Geometry, block: int, hashed: bool, known: KnownHashes | None
) -> Generator[Block]:
    digests = known.load() if known else set()
    pixels = np.zeros((block, geometry.side, geometry.side, 3), dtype=np.uint8)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's warnings about unusual files do not matter
        for first in range(0, len(files), block):
            some = files[first : first + block]
            yield Block(
                first,
                pixels[: len(some)],
                [
                    _decode(file, geometry, pixels[i], hashed, digests)
                    for i, file in enumerate(some)
                ],
            )


def _decode(
    file: str,
    geometry: Geometry,
    pixels: npt.NDArray[np.uint8],
    hashed: bool,
    known: Collection[bytes],
) -> Outcome:
    digest = b""
    try:
        if hashed:
            check_picture_file(file)
            name, box = split_box(file)
            with Path(name).open("rb") as content:
                digester = hashlib.file_digest(content, "sha256")
            if box is not None:
                digester.update(repr(box).encode())
            digest = digester.digest()
            if digest in known:
                return Outcome(digest, known=True)
        pixels[:] = decode_picture(file, geometry)
    except PictureError as problem:
        return Outcome(problem=str(problem))
    except OSError as error:
        return Outcome(problem=f"cannot be read ({error.strerror or error})")
    return Outcome(digest)


# ---- processes --------------------------------------------------------------------------------------------------------


class _Worker:
    """A process, its end of a pipe, and the number of chunks that it has not answered."""

    def __init__(self, context: Any, *arguments: Any) -> None:
        self.pipe: Connection
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=_work, args=(other, *arguments), daemon=True)
        self.process.start()
        other.close()  # so that the end of the process is the end of the pipe
        self.waiting = 0

    def send(self, first: int, files: Sequence[str]) -> None:
        with suppress(BrokenPipeError):  # receiving reports it
            self.pipe.send((first, files))
        self.waiting += 1

    def receive(self) -> tuple[int, list[Outcome]]:
        try:
            first, outcomes = self.pipe.recv()
        except (EOFError, ConnectionError):
            self.process.join()
            raise InputError(
                f"A process that decodes pictures ended with status {self.process.exitcode}, often because memory ran out: "
                "use fewer workers and try again."
            ) from None
        self.waiting -= 1
        return first, outcomes


def _decoded_in_processes(
    files: Sequence[str],
    geometry: Geometry,
    block: int,
    workers: int,
    hashed: bool,
    known: KnownHashes | None,
) -> Generator[Block]:
    # Row i is decoded into slot i modulo the number of slots, so that no list of free slots is needed.
    n, slots = len(files), AHEAD * block
    context = multiprocessing.get_context("spawn")  # a fork would copy torch's threads and CUDA
    shared = context.RawArray("B", slots * geometry.side * geometry.side * 3)
    pixels = _as_slots(shared, geometry)
    team: list[_Worker] = []
    outcomes: dict[int, Outcome] = {}
    sent = 0
    try:
        with _without_main_module():
            for _ in range(
                min(workers, -(-n // CHUNK))
            ):  # not a list comprehension: what has started is terminated below
                team.append(_Worker(context, shared, geometry, hashed, known))  # noqa: PERF401
        for first in range(0, n, block):
            last = min(first + block, n)
            while True:
                while sent < min(n, first + slots):
                    worker = min(team, key=lambda one: one.waiting)
                    if worker.waiting == MOST_CHUNKS:
                        break
                    stop = min(sent + CHUNK, n, first + slots)
                    worker.send(sent, files[sent:stop])
                    sent = stop
                if all(row in outcomes for row in range(first, last)):
                    break
                for pipe in wait([one.pipe for one in team]):
                    start, found = next(one for one in team if one.pipe is pipe).receive()
                    outcomes |= {start + i: Outcome(*outcome) for i, outcome in enumerate(found)}
            begin = first % slots
            yield Block(
                first,
                pixels[begin : begin + last - first],
                [outcomes.pop(row) for row in range(first, last)],
            )
    finally:
        for one in team:
            one.process.terminate()
        for one in team:
            one.process.join()
            one.pipe.close()


def _as_slots(shared: Any, geometry: Geometry) -> npt.NDArray[np.uint8]:
    return np.frombuffer(shared, dtype=np.uint8).reshape(-1, geometry.side, geometry.side, 3)


@contextmanager
def _without_main_module() -> Iterator[None]:
    """Keep new processes from importing the running script again, which may import torch or lack a guard against this."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def _work(
    pipe: Connection, shared: Any, geometry: Geometry, hashed: bool, known: KnownHashes | None
) -> None:
    """Decode until the parent closes the pipe, or dies."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # an interrupt reaches the whole process group; the parent handles it
    warnings.simplefilter("ignore")
    pixels = _as_slots(shared, geometry)
    digests = known.load() if known else set()
    with suppress(EOFError, ConnectionError):
        while True:
            first, files = pipe.recv()
            slots = (pixels[(first + i) % len(pixels)] for i in range(len(files)))
            found = [
                _decode(file, geometry, slot, hashed, digests)
                for file, slot in zip(files, slots, strict=True)
            ]
            pipe.send(
                (first, [tuple(outcome) for outcome in found])
            )  # plain tuples are smaller than named ones
