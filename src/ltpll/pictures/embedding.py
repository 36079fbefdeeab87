"""Embedding: the features of many pictures, computed while other processes decode the next ones."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

from ltpll.errors import InputError, shown
from ltpll.pictures.cache import EmbeddingCache
from ltpll.pictures.decoding import Block, decoded_blocks
from ltpll.pictures.files import (
    DECODING,
    Geometry,
    all_unreadable,
    check_on_error,
    picture_files,
    unreadable,
)
from ltpll.validation import whole_number

if TYPE_CHECKING:
    from ltpll.backbones import Backbone

FEWEST = 64  # pictures for which processes are started
LEAST_BLOCK = 64  # so that the threads of the network rarely wait for each other
MOST_WORKERS = 16
Progress = Callable[[int, int], None]
"""Called with the number of pictures that are done, and the number of all pictures."""


class Embed(Protocol):
    """What `Embedder` is: a function from 8-bit pictures, (n, side, side, 3), to features, (n, n_features)."""

    n_features: int
    batch_size: int

    def __call__(self, pictures: Any, /) -> npt.NDArray[Any]: ...


@dataclass(frozen=True)
class Embedded:
    """`features[k]` belongs to the picture of row `kept[k]`; `problems` lists the paths of all others with the reason."""

    features: npt.NDArray[np.float32]  # (N, d)
    kept: npt.NDArray[np.int64]
    problems: list[tuple[str, str]]


@dataclass(frozen=True)
class EmbeddedBlock:
    """Consecutive pictures from `first` up to, but without, `stop`; `features` are those of the rows in `kept`, in order."""

    first: int
    stop: int
    kept: list[int]
    features: npt.NDArray[np.float32]
    problems: dict[int, str]


Stream = Callable[[Sequence[str]], Generator[EmbeddedBlock]]
"""Embeds files in order, a block at a time."""


def embedded_pictures(
    folder: Path,
    paths: Sequence[str],
    backbone: Backbone,
    *,
    on_error: str = "stop",
    on_progress: Progress | None = None,
    cache: Path | None = None,
    device: str = "auto",
    precision: str = "float32",
    workers: int | None = None,
    stream: Stream | None = None,
) -> Embedded:
    """Embed pictures with a pretrained network, into memory.

    Args:
        folder: The folder that the paths are relative to.
        paths: One file per row; links are followed, but must not lead out of the folder.
        backbone: The network and its preprocessing.
        on_error: "stop" at the first picture that cannot be read, or "skip" such pictures.
        on_progress: Called with the number of pictures that are done and the total.
        cache: A folder that keeps embeddings, such as `cache_root()`, so that no picture is embedded twice; None for none.
        device: "cpu", "cuda" or "auto".
        precision: "float32" or "bfloat16".
        workers: Processes that decode pictures; by default one per core but one, and none for a few pictures.
        stream: What embeds the files instead of this machine.

    Returns:
        The features of the pictures that could be read, and the problems of the others.

    Raises:
        InputError: A picture cannot be read, a path leads out of the folder (even with "skip"), or no picture can be read.

    Examples:
        >>> from ltpll.backbones import Preprocessing
        >>> network = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.AdaptiveAvgPool2d(1))
        >>> backbone = Backbone(network, Preprocessing(side=32))
        >>> embedded_pictures(Path("photos"), ["a.jpg", "b.jpg"], backbone).features.shape
        (2, 8)
    """
    check_on_error(on_error)
    files = picture_files(folder, paths)
    if stream is None:
        stream = local_stream(
            backbone, cache=cache, device=device, precision=precision, workers=workers
        )
    n, features = len(files), np.empty((0, backbone.n_features), dtype=np.float32)
    kept: list[int] = []
    problems: dict[int, str] = {}
    with closing(checked(stream(files), folder, paths, on_error)) as blocks:
        for block in blocks:
            if block.kept and not kept:
                features = np.empty((n, block.features.shape[1]), dtype=np.float32)
            features[len(kept) : len(kept) + len(block.kept)] = block.features
            kept += block.kept
            problems |= block.problems
            if on_progress is not None:
                on_progress(block.stop, n)
    if n and not kept:
        raise all_unreadable(folder, n, str(paths[0]), problems[0])
    listed = [(str(paths[i]), reason) for i, reason in problems.items()]
    return Embedded(features[: len(kept)], np.asarray(kept, dtype=np.int64), listed)


def local_stream(
    backbone: Backbone,
    *,
    cache: Path | None = None,
    device: str = "auto",
    precision: str = "float32",
    workers: int | None = None,
) -> Stream:
    """A stream of embeddings that are computed on this machine; see `embedded_pictures` for the arguments."""

    def stream(files: Sequence[str]) -> Generator[EmbeddedBlock]:
        # When it is known that there is something to embed, since preparing the network takes seconds.
        from ltpll.backbones.embedder import Embedder

        networks = None if cache is None else cache / "networks"
        embed = Embedder(backbone, device, precision, cache=networks)  # type: ignore[arg-type]
        stored = (
            None
            if cache is None
            else EmbeddingCache(
                cache / "embeddings" / embedding_key(backbone, precision), backbone.n_features
            )
        )
        return embedded_blocks(
            files, Geometry.of(backbone.preprocessing), embed, workers=workers, cache=stored
        )

    return stream


def embedding_key(backbone: Backbone, precision: str) -> str:
    """What the embedding of a picture depends on besides its content."""
    return f"{backbone.fingerprint()}-{precision}-{DECODING}"


def embedded_blocks(
    files: Sequence[str],
    geometry: Geometry,
    embed: Embed,
    *,
    workers: int | None = None,
    cache: EmbeddingCache | None = None,
) -> Generator[EmbeddedBlock]:
    """Embed files in order, a block at a time; memory does not grow with their number."""
    block = embed.batch_size * max(1, LEAST_BLOCK // embed.batch_size)
    known = cache.known if cache is not None else None
    decoded = decoded_blocks(
        files,
        geometry,
        block=block,
        workers=chosen_workers(workers, len(files)),
        hashed=cache is not None,
        known=known,
    )
    try:
        with closing(decoded):  # ends the processes, also if the caller stops early
            for one in decoded:
                yield _embedded(one, files, embed, cache)
    finally:
        if cache is not None:
            cache.flush()


def chosen_workers(workers: int | None, n_files: int) -> int:
    """The number of processes that decode: the network needs the rest of the cores."""
    if workers is not None:
        return whole_number(workers, 0, "workers")
    return 0 if n_files < FEWEST else max(1, min(MOST_WORKERS, (os.cpu_count() or 1) - 1))


def _embedded(
    block: Block, files: Sequence[str], embed: Embed, cache: EmbeddingCache | None
) -> EmbeddedBlock:
    outcomes = block.outcomes
    decoded = [i for i, outcome in enumerate(outcomes) if outcome.decoded]
    known = [i for i, outcome in enumerate(outcomes) if outcome.known]
    kept = sorted(decoded + known)
    features = np.empty((len(outcomes), embed.n_features), dtype=np.float32)
    if decoded:
        pixels = block.pixels if len(decoded) == len(outcomes) else block.pixels[decoded]
        features[decoded] = finite(embed(pixels), [files[block.first + i] for i in decoded])
        if cache is not None:
            cache.add([outcomes[i].digest for i in decoded], features[decoded])
    if cache is not None and known:
        features[known] = cache.rows([outcomes[i].digest for i in known])
    problems = {
        block.first + i: outcome.problem for i, outcome in enumerate(outcomes) if outcome.problem
    }
    return EmbeddedBlock(
        block.first,
        block.first + len(outcomes),
        [block.first + i for i in kept],
        features[kept],
        problems,
    )


def finite(features: npt.NDArray[Any], files: Sequence[str]) -> npt.NDArray[Any]:
    """Refuse features that are not numbers, which would ruin every training on them."""
    bad = np.flatnonzero(~np.isfinite(features).all(axis=1))
    if len(bad):
        name = Path(files[bad[0]]).name
        raise InputError(
            f"The backbone gives NaN or infinite features for {shown(name, 200)}: check its weights, or use float32."
        )
    return features


def checked(
    blocks: Generator[EmbeddedBlock],
    folder: Path,
    paths: Sequence[str],
    on_error: str,
    first: int = 0,
) -> Generator[EmbeddedBlock]:
    """Number the rows from `first`, and stop at the first problem if `on_error` is "stop"; what comes before it is returned."""
    with closing(blocks):
        for one in blocks:
            problems = {row + first: reason for row, reason in one.problems.items()}
            block = EmbeddedBlock(
                one.first + first,
                one.stop + first,
                [row + first for row in one.kept],
                one.features,
                problems,
            )
            if problems and on_error == "stop":
                row = min(problems)
                before = [k for k in block.kept if k < row]
                yield EmbeddedBlock(block.first, row, before, block.features[: len(before)], {})
                raise unreadable(folder, str(paths[row]), row, problems[row])
            yield block
