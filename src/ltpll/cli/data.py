"""The `data` commands: write example tables, and describe or prune candidate sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ltpll.cli.console import print_line
from ltpll.cli.describe import DescribeCommand, describe
from ltpll.cli.options import data_option
from ltpll.cli.outputs import check_outputs
from ltpll.formatting import command

app = typer.Typer(
    help="Write an example table, and describe or prune candidate sets.", no_args_is_help=True
)


@app.command()
def example(
    context: typer.Context,
    out: Annotated[
        Path, data_option(help="Folder to write digits.csv and new-digits.csv to.")
    ] = Path(),
) -> None:
    """Write an example table to try the other commands with: digits whose candidates are the labels of three annotators."""
    from ltpll.errors import InputError
    from ltpll.files import check_writable
    from ltpll.synthetic import example_tables
    from ltpll.tables.writers import write_table

    paths = out / "digits.csv", out / "new-digits.csv"
    check_outputs(context, *paths, makes_folder=True)
    for path in paths:
        if path.exists():
            raise InputError(f"{path} exists already: choose another folder with --out.")
    check_writable(out)
    tables = example_tables()
    for path, columns in zip(paths, tables, strict=True):
        write_table(path, columns)
    print_line(
        f"{paths[0]}: {len(tables.train['id'])} rows with candidates, pixels as features, and true labels for evaluation."
    )
    print_line(f"{paths[1]}: {len(tables.new['id'])} new rows without candidates.")
    print_line(f"Next: {command('ltpll', 'train', paths[0], '--out', out / 'digits-run')}")


app.command(cls=DescribeCommand)(describe)
