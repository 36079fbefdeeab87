"""Runs the commands of docs/get-started.md that are marked with `<!-- run -->`, in order, and writes their output below them.

`<!-- run: 12 lines -->` shows only the first lines of an output. The commands take about a minute,
so tests run them with fewer epochs
and do not compare the output, which depends on the machine.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from ltpll.runs.environment import environment

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "get-started.md"
MARKED = re.compile(
    r"<!-- run(?:: (?P<lines>\d+) lines)? -->\n```\n(?P<command>[^`]*?)\n```\n(?:\n```text\n.*?```\n)?",
    re.S,
)


def commands(text: str) -> list[str]:
    """The marked commands of a page."""
    return [found["command"] for found in MARKED.finditer(text)]


def with_outputs(text: str, run: Callable[[str], str]) -> str:
    """The page with the output of each marked command; `run` executes one."""

    def shown(found: re.Match[str]) -> str:
        output = [line.rstrip() for line in run(found["command"]).strip("\n").splitlines()]
        if found["lines"] and len(output) > int(found["lines"]):
            output = [*output[: int(found["lines"])], "…"]
        mark = found[0].partition("\n```text\n")[0].rstrip("\n")
        return f"{mark}\n" + ("\n```text\n" + "\n".join(output) + "\n```\n" if output else "")

    return MARKED.sub(shown, text)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"

        def run(command: str) -> str:
            print(command, flush=True)
            done = subprocess.run(
                command,
                shell=True,
                cwd=folder,
                env=os.environ | {"PATH": path},
                capture_output=True,
                text=True,
                check=True,
            )
            return (done.stdout + done.stderr).replace(f"{folder}/", "")

        text = with_outputs(PAGE.read_text(encoding="utf-8"), run)
    made = environment("cpu")
    where = f"*Outputs of {made['hardware']}, torch {made['torch']}, ltpll {made['ltpll']}.*"
    PAGE.write_text(re.sub(r"(?m)^\*Outputs of .*\*$", where, text), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
