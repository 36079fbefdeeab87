"""Outputs: the one check of every file that a command writes.

None of them may be an input of this command or of a run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer

from ltpll.cleaning.settings import TrainJob
from ltpll.errors import InputError
from ltpll.files import check_output, followed, parse_json
from ltpll.runs.run import run_of_file
from ltpll.settings import values_of

# The parameters that name what a command writes; all others may name inputs.
OUTPUTS = ("out", "onnx", "json_file")
PAGES, PICTURES = (".html", ".htm"), (".png", ".pdf", ".svg", ".jpg", ".jpeg")


def check_outputs(
    context: typer.Context,
    chosen: Path,
    *beside: Path,
    suffixes: Sequence[str] = (),
    makes_folder: bool = False,
) -> None:
    """Refuse to write to a path that the user has chosen, and to those beside it.

    Every command that writes files calls this first.

    Args:
        context: The command, all of whose other paths are inputs, as is what runs were made from.
        chosen: The path.
        beside: Further files that the command writes.
        suffixes: Those that `chosen` may have, by default those of tables.
        makes_folder: Whether the folder is created if there is none.

    Raises:
        InputError: A path is a folder, has another suffix, leads to a missing folder, is a file of
            a run, an input or another output.
    """
    from ltpll.tables.streaming import TABLE_SUFFIXES

    inputs = list(_inputs(context))
    for i, path in enumerate((chosen, *beside)):
        run = run_of_file(path)
        if run is not None:
            raise InputError(
                f"{path} is a file of the run {run}, which would be lost: write to another file."
            )
        for other, what in [
            *inputs,
            *((one, "an output of this command, too,") for one in (chosen, *beside)[:i]),
        ]:
            if _same(path, other):
                raise InputError(
                    f"{path} is {what} and would be overwritten: write to another file."
                )
        check_output(
            path,
            (path.suffix.lower(),) if i else suffixes or TABLE_SUFFIXES,
            makes_folder=makes_folder,
        )


def check_run_folder(job: TrainJob, folder: Path) -> None:
    """Refuse to train in a run folder one of whose own files is an input."""
    named = {f"given as {name}": value for name, value in values_of(job).items()}
    for path, what in _files_of(named):
        if run_of_file(path) == followed(folder):
            raise InputError(
                f"{path}, {what}, is a file of the run {folder}, which would replace it: train "
                "in another folder."
            )


def _same(path: Path, other: Path) -> bool:
    """Whether two paths are one file, also by links, or by names whose case does not count."""
    return followed(path) == followed(other) or (
        path.exists() and other.exists() and path.samefile(other)
    )


def _inputs(context: typer.Context) -> Iterator[tuple[Path, str]]:
    """Files that the command line names besides outputs, and those that runs were made from."""
    named: dict[str, Any] = {}
    for parameter in context.command.params:
        name = parameter.opts[0]
        if not name.startswith("-"):
            name = getattr(parameter, "metavar", None) or name
        if parameter.name not in OUTPUTS:
            named[f"given as {name}"] = context.params.get(parameter.name or "")
    return _files_of(named)


def _files_of(named: Mapping[str, Any]) -> Iterator[tuple[Path, str]]:
    from ltpll.tables.opening import matching_files

    for what, value in named.items():
        for path in _paths(value):
            files = matching_files(path) if isinstance(value, Path) else [path]
            yield from ((file, what) for file in files)
            try:
                source = parse_json((path / "result.json").read_bytes())["source"]
                made_from = {**source, **source["reading"]}
            except (OSError, ValueError, KeyError, TypeError):
                continue  # not the folder of a finished run on a table
            # Paths were given from a folder that the record does not name, often one above the run.
            above = [Path(), *followed(path).parents]
            for name, one in made_from.items():
                found = (folder / each for each in _paths(one) for folder in above)
                if name == "table":  # other texts, such as names of columns, are no patterns
                    found = (file for each in found for file in matching_files(each))
                yield from ((each, f"the {name} of the run {path}") for each in found)


def _paths(value: Any) -> list[Path]:
    values = value if isinstance(value, (list, tuple)) else [value]
    return [Path(one).expanduser() for one in values if isinstance(one, (str, Path)) and str(one)]
