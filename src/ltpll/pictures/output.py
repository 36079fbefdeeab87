"""Output: embeddings written to an .npy file by a job that can be interrupted and resumed."""

from __future__ import annotations

import hashlib
import io
import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ltpll import __version__
from ltpll.errors import BusyError, InputError
from ltpll.files import (
    acquire_lock,
    cannot_write_error,
    check_output,
    check_writable,
    followed,
    parse_json,
    write_atomically,
)
from ltpll.formatting import counted
from ltpll.pictures.embedding import (
    EmbeddedBlock,
    Progress,
    Stream,
    checked,
    embedding_key,
    local_stream,
)
from ltpll.pictures.files import all_unreadable, check_on_error, picture_files
from ltpll.pictures.on_disk import file_state
from ltpll.tables.columns import TextColumn
from ltpll.tables.streaming import open_table
from ltpll.tables.writers import write_table

if TYPE_CHECKING:
    from ltpll.backbones import Backbone

FORMAT = "ltpll-embeddings-1"
ROW = "row"  # the column of the table beside the file that numbers its rows, from 0
SAVE_SECONDS = 2.0  # between two records of what is done
HEADER = 128  # bytes before the first row


def rows_file(out: Path) -> Path:
    """The table beside a file of embeddings that names the picture of every row."""
    return out.with_suffix(".rows.csv")


@dataclass(frozen=True)
class Written:
    """What is in a finished file: row k belongs to picture `kept[k]`; `problems` lists the others with the reason."""

    n_features: int
    kept: list[int]
    problems: list[tuple[str, str]]
    earlier: bool  # whether the file was finished before


def embed_pictures(
    folder: Path,
    paths: Sequence[str],
    backbone: Backbone,
    out: Path,
    *,
    ids: Sequence[str] | None = None,
    on_error: str = "stop",
    on_progress: Progress | None = None,
    cache: Path | None = None,
    device: str = "auto",
    precision: str = "float32",
    workers: int | None = None,
    stream: Stream | None = None,
    fresh: bool = False,
) -> Written:
    """Embed pictures into an .npy file of shape (pictures, features), in constant memory.

    The file appears when it is complete, with a table beside it, `.rows.csv`, that gives the picture of every row and the reason for every
    picture that was left out. Until then, what is done is in `.npy.partial`, and the same call resumes after an interrupt or a crash. A
    call with another backbone or other pictures, or with files whose size or time has changed, starts again, but never replaces a complete
    file.

    Args:
        folder, paths, backbone, on_error, cache, device, precision, workers, stream: As for `embedded_pictures`.
        out: The file to write.
        ids: Names of the pictures that are written to the table beside the file.
        on_progress: Called with the number of pictures that are done and the total; the first call says what was done before.
        fresh: Whether to discard what an earlier call wrote.

    Returns:
        The rows of the file, and the problems of the pictures that were left out.

    Raises:
        InputError: A picture cannot be read, `out` belongs to other or changed pictures or another backbone, or cannot be written.

    Examples:
        >>> from ltpll.backbones import Preprocessing
        >>> network = nn.Sequential(nn.Conv2d(3, 8, 3, stride=2), nn.AdaptiveAvgPool2d(1))
        >>> backbone = Backbone(network, Preprocessing(side=32))
        >>> out = Path("features.npy")
        >>> written = embed_pictures(Path("photos"), ["a.jpg", "b.jpg"], backbone, out)
        >>> np.load(out).shape
        (2, 8)
    """
    check_on_error(on_error)
    check_output(out, [".npy"], makes_folder=True)
    files = picture_files(folder, paths)
    if not files:
        raise InputError(f"There are no pictures to embed in {folder}.")
    if stream is None:
        stream = local_stream(
            backbone, cache=cache, device=device, precision=precision, workers=workers
        )
    check_writable(out.parent)
    listed = hashlib.sha256("\0".join(paths).encode()).hexdigest()
    job = {
        "format": FORMAT,
        "key": embedding_key(backbone, precision),
        "pictures": listed,
        "n": len(paths),
    }
    busy = BusyError(
        f"{out} is being written by another process: wait for it, or choose another file."
    )
    with acquire_lock(out.with_name(f".{out.name}.lock"), busy):
        states = np.asarray(
            [file_state(file) or (-1, -1) for file in files], dtype=np.int64
        )  # before they are read
        output = _Output(out, job, states, fresh, backbone.n_features)
        earlier = output.finished
        if on_progress is not None:
            on_progress(output.done, len(paths))
        if not earlier:
            about = {
                "backbone": backbone.name,
                "precision": precision,
                "folder": str(folder),
                "ltpll": __version__,
            }
            with (
                output.opened(about),
                closing(
                    checked(stream(files[output.done :]), folder, paths, on_error, output.done)
                ) as blocks,
            ):
                for block in blocks:
                    output.append_block(block)
                    if on_progress is not None:
                        on_progress(output.done, len(paths))
            if not output.n_kept:
                raise all_unreadable(folder, len(paths), str(paths[0]), output.problems[0])
        kept = [row for row in range(len(paths)) if row not in output.problems]
        if not earlier:
            _write_rows(rows_file(out), paths, ids, kept, output.problems)
            output.complete_file()
    return Written(
        backbone.n_features,
        kept,
        [(str(paths[row]), reason) for row, reason in output.problems.items()],
        earlier,
    )


class _Output:
    """The partial file, and the record of what is in it."""

    def __init__(
        self,
        out: Path,
        job: dict[str, Any],
        states: npt.NDArray[np.int64],
        fresh: bool,
        n_features: int,
    ) -> None:
        self.out, self.job, self.states, self.n_features = followed(out), job, states, n_features
        self.partial, self.record = (
            self.out.with_name(f"{self.out.name}.partial"),
            out.with_suffix(".job.json"),
        )
        self.done = self.n_kept = 0
        self.problems: dict[int, str] = {}
        if fresh and self.record.exists():  # otherwise the file may not be ours
            self.out.unlink(missing_ok=True)
            self.discard()
        self._resume()

    def discard(self) -> None:
        """Delete the partial file and its record."""
        self.record.unlink(missing_ok=True)
        self.partial.unlink(missing_ok=True)

    @property
    def finished(self) -> bool:
        return self.out.exists() and self.done == self.job["n"]

    def _resume(self) -> None:
        try:
            found: Any = parse_json(self.record.read_bytes())
            job, done, n_kept = found["job"], int(found["done"]), int(found["kept"])
            problems, seen = (
                {int(row): str(reason) for row, reason in found["problems"]},
                found.get("seen"),
            )
        except (OSError, ValueError, KeyError, TypeError):
            if self.out.exists():
                raise InputError(
                    f"{self.out} exists, and no record says what is in it: choose another file."
                ) from None
            return  # nothing to resume
        advice = "choose another file, or discard it with --fresh"
        if job != self.job:
            if not self.out.exists():
                return  # what another backbone or list began is not needed
            what = (
                "with another backbone"
                if job.get("key") != self.job["key"]
                else "of other pictures"
            )
            raise InputError(f"{self.out} holds embeddings {what}: {advice}.")
        held = self.out if self.out.exists() else self.partial
        if not held.exists() or held.stat().st_size < HEADER + 4 * n_kept * self.n_features:
            if held == self.out:
                raise InputError(f"{self.out} is damaged: {advice}.")
            return  # rows were lost in a crash of the machine: start again
        # Records of version 0.2 do not say which files were seen: only that none has changed since then.
        newer = bool((self.states[:, 1] > held.stat().st_mtime_ns).any())
        if newer if seen is None else seen != self._seen(done):
            if held == self.out:
                raise InputError(
                    f"{self.out} holds embeddings of pictures whose files have changed since: {advice}."
                )
            return  # its rows would be of both
        self.done, self.n_kept, self.problems = done, n_kept, problems

    def _seen(self, done: int) -> str:
        """A hash of the sizes and times of the first files."""
        return hashlib.sha256(self.states[:done].tobytes()).hexdigest()

    @contextmanager
    def opened(self, about: dict[str, Any]) -> Iterator[None]:
        """Open the partial file after the last row that is recorded; at the end, and if anything fails, the record is saved."""
        self._about, self._saved = about, time.monotonic()
        try:
            with self.partial.open("r+b" if self.partial.exists() else "w+b") as self._file:
                self._file.truncate(HEADER + 4 * self.n_kept * self.n_features)
                self._file.seek(0, io.SEEK_END)
                try:
                    yield
                finally:
                    if self.n_kept:
                        self._save()
                    else:  # nothing is lost, and pictures that could not be read may have been replaced before the next call
                        self.discard()
        except OSError as error:
            raise cannot_write_error(self.out, error) from error

    def append_block(self, block: EmbeddedBlock) -> None:
        self._file.write(np.ascontiguousarray(block.features, dtype="<f4").data)
        self.done, self.n_kept = block.stop, self.n_kept + len(block.kept)
        self.problems |= block.problems
        if time.monotonic() - self._saved >= SAVE_SECONDS:
            self._save()

    def _save(self) -> None:
        self._file.flush()
        os.fsync(
            self._file.fileno()
        )  # a record must not promise rows that a crash of the machine could take away
        record = {
            "job": self.job,
            **self._about,
            "n_features": self.n_features,
            "done": self.done,
            "kept": self.n_kept,
        }
        record["seen"] = self._seen(self.done)
        write_atomically(
            self.record, json.dumps({**record, "problems": list(self.problems.items())}).encode()
        )
        self._saved = time.monotonic()

    def complete_file(self) -> None:
        header = io.BytesIO()
        shape = {"descr": "<f4", "fortran_order": False, "shape": (self.n_kept, self.n_features)}
        np.lib.format.write_array_header_1_0(header, shape)
        assert len(header.getvalue()) == HEADER
        try:
            with self.partial.open("r+b") as file:
                file.write(header.getvalue())
                file.flush()
                os.fsync(file.fileno())
            self.partial.replace(self.out)
        except OSError as error:
            raise cannot_write_error(self.out, error) from error


def _write_rows(
    path: Path,
    paths: Sequence[str],
    ids: Sequence[str] | None,
    kept: Sequence[int],
    problems: dict[int, str],
) -> None:
    numbers: list[int | None] = [None] * len(paths)
    for number, row in enumerate(kept):
        numbers[row] = number
    names = {} if ids is None else {"id": list(ids)}
    write_table(
        path,
        {
            ROW: numbers,
            **names,
            "path": list(paths),
            "problem": [problems.get(row, "") for row in range(len(paths))],
        },
    )


def read_rows(out: Path, n: int) -> dict[str, list[str]]:
    """The paths and ids of the n rows of an .npy file, as `embed_pictures` wrote them beside it; nothing if it did not.

    Raises:
        InputError: The table beside the file is about another number of rows.
    """
    path = rows_file(out)
    if out.suffix.lower() != ".npy" or not path.is_file():
        return {}
    table = open_table(path)
    if not {ROW, "path"} <= set(table.names):
        return {}  # not ours
    columns = {
        name: TextColumn(table, table.column(name))
        for name in (ROW, "id", "path")
        if name in table.names
    }
    for batch in table.batches([column.index for column in columns.values()]):
        for column in columns.values():
            column.add(batch)
    values = {name: column.values().tolist() for name, column in columns.items()}
    number = {
        i: int(row) if row.isdecimal() else -1 for i, row in enumerate(values.pop(ROW)) if row
    }
    kept = sorted(number, key=lambda i: number[i])
    if [number[i] for i in kept] != list(range(n)):
        raise InputError(
            f"{path} does not name the {counted(n, 'row')} of {out.name}, so the two do not belong together: run `ltpll embed --fresh`, or "
            "move one of them elsewhere."
        )
    return {name: [texts[i] for i in kept] for name, texts in values.items()}
