"""Runs: a config, a folder named by its hash, a stream of records, and a `done` marker written last."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import warnings
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ltpll.errors import BusyError, InputError, InputWarning, first_line
from ltpll.files import cannot_write, parse_json, remove_leftovers, write_atomically
from ltpll.runs.checksums import MARKER, RESTORE, checksums, damaged_files, marker_of, read_checked

FORMAT = "ltpll-run-1"
# What a run writes into its folder beside its config, which is replaced in one move and so never missing. The marker comes first: what is
# left of a deletion that was cut short must not look finished.
OWN_FILES = (
    MARKER,
    "result.json",
    "metrics.jsonl",
    "checkpoint*.safetensors",
    "fold-*.safetensors",
    ".epochs-of-fold-*",
    "classifier.safetensors",
    "examples.parquet",
    "votes.parquet",
    "pictures.parquet",
    "tensorboard",
    "failed.txt",
)
# Those that are read again when the run is finished; checkpoints and folds have checksums of their own.
CHECKED = ("config.json", "result.json", "metrics.jsonl", "classifier.safetensors", "examples.parquet", "votes.parquet", "pictures.parquet")
CRC = "crc32"  # of the rest of a line of the log
Record = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """One training: the same config under the same root is the same folder, so a finished run is never trained twice."""

    root: Path
    config: Record
    name: str = ""  # of the folder, where a user has chosen one; files that are not the run's are left alone in it

    @property
    def key(self) -> str:
        return config_hash(self.config)

    @property
    def folder(self) -> Path:
        return self.root / (self.name or self.key)

    @property
    def done(self) -> bool:
        """Whether the run is finished and has all its files; `reopen_if_damaged` looks into them, too."""
        sums = checksums(self.folder)
        return bool(sums) and all((self.folder / name).exists() for name in sums)

    def reopen_if_damaged(self) -> list[str]:
        """Take a finished run that has missing or damaged files for unfinished, so that training restores them.

        What is damaged is deleted. If it is the log, which nothing else holds, the whole run is.

        Returns:
            The names of these files; empty if all are whole or the run is not finished.

        Raises:
            BusyError: Another process is training the run.
        """
        if not damaged_files(self.folder):
            return []
        with self.locked():
            damaged = damaged_files(self.folder)  # another process may have restored them, or started the run again, since
            if damaged:
                found = f"The run {self.folder} has lost or damaged files ({', '.join(damaged)}): they are made again."
                warnings.warn(found, InputWarning, stacklevel=2)
                if "metrics.jsonl" in damaged:
                    self.forget()
                for name in (MARKER, *damaged):
                    if name != "config.json":  # written again in one move
                        (self.folder / name).unlink(missing_ok=True)
        return damaged

    def forget(self) -> None:
        """Delete the folder, in one move: half of a run, left by a process that died on the way, could be taken for one.

        Of a folder that a user has named, only what a run writes into it is deleted, its marker first.
        """
        if not self.name:
            old = self.root / f".{self.folder.name}.old"
            if old.exists():
                shutil.rmtree(old)
            if self.folder.exists():
                (self.folder / MARKER).unlink(missing_ok=True)
                self.folder.rename(old)
                shutil.rmtree(old)
            return
        for path in [path for pattern in OWN_FILES for path in self.folder.glob(pattern)]:
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    def check_folder(self, *, afresh: bool = False) -> None:
        """Refuse a folder that a user has named if it holds files and no training, or another training that is not to be replaced."""
        if self.folder.exists() and not self.folder.is_dir():
            raise InputError(f"{self.folder} is a file: give the name of a folder for the run.")
        try:
            before = parse_json((self.folder / "config.json").read_bytes())
        except FileNotFoundError:
            # A process that died before it had written the config has left no more than a file that was to become it.
            if self.folder.is_dir() and any(not path.name.startswith(".config.json.") for path in self.folder.iterdir()):
                raise InputError(f"The folder {self.folder} holds files, but no run: give a new folder for the run.") from None
            return
        except (OSError, ValueError) as error:
            raise InputError(f"The run folder {self.folder} cannot be read ({first_line(error)}): give another.") from None
        if not isinstance(before, dict) or before.get("experiment") != self.config.get("experiment"):
            raise InputError(f"The folder {self.folder} holds something else than this kind of run: give another.")
        if afresh or self._untrained():
            return
        differing = sorted(name for name in {*before, *self.config} if before.get(name) != self.config.get(name))
        if differing:
            raise InputError(
                f"The run in {self.folder} was started with other settings or data (different: {', '.join(differing)}): "
                "give another folder, or --fresh to train it anew."
            )

    def _untrained(self) -> bool:
        """Whether the folder holds no more than the config of a training that failed before its first epoch was over."""
        return not self.done and self.epochs_logged() == 0 and not any(self.folder.glob("checkpoint*.safetensors"))

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from training this run; refused if one does. The lock of a process that dies is gone with it."""
        try:
            self.root.mkdir(parents=True, exist_ok=True)
            lock = FileLock(self.root / f".{self.folder.name}.lock")
            lock.acquire(blocking=False)
        except Timeout:
            raise BusyError(f"The run {self.folder.name} in {self.root} is being trained by another process: wait for it.") from None
        except OSError as error:
            raise InputError(f"The run folder {self.folder} cannot be written ({error.strerror}): choose another output folder.") from error
        try:
            yield
        finally:
            lock.release()

    def start(self) -> None:
        """Make the folder and clear what an interrupted attempt left in it."""
        try:
            self.forget()
            self.folder.mkdir(parents=True, exist_ok=bool(self.name))
            write_atomically(self.folder / "config.json", _json(self.config))
        except OSError as error:
            raise InputError(f"The run folder {self.folder} cannot be written ({error.strerror}): choose another output folder.") from error

    @property
    def _stream(self) -> Path:
        return self.folder / "metrics.jsonl"

    def log(self, record: Record, durable: bool = False) -> None:
        """Append one record to the stream; a durable one outlives a power cut, as the checkpoint behind it does."""
        line = json.dumps({**record, CRC: _line_checksum(record)}) + "\n"
        try:
            with self._stream.open("a", encoding="utf-8") as file:
                file.write(line)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
        except OSError as error:
            raise cannot_write(self._stream, error) from error

    def records(self) -> list[Record]:
        """The stream so far."""
        try:
            return [_checked_record(line) for line in self._lines()]
        except (OSError, ValueError):
            raise InputError(f"The log {self._stream} is missing or damaged: {self._start_over}.") from None

    def keep_log(self, n: int) -> None:
        """Cut the stream back to its first n records: those behind the last checkpoint will be made again."""
        lines = self._lines() if self._stream.exists() else []
        try:
            for line in lines[:n]:
                _checked_record(line)
        except ValueError:
            raise InputError(f"The log {self._stream} is damaged: {self._start_over}.") from None
        if len(lines) < n:
            raise InputError(f"The log {self._stream} has {len(lines)} of the {n} epochs of its checkpoint: {self._start_over}.")
        remove_leftovers(self.folder)
        write_atomically(self._stream, b"".join(lines[:n]))

    @property
    def _start_over(self) -> str:
        return "train the run anew with --fresh" if self.name else f"delete the folder {self.folder} and rerun the command"

    def _lines(self) -> list[bytes]:
        """Without the beginning of one that a process left when it died."""
        return [line for line in self._stream.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]

    def epochs_logged(self) -> int:
        """How many records the stream has: the epochs done, of a finished run as of one under way."""
        try:
            return (self.folder / "metrics.jsonl").read_bytes().count(b"\n")
        except OSError:
            return 0

    def finish(self, result: Record) -> None:
        """Write the result, then the marker that makes it count, with the checksums of all files that are read again."""
        write_atomically(self.folder / "result.json", _json({"format": FORMAT, "key": self.key, "config": self.config, **result}))
        names = [name for name in CHECKED if (self.folder / name).exists()]
        write_atomically(self.folder / MARKER, marker_of(self.folder, names))

    def result(self) -> Record:
        return read_result(self.folder / "result.json")


def check_not_of_run(path: Path) -> None:
    """Refuse to write over a file that a run reads again.

    Raises:
        InputError: The path leads to such a file.
    """
    real = path.resolve()
    if (real.parent / "config.json").exists() and any(fnmatch(real.name, pattern) for pattern in ("config.json", *OWN_FILES)):
        raise InputError(f"{path} is a file of the run {path.parent}, which would be lost: write to another file.")


def config_hash(config: Mapping[str, Any]) -> str:
    """Twelve hexadecimal digits that depend on the config's content and not on the order of its keys."""
    canonical = json.dumps(config, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def record_of(run: Path) -> Record:
    """The record of a finished run, from its folder or its result file."""
    return read_result(run / "result.json" if run.is_dir() else run)


def read_result(path: Path) -> Record:
    """A result file; one in the folder of a finished run is compared with its checksum.

    Raises:
        InputError: It is missing, damaged, or not a result file.
    """
    of_run = (path.parent / MARKER).exists()
    advice = RESTORE if of_run else "delete it and make it again"
    try:
        record = parse_json((read_checked(path) if of_run else path.read_bytes()).decode())
    except FileNotFoundError:
        raise InputError(f"There is no result file {path}.") from None
    except InputError:
        raise
    except (OSError, ValueError) as error:
        raise InputError(f"The result file {path} cannot be read ({first_line(error)}): {advice}.") from None
    if not isinstance(record, dict) or record.get("format") != FORMAT:
        raise InputError(f"{path} is not a result file of this program.")
    if not isinstance(record.get("config"), dict) or not isinstance(record.get("key"), str):
        raise InputError(f"The result file {path} is damaged (it has no config or no key): {advice}.")
    return record


def finished_in(folder: Path, *, skip_damaged: bool = False) -> list[Record]:
    """The records of a folder: of the finished runs in it, and of result files that lie in it by themselves.

    With `skip_damaged` a run whose result is missing or damaged counts as unfinished, and a warning says so.
    """
    found = []
    for marker in sorted(folder.glob(f"*/{MARKER}")):
        try:
            found.append(read_result(marker.parent / "result.json"))
        except InputError as error:
            if not skip_damaged:
                raise
            warnings.warn(str(error), InputWarning, stacklevel=2)
    return found + [read_result(path) for path in sorted(folder.glob("*.json"))]


def results_under(folder: Path) -> Iterator[Record]:
    """All result records of a folder of committed results (`*.json`), in a stable order."""
    for path in sorted(folder.rglob("*.json")):
        yield read_result(path)


def _line_checksum(record: Record) -> str:
    return f"{zlib.crc32(json.dumps(record, allow_nan=False).encode()):08x}"


def _checked_record(line: bytes) -> Record:
    record = parse_json(line)
    if not isinstance(record, dict) or record.pop(CRC, None) != _line_checksum(record):
        raise ValueError("a line of the log is damaged")
    return record


def _json(value: Record) -> bytes:
    """One line for each entry: short enough to commit, and still readable in a diff."""
    lines = (f"{json.dumps(key)}: {json.dumps(value[key], sort_keys=True, allow_nan=False)}" for key in sorted(value))
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()
