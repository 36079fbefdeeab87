"""Checks on the files that predict, clean and export write."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from ltpll.errors import InputError
from ltpll.runs.run import check_not_of_run


def check_outputs(outputs: Iterable[Path], inputs: Mapping[str, Path | None]) -> None:
    """Refuse to overwrite a file of a run, or an input; `inputs` maps what a file is to its path."""
    for out in outputs:
        check_not_of_run(out)
        for description, path in inputs.items():
            if path is not None and out.resolve() == path.resolve():
                raise InputError(f"{out} is {description} and would be overwritten: write to another file.")
