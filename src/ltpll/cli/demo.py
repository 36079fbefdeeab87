"""The demo command: the example table, trained on, cleaned and shown on a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ltpll.cleaning.settings import DataFiles, TrainJob
from ltpll.cli.clean import clean
from ltpll.cli.console import print_line
from ltpll.cli.options import Fresh, output_option
from ltpll.cli.outputs import check_outputs
from ltpll.cli.report import report
from ltpll.cli.train import train_job
from ltpll.errors import InputError
from ltpll.formatting import command


def demo(
    context: typer.Context,
    out: Annotated[Path, output_option(help="Folder for the table, the run and its page.")] = Path(
        "ltpll-runs/demo"
    ),
    only_table: Annotated[
        bool, output_option("--only-table", help="Write the table, and do nothing with it.")
    ] = False,
    fresh: Fresh = False,
) -> None:
    """Clean an example table in about a minute: train on it, write its labels, and a page.

    The table is digits whose candidates are the labels of three annotators.
    """
    table, run = out / "digits.csv", out / "run"
    cleaned, page = out / "cleaned.csv", out / "report.html"
    if only_table or not table.exists():  # an earlier demo is continued
        _write_example(context, out)
    if only_table:
        print_line(f"Next: {command('ltpll', 'train', table, '--out', run)}")
        return
    job = TrainJob(data=DataFiles(table=str(table)))
    print_line(f"$ {command('ltpll', 'train', table, '--out', run)}")
    train_job(job, run, fresh=fresh)
    print_line(f"$ {command('ltpll', 'clean', run, '--out', cleaned)}")
    clean(context, run, out=cleaned)
    print_line(f"$ {command('ltpll', 'report', run, '--out', page)}")
    report(context, run, out=page)


def _write_example(context: typer.Context, folder: Path) -> None:
    from ltpll.synthetic import example_tables
    from ltpll.tables.writers import write_table

    paths = folder / "digits.csv", folder / "new-digits.csv"
    check_outputs(context, *paths, makes_folder=True)
    for path in paths:
        if path.exists():
            raise InputError(f"{path} exists already: choose another folder with --out.")
    folder.mkdir(parents=True, exist_ok=True)
    tables = example_tables()
    for path, columns in zip(paths, tables, strict=True):
        write_table(path, columns)
    print_line(
        f"{paths[0]}: {len(tables.train['id'])} rows with candidates, pixels as features, and true "
        "labels for evaluation."
    )
    print_line(f"{paths[1]}: {len(tables.new['id'])} new rows without candidates.")
