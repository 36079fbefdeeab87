"""Counts the files and functions that two journeys through the code visit.

The journeys are `ltpll train TABLE.csv` followed by `ltpll clean RUN`, on the example table with
two
folds and two epochs; and `ltpll-research benchmark` on a few images of noise. Each runs in a
process
of its own, in which `sys.setprofile` sees every call of a function of `src/ltpll` and
`research/src`, in all threads.

Functions are taken in the order of their *first* calls, so that loops and repeated work do not
count. Three kinds of code are left out: what runs while a module is imported, lambdas and
comprehensions, and functions that other packages define. The clock is replaced by one that counts
its calls, so that nothing depends on the speed of the machine. Written as files, with consecutive
repetitions of a file joined, this order is the path that somebody who follows the code from start
to
end takes through the files:

files      distinct files on the path
functions  distinct functions
returns    steps of the path that lead to a file where it has been before

A short, one-way journey has few files and few returns: a file that is left is not needed again.

Usage: python tools/journeys.py [--json FILE] [--path]
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SOURCES = (ROOT / "src", ROOT / "research" / "src")
JOURNEYS = {
    "table": "ltpll train digits.csv, then ltpll clean",
    "images": "ltpll-research benchmark",
}


class FirstCalls:
    """A profile function that notes every function of this project when it is first called."""

    def __init__(self) -> None:
        self.path: list[tuple[str, str]] = []  # file and name, in the order of first calls
        self._known: set[tuple[str, int, str]] = set()
        self._importing = threading.local()  # how many modules are being imported

    def __call__(self, frame: FrameType, event: str, argument: object) -> None:
        code = frame.f_code
        if event == "call":
            if code.co_name == "<module>":
                self._importing.depth = getattr(self._importing, "depth", 0) + 1
                return
            key = (code.co_filename, code.co_firstlineno, code.co_qualname)
            if key not in self._known and not getattr(self._importing, "depth", 0):
                self._known.add(key)
                if file := file_of(code):
                    self.path.append((file, code.co_qualname))
        elif event == "return" and code.co_name == "<module>":
            self._importing.depth = getattr(self._importing, "depth", 1) - 1


def file_of(code: CodeType) -> str:
    """The file of a function of this project, below its `src`; empty for anything else."""
    if not code.co_flags & 1 or code.co_name.startswith("<"):  # 1: optimized, so not a class body
        return ""
    path = Path(code.co_filename)
    source = next((one for one in SOURCES if path.is_relative_to(one)), None)
    return path.relative_to(source).as_posix() if source else ""


def summary(path: list[tuple[str, str]]) -> dict[str, Any]:
    """The counts of a path, and its files in the order in which they are first visited."""
    steps = [file for file, _ in itertools.groupby(file for file, _ in path)]
    functions = Counter(file for file, _ in path)
    returned = Counter(steps)
    return {
        "files": len(functions),
        "functions": len(path),
        "returns": len(steps) - len(functions),
        "visited": [
            {"file": file, "functions": n, "returns": returned[file] - 1}
            for file, n in functions.items()
        ],
    }


# ---- the journeys ------------------------------------------------------------------------------


def commands_of(name: str, folder: Path) -> list[list[str]]:
    """Prepare what a journey starts from, and return its commands."""
    if name == "table":
        from ltpll.synthetic import example_tables
        from ltpll.tables.writers import write_table

        table, run = folder / "digits.csv", folder / "run"
        write_table(table, example_tables().train)
        options = (
            "--epochs",
            "2",
            "--folds",
            "2",
            "--set",
            "run.workers=1",
            "--set",
            "run.threads=1",
        )
        return [
            ["ltpll", "train", str(table), "--out", str(run), "--device", "cpu", *options],
            ["ltpll", "clean", str(run), "--out", str(folder / "cleaned.csv")],
        ]
    from ltpll_research.engine_speed import noise_images
    from ltpll_research.image_sets.prepared import write_image_set

    write_image_set(noise_images(10, 10, 20)._replace(name="cifar10"), folder)
    options = ("--epochs", "2", "--imbalance", "5", "--set", "width=2 batch_size=16")
    places = ("--data-root", str(folder), "--out", str(folder / "runs"), "--device", "cpu")
    return [["ltpll-research", "benchmark", "cifar10", *options, *places, "--threads", "1"]]


def follow(name: str) -> list[tuple[str, str]]:
    """The path of a journey, made in this process."""
    from ltpll.cli import main as ltpll
    from ltpll_research.cli import main as research

    # Some functions are only called when enough time has passed: this clock advances by calls.
    ticks = itertools.count(1)
    time.monotonic = time.perf_counter = lambda: next(ticks) / 1000
    calls = FirstCalls()
    with tempfile.TemporaryDirectory() as folder:
        for command in commands_of(name, Path(folder)):
            sys.argv = command
            threading.setprofile(calls)
            sys.setprofile(calls)
            try:
                with contextlib.redirect_stdout(sys.stderr):
                    (ltpll if command[0] == "ltpll" else research)()
            except SystemExit as ended:
                if ended.code:
                    raise
            finally:
                sys.setprofile(None)
                threading.setprofile(None)
    return calls.path


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the counts here")
    parser.add_argument("--path", action="store_true", help="also print every function in order")
    parser.add_argument("--follow", choices=JOURNEYS, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.follow:
        print(json.dumps(follow(chosen.follow)))
        return 0
    found = {}
    for name, title in JOURNEYS.items():
        command = [sys.executable, __file__, "--follow", name]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
        if ended.returncode:
            print(f"error: {title} failed:\n{ended.stderr}", file=sys.stderr)
            return 1
        path = json.loads(ended.stdout.splitlines()[-1])
        found[name] = {"journey": title, **summary(path)}
        print(f"\n{title}")
        print(f"{'file':56}{'functions':>10}{'returns':>9}")
        for one in found[name]["visited"]:
            print(f"{one['file']:56}{one['functions']:10}{one['returns']:9}")
        if chosen.path:
            print(*(f"  {file}: {function}" for file, function in path), sep="\n")
    print(f"\n{'journey':44}{'files':>8}{'functions':>11}{'returns':>9}")
    for one in found.values():
        print(f"{one['journey']:44}{one['files']:8}{one['functions']:11}{one['returns']:9}")
    if chosen.json:
        chosen.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
