"""The train command: `ltpll train` for every combination of settings and seeds, and a comparison."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Annotated, Any

import typer

from ltpll.cleaning.settings import TrainJob
from ltpll.cli.console import print_line
from ltpll.cli.train import train_job
from ltpll.errors import InputError, shown
from ltpll.runs.run import Run
from ltpll.settings import by_full_name, read_file, setting, with_settings
from ltpll_research.cli.compare import show_comparison
from ltpll_research.cli.options import Fresh, data_option, output_option, training_option


def train(
    table: Annotated[str, typer.Argument(metavar="TABLE", help="As for `ltpll train`.")],
    seeds: Annotated[str, training_option(help="Seeds, such as 0-4.")] = "0",
    method: Annotated[
        str, training_option(help="Methods, such as corr,proden.", show_default="corr")
    ] = "",
    rebalancer: Annotated[
        str, training_option(help="Rebalancers, such as none,auto.", show_default="auto")
    ] = "",
    change: Annotated[
        list[str] | None,
        training_option(
            "--set",
            help="Any setting of `ltpll train` with one value or several, such as "
            "training.lr=0.1,0.2. May be repeated.",
            metavar="NAME=VALUE",
        ),
    ] = None,
    config: Annotated[
        Path | None, data_option(help="File with settings, such as ltpll.toml.", metavar="FILE")
    ] = None,
    out: Annotated[Path, output_option(help="Folder in which each run gets a folder.")] = Path(
        "ltpll-runs/tables"
    ),
    fresh: Fresh = False,
) -> None:
    """Train on a table once per seed and combination of settings, as `ltpll train` does.

    Rerun the command to resume.
    """
    from ltpll_research.paper.grid import numbers_of

    fixed = by_full_name(TrainJob, read_file(config)) if config else {}
    fixed["data.table"] = table
    given = {"training.seed": seeds, "training.method": method, "training.rebalancer": rebalancer}
    for text in change or ():
        name, equals, value = text.partition("=")
        if not equals:
            raise InputError(f"--set takes NAME=VALUE, such as training.lr=0.1, not {shown(text)}.")
        given[name.strip()] = value
    values: dict[str, list[Any]] = {}
    for name, text in given.items():
        words = [text] if text.startswith(("[", "{")) else text.split(",")
        if name == "training.seed":
            words = numbers_of(words)
        values[name] = [setting(TrainJob, name).from_text(word) for word in words if word]
    values = {name: found for name, found in values.items() if found}
    folders, jobs = [], []
    for chosen in product(*values.values()):
        own = dict(zip(values, chosen, strict=True))
        varied = [name for name in values if len(values[name]) > 1 or name == "training.seed"]
        words = [f"{name.rpartition('.')[2]}={own[name]}" for name in varied]
        folders.append(out / ",".join(words).replace("/", "-"))
        jobs.append(with_settings(TrainJob, fixed | own))
    for number, (folder, job) in enumerate(zip(folders, jobs, strict=True), 1):
        print_line(f"[{number}/{len(jobs)}] {folder.name}")
        train_job(job, folder, fresh=fresh)
    try:
        show_comparison([Run.open(folder).result() for folder in folders])
    except InputError as error:  # the runs are good for all that
        print_line(str(error))
