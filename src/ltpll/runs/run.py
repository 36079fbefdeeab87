"""Runs: a config, a folder, a stream of records, and a `done` marker that is written last."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ltpll.errors import BusyError, InputError, InputWarning, VersionError, first_line
from ltpll.files import (
    acquire_lock,
    cannot_write_error,
    followed,
    other_version,
    parse_json,
    remove_leftovers,
    write_atomically,
)
from ltpll.runs.run_files import RunFile
from ltpll.runs.schema import Kind, kind_of_run, record_problem
from ltpll.runs.schema import Record as Record

FORMAT = "ltpll-run-1"
_SUM = re.compile(r"([0-9a-f]{64})  ([A-Za-z0-9._-]+)")


@dataclass(frozen=True)
class Run:
    """One training in one folder.

    The folder is named by a hash of the config, so that the same config under the same root is the
    same run and is never trained twice.

    Args:
        root: The folder in which the run's folder lies.
        config: Everything that determines the training, as JSON values.
        name: The name of the folder where a user has chosen one.

    Examples:
        >>> run = Run(Path("runs"), {"method": "corr", "seed": 0})
        >>> run.start()
        >>> run.log({"epoch": 1, "loss": 0.5})
        >>> run.finish({"accuracy": 0.9})
        >>> Run.open(run.folder).result()["accuracy"]
        0.9
    """

    root: Path
    config: Record
    name: str = ""

    @classmethod
    def open(cls, folder: str | Path, kind: Kind | None = None) -> Run:
        """Open an existing run folder, finished or not, whatever its name is now.

        Args:
            folder: The folder, which may have been renamed or moved.
            kind: The kind of run that is needed; None accepts every kind.

        Returns:
            The run; `done` says whether it is finished, and `result` returns its record.

        Raises:
            InputError: It is not a run folder, its config is damaged, or it is of another kind.

        Examples:
            >>> Run.open("ltpll-runs/birds").result()["classes"]
            ['a', 'b', 'c']
        """
        folder = Path(folder)
        config = _read_config(folder)
        found = kind_of_run(config)
        if kind is not None and found is not kind:
            other = f"it is {found or 'a run of another kind'}, not {kind}"
            raise unreadable_run(folder, other, f"give the folder of {kind}")
        place = folder if folder.name not in ("", "..") else folder.resolve()
        return cls(place.parent, config, "" if place.name == config_hash(config) else place.name)

    @property
    def key(self) -> str:
        """The hash of the config."""
        return config_hash(self.config)

    @property
    def folder(self) -> Path:
        return self.root / (self.name or self.key)

    @property
    def done(self) -> bool:
        """Whether the run is finished and none of its files is missing, whatever they hold."""
        sums = checksums(self.folder)
        return bool(sums) and all((self.folder / name).exists() for name in sums)

    def reopen_if_damaged(self) -> None:
        """Make a finished run that has missing or damaged files unfinished.

        Damaged files are deleted. If the log is damaged, which no other file can replace, the whole
        run is deleted.
        """
        if not damaged_files(self.folder):
            return
        with self.locked():
            damaged = damaged_files(self.folder)  # another process may have restored them by now
            if damaged:
                lost = f"The run {self.folder} has lost or damaged files ({', '.join(damaged)})"
                warnings.warn(f"{lost}: training restores them.", InputWarning, stacklevel=2)
                if RunFile.LOG in damaged:
                    self.delete_run()
                for name in (RunFile.MARKER, *damaged):
                    if name != RunFile.CONFIG:  # replaced atomically
                        (self.folder / name).unlink(missing_ok=True)

    def delete_run(self, *, keep_parts: bool = False) -> None:
        """Delete the files of the run, but not its config, answers, and files that are not its own.

        With `keep_parts`, those of training runs that need not be repeated stay, too. If the
        process dies halfway, the rest does not look finished.
        """
        remove_leftovers(self.folder, "probe")  # of `check_writable`
        for file in RunFile:
            for path in () if keep_parts and file.part else file.found_in(self.folder):
                if path.is_dir():
                    shutil.rmtree(path)
                elif path.name not in (RunFile.CONFIG, RunFile.ANSWERS):
                    path.unlink()

    def check_folder(self, *, afresh: bool = False) -> None:
        """Refuse a folder with other files or another run, unless that is trained `afresh`."""
        folder = self.folder
        if folder.exists() and not folder.is_dir():
            raise InputError(f"{folder} is a file: give the name of a folder for the run.")
        try:
            before = self.stored_config()
        except FileNotFoundError:
            # A process that died before it had written the config leaves at most a temporary file.
            paths = folder.iterdir() if folder.is_dir() else ()
            if any(not path.name.startswith(".config.json.") for path in paths):
                other = f"{folder} contains files but is not a run folder"
                raise InputError(f"{other}: give a new folder for the run.") from None
            return
        except (OSError, ValueError) as error:
            damaged = f"its config.json is damaged: {first_line(error)}"
            raise unreadable_run(folder, damaged, "give another folder") from None
        if not isinstance(before, dict) or kind_of_run(before) is not kind_of_run(self.config):
            other = f"The folder {folder} contains a run of another kind"
            raise InputError(f"{other}: give another folder.")
        names = sorted({*before, *self.config})
        differing = [name for name in names if before.get(name) != self.config.get(name)]
        if differing and not afresh and not self._untrained():
            raise InputError(
                f"The run in {folder} was started with other settings or data (different: "
                f"{', '.join(differing)}): give another folder, or --fresh to train it from the "
                "start. Only another goal needs no new training: `ltpll predict --goal`."
            )

    def stored_config(self) -> Any:
        """The config in the folder, which may be that of another run, or damaged."""
        return parse_json((self.folder / RunFile.CONFIG).read_bytes())

    def _untrained(self) -> bool:
        """Whether the folder holds only a config: the run failed before it had stored anything."""
        checkpoints = (RunFile.CHECKPOINT, RunFile.OTHER_CHECKPOINTS)
        kept = [file for file in RunFile if file.part or file in checkpoints]
        stored = any(path for file in kept for path in self.folder.glob(file.value))
        return not self.done and self.epochs_logged() == 0 and not stored

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep others from training this run until this process ends; BusyError if one does."""
        name = f"The run {self.folder.name} in {self.root}"
        busy = BusyError(f"{name} is being trained by another process: wait for it.")
        with self._refusing_write_errors():
            self.root.mkdir(parents=True, exist_ok=True)
            lock = acquire_lock(self.root / f".{self.folder.name}.lock", busy)
        with lock:
            yield

    def start(self) -> None:
        """Create the folder; of an interrupted attempt, finished parts of the same run are kept."""
        before = None
        with suppress(OSError, ValueError):
            before = self.stored_config()
        with self._refusing_write_errors():
            self.delete_run(keep_parts=before == self.config)
            self.folder.mkdir(parents=True, exist_ok=True)
            write_atomically(self.folder / RunFile.CONFIG, _as_json_lines(self.config))

    @contextmanager
    def _refusing_write_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            problem = f"The run folder {self.folder} cannot be written ({error.strerror})"
            raise InputError(f"{problem}: choose another output folder.") from error

    def log(self, record: Record, durable: bool = False) -> None:
        """Append an epoch's record to the log; a durable one survives a power cut."""
        line, path = json.dumps(record, allow_nan=False) + "\n", self.folder / RunFile.LOG
        try:
            with path.open("a", encoding="utf-8") as file:
                file.write(line)
                if durable:
                    file.flush()
                    os.fsync(file.fileno())
        except OSError as error:
            raise cannot_write_error(path, error) from error

    def records(self) -> list[Record]:
        """The records logged so far, one per epoch."""
        return self._logged()[1]

    def cut_log(self, n: int) -> None:
        """Cut the log back to its first n records; later epochs are trained again."""
        lines = self._logged(n)[0]
        remove_leftovers(self.folder)
        write_atomically(self.folder / RunFile.LOG, b"".join(lines))

    def _logged(self, n: int | None = None) -> tuple[list[bytes], list[Record]]:
        """The first n complete lines, or all, as a process that died may have left part of one."""
        path = self.folder / RunFile.LOG
        try:
            content = path.read_bytes() if path.exists() else b""
            lines = content.splitlines(keepends=True)
            lines = [line for line in lines if line.endswith(b"\n")][:n]
            found = [parse_json(line) for line in lines]
            if (n or 0) > len(found) or not all(isinstance(one, dict) for one in found):
                raise ValueError
        except (OSError, ValueError):
            problem = f"The log {path} is damaged or lacks epochs"
            raise InputError(f"{problem}: train the run from the start with --fresh.") from None
        for record in found:
            record.pop("crc32", None)  # written by version 0.2.0
        return lines, found

    def epochs_logged(self) -> int:
        """How many epochs the log has records of."""
        try:
            return (self.folder / RunFile.LOG).read_bytes().count(b"\n")
        except OSError:
            return 0

    def finish(self, result: Record) -> None:
        """Write the record, with the config and its key, then the marker with all checksums."""
        record = {"format": FORMAT, "key": self.key, "config": self.config, **result}
        write_atomically(self.folder / RunFile.RESULT, _as_json_lines(record))
        names = [file for file in RunFile if file.checked and (self.folder / file).exists()]
        write_atomically(self.folder / RunFile.MARKER, marker_text(self.folder, names))

    def result(self) -> Record:
        """The record of a finished run, checked against its checksum and its schema.

        Raises:
            InputError: The run is not finished, or its record is missing or damaged.
        """
        if not (self.folder / RunFile.MARKER).exists():
            advice = "rerun the command that started it"
            raise unreadable_run(self.folder, "it is not finished", advice)
        return _read_record(self.folder / RunFile.RESULT, kind_of_run(self.config))


def read_result(path: str | Path, kind: Kind | None = None) -> Record:
    """The record of a finished run of some kind, or of any, from its folder or a `result.json`.

    Raises:
        InputError: The run cannot be opened or is not finished, or the record is damaged or of
            another kind.

    Examples:
        >>> read_result("ltpll-runs/birds")["config"]["method"]
        'corr'
    """
    path = Path(path)
    is_file = path.is_file() or (path.suffix == ".json" and not path.is_dir())
    return _read_record(path, kind) if is_file else Run.open(path, kind).result()


def run_of_file(path: Path) -> Path | None:
    """The folder of the run that a path is a file of, or would be; None for all other files."""
    real = followed(path)
    for folder in real.parents:
        name = real.relative_to(folder).parts[0].lower()  # some file systems ignore case
        if any(file.matches(name) for file in RunFile) and (folder / RunFile.CONFIG).exists():
            return folder
    return None


def config_hash(config: Mapping[str, Any]) -> str:
    """Twelve hexadecimal digits that depend on the config, but not on the order of its keys."""
    canonical = json.dumps(config, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()[:12]


def _read_config(folder: Path) -> Record:
    advice = "give a folder that `ltpll train` wrote"
    if not folder.exists():
        raise unreadable_run(folder, "there is no such folder", advice)
    try:
        config = parse_json((folder / RunFile.CONFIG).read_bytes())
        config_hash(config)
        if not isinstance(config, dict):
            raise ValueError("it is not a mapping")
    except (FileNotFoundError, NotADirectoryError):
        missing = "it is not a run folder, since it has no config.json"
        raise unreadable_run(folder, missing, advice) from None
    except (OSError, ValueError) as error:
        damaged = f"its config.json is damaged: {first_line(error)}"
        raise unreadable_run(folder, damaged, "restore it, or train the run again") from None
    return config


def _read_record(path: Path, kind: Kind | None = None) -> Record:
    """A result file, checked by its checksum if it belongs to a run, and by its schema if any."""
    of_run = (path.parent / RunFile.MARKER).exists()
    try:
        record = parse_json((read_checked(path) if of_run else path.read_bytes()).decode())
        if isinstance(record, dict) and (other := other_version(record.get("format"), FORMAT)):
            advice = "use the version that wrote it, or train again"
            raise VersionError(f"The result file {path} {other}: {advice}.")
        problem = None
        if not isinstance(record, dict) or record.get("format") != FORMAT:
            problem = "is not a result file of this program"
        elif not isinstance(record.get("config"), dict) or not isinstance(record.get("key"), str):
            problem = "has no config or no key"
        elif found := record_problem(record, kind or kind_of_run(record["config"])):
            problem = f"has {found}"
    except InputError:
        raise
    except (OSError, ValueError) as error:
        problem = f"is damaged: {first_line(error)}"
    if problem is None:
        return dict(record)
    if of_run:
        of_file = f"its file {path.name} {problem}"
        raise unreadable_run(path.parent, of_file, "train it again with --fresh")
    cannot = f"The result file {path} cannot be read (it {problem})"
    raise InputError(f"{cannot}: check the path, restore it from a copy, or leave it out.")


def _as_json_lines(value: Record) -> bytes:
    """One line per entry: short enough to commit, and still readable in a diff."""
    lines = (
        f"{json.dumps(key)}: {json.dumps(value[key], sort_keys=True, allow_nan=False)}"
        for key in sorted(value)
    )
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode()


# ---- checksums ---------------------------------------------------------------------------------


def unreadable_run(folder: Path, problem: str, advice: str) -> InputError:
    """The error for every run folder that cannot be used, whatever the reason."""
    return InputError(f"The run {folder} cannot be read ({problem}): {advice}.")


def marker_text(folder: Path, names: Iterable[str]) -> bytes:
    """The content of a marker for some files of a folder; `sha256sum --check done` reads it too."""
    lines = (f"{_sha256((folder / name).read_bytes())}  {name}\n" for name in sorted(names))
    return "".join(lines).encode()


def checksums(folder: Path) -> dict[str, str]:
    """The sums in a folder's marker by file name; empty if the marker is missing or damaged."""
    try:
        lines = (folder / RunFile.MARKER).read_bytes().decode("ascii").split("\n")
    except (OSError, UnicodeDecodeError):
        return {}
    found = [_SUM.fullmatch(line) for line in lines[:-1]]
    return {line[2]: line[1] for line in found if line} if all(found) and not lines[-1] else {}


def read_checked(path: Path) -> bytes:
    """Read a file of a finished run.

    Raises:
        InputError: The file is missing, was changed, or belongs to another run.
    """
    expected, problem = checksums(path.parent).get(path.name), ""
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        problem = f"its file {path.name} is missing"
    except OSError as error:
        problem = f"its file {path.name}: {error.strerror or error}"
    else:
        if expected is None:
            problem = f"there is no checksum of its file {path.name}"
        elif _sha256(content) != expected:
            problem = f"its file {path.name} is damaged or not the file that the run wrote"
    if problem:
        advice = "rerun the command that trained it to restore it"
        raise unreadable_run(path.parent, problem, advice)
    return content


def damaged_files(folder: Path) -> list[str]:
    """The missing or changed files of a finished run; the marker itself if it lists none."""
    sums = checksums(folder)
    if not sums:
        return [RunFile.MARKER] if (folder / RunFile.MARKER).exists() else []
    found = []
    for name in sums:
        try:
            read_checked(folder / name)
        except InputError:
            found.append(name)
    return found


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
