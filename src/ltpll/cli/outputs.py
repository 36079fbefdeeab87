"""Outputs: the one check of every file that a command writes.

None of them may be an input of this command or of a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import typer

from ltpll.errors import InputError
from ltpll.files import check_output, followed, parse_json
from ltpll.runs.run import run_of_file

# The parameters that name what a command writes; all others may name inputs.
OUTPUTS = ("out", "onnx", "json_file")
# What a run is made from, as its record names it.
SOURCES = ("table", "features", "taxonomy")
PAGES, PICTURES = (".html", ".htm"), (".png", ".pdf", ".svg", ".jpg", ".jpeg")


def check_outputs(
    context: typer.Context,
    chosen: Path,
    *beside: Path,
    suffixes: Sequence[str] = (),
    makes_folder: bool = False,
) -> None:
    """Refuse to overwrite inputs with the chosen file, or with those that get their names from it.

    All other paths of the command are inputs, as is what runs were made from. By default, `chosen`
    has to have a suffix of tables.
    """
    from ltpll.tables.streaming import TABLE_SUFFIXES

    inputs, allowed = list(_inputs(context)), suffixes or TABLE_SUFFIXES
    for path in (chosen, *beside):
        if (run := run_of_file(path)) is not None:
            problem = f"{path} is a file of the run {run}, which would be lost"
            raise InputError(f"{problem}: write to another file.")
        for other, what in inputs:
            same = path.exists() and other.exists() and path.samefile(other)
            if same or followed(path) == followed(other):
                problem = f"{path} is {what} and would be overwritten"
                raise InputError(f"{problem}: write to another file.")
        check_output(path, allowed, makes_folder=makes_folder)
        allowed = [one.suffix.lower() for one in beside]


def _inputs(context: typer.Context) -> Iterator[tuple[Path, str]]:
    """Files that the command line names besides outputs, and those that runs were made from."""
    given = (value for name, value in context.params.items() if name not in OUTPUTS)
    for path in (path for value in given for path in _paths(value)):
        yield path, "an input of this command"
        try:
            source = parse_json((path / "result.json").read_bytes())["source"]
            made_from = {**source["reading"], **source}
        except (OSError, ValueError, KeyError, TypeError):
            continue  # not the folder of a finished run on a table
        # Paths were given from a folder that the record does not name, often one above the run.
        for folder, what in product((Path(), *followed(path).parents), SOURCES):
            for one in _paths(made_from.get(what)):
                yield folder / one, f"the {what} of the run {path}"


def _paths(value: Any) -> list[Path]:
    values = value if isinstance(value, (list, tuple)) else [value]
    return [Path(one).expanduser() for one in values if isinstance(one, (str, Path)) and str(one)]
