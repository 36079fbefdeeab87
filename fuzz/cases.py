"""Runs one case under guard, and saves and minimises the case if it is a finding."""

from __future__ import annotations

import hashlib
import json
import shutil
import traceback
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import ltpll
import ltpll_research
from fuzz.guard import ForbiddenError, Guard, SlowError
from fuzz.targets import Target, check_sentence
from ltpll.errors import InputError

PACKAGES = tuple(Path(package.__file__).parent for package in (ltpll, ltpll_research))


@dataclass(frozen=True)
class Finding:
    """A case that a reader neither read nor rejected with a proper message."""

    target: str
    kind: str  # the type of the error, "slow", "forbidden", "message", or how the process died
    where: str  # the innermost line of the package, which tells findings apart
    message: str
    case: bytes

    def save(self, folder: Path) -> dict[str, Any]:
        """Write the case and, next to it, a description with the command that runs it again."""
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{self.target}-{self.kind}-{hashlib.sha256(self.case).hexdigest()[:12]}"
        (folder / f"{name}.bin").write_bytes(self.case)
        about = {key: value for key, value in asdict(self).items() if key != "case"}
        about |= {
            "bytes": len(self.case),
            "file": f"{name}.bin",
            "replay": f"python -m fuzz --replay {folder / name}.bin {self.target}",
        }
        (folder / f"{name}.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
        return about


@dataclass(frozen=True)
class Outcome:
    """`place` is the line that rejected the case; `finding` is set if it was neither read nor
    rejected properly.
    """

    read: bool
    place: str
    finding: Finding | None = None


class Runner:
    """Runs cases of one target in a folder that is emptied now and then."""

    def __init__(self, target: Target, folder: Path, guard: Guard, seconds: float) -> None:
        self.target, self.guard, self.seconds = target, guard, seconds
        self.folder = folder / "case"
        self.folder.mkdir(parents=True, exist_ok=True)
        self._n = 0
        warnings.simplefilter("ignore")

    def __call__(self, case: bytes) -> Outcome:
        self._n += 1
        if self._n % 64 == 0:
            self._empty()
        try:
            with self.guard.watching(self.seconds):
                self.target.run(case, self.folder)
        except InputError as error:
            place = _last_line(error.__traceback__)
            try:
                check_sentence(error)
            except Exception as problem:
                return Outcome(
                    False,
                    place,
                    Finding(self.target.name, "message", place, str(problem)[:1000], case),
                )
            return Outcome(False, place)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # any other error is a finding
            kind = {SlowError: "slow", ForbiddenError: "forbidden"}.get(
                type(error), type(error).__name__
            )
            place = _last_line(error.__traceback__)
            message = "".join(traceback.format_exception(error)[-6:])[-1500:]
            return Outcome(False, place, Finding(self.target.name, kind, place, message, case))
        return Outcome(True, "")

    def _empty(self) -> None:
        for path in self.folder.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _last_line(trace: TracebackType | None) -> str:
    """The innermost line of ltpll in a traceback."""
    place = "outside"
    while trace is not None:
        file = Path(trace.tb_frame.f_code.co_filename)
        for package in PACKAGES:
            if file.is_relative_to(package):
                place = f"{file.relative_to(package)}:{trace.tb_lineno}"
        trace = trace.tb_next
    return place


def smaller(runner: Runner, finding: Finding, tries: int = 400) -> Finding:
    """Remove as much of a finding's case as possible while it stays the same finding."""
    best, step = finding, max(len(finding.case) // 2, 1)
    while step and tries > 0:
        position = 1  # keep the first byte, which selects the options
        while position < len(best.case) and tries > 0:
            tries -= 1
            shorter = best.case[:position] + best.case[position + step :]
            found = runner(shorter).finding
            if found and (found.kind, found.where) == (best.kind, best.where):
                best = found
            else:
                position += step
        step //= 2
    return best
