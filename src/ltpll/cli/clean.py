"""Commands for own data: training on a table, and predict, clean and export with the run that comes of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ltpll.cli.console import console
from ltpll.cli.progress import interruptible
from ltpll.errors import InputError, printable, shown
from ltpll.runs.run import Record, check_not_of_run

if TYPE_CHECKING:
    from ltpll.cleaning.dataset import Examples, TableSource
    from ltpll.training.distributed import World

Option = typer.Option
SHOWN = 8  # lines of a small table


def say(sentence: str) -> None:
    console.print(printable(sentence), markup=False, soft_wrap=True)


# ---- train ------------------------------------------------------------------------------------------------------------


def train_on_table(
    source: TableSource,
    settings: dict[str, Any],
    out: Path,
    *,
    device: str,
    tensorboard: bool,
    fresh: bool,
    on_nan: str,
    threads: int | str,
    world: World,
    workers: int | None,
) -> None:
    """Read, check, train, and leave a run's folder from which everything else follows."""
    from ltpll.cleaning.pipeline import TrainingSettings, table_run, train_table_run

    chosen = TrainingSettings.from_mapping(settings)
    with reading_progress() as told:
        examples = read_own(source, told)
    run = table_run(out, chosen, examples)
    run.check_folder(afresh=fresh)
    world.wait()  # until all have looked, since one of them now starts to write
    if world.first:
        if fresh:
            run.forget()
        run.reopen_if_damaged()
    world.wait()
    _say_what_was_read(examples)
    if world.agreed(run.done):
        say(f"This run was finished earlier (--fresh trains it again): {out}")
        _say_result(run.result(), out)
        return
    close: Callable[[], None] = lambda: None  # noqa: E731

    def watch(name: str, epochs: int) -> Callable[[Record], None]:
        from ltpll.cli.progress import watch_epochs

        nonlocal close
        close()
        on_epoch, close = watch_epochs(run, epochs, tensorboard and world.first and name == "training", name)
        return on_epoch

    with interruptible(run, lambda: close()):
        how: Record = {"device": device, "on_nan": on_nan, "threads": threads, "workers": workers}
        train_table_run(run, source, examples, chosen, watch=watch, world=world, **how)
    world.leave()
    world.wait()
    _say_result(run.result(), out)


def read_own(source: TableSource, told: Callable[[str, int, int], None], *, needs_candidates: bool = True) -> Examples:
    from ltpll.cleaning.dataset import read_examples

    examples = read_examples(source, needs_candidates=needs_candidates, on_progress=told)
    if examples.problems:
        say(f"{len(examples.problems)} pictures were skipped:")
        for path, reason in examples.problems[:SHOWN]:
            say(f"  {path} {reason}")
        if len(examples.problems) > SHOWN:
            say(f"  and {len(examples.problems) - SHOWN} more")
    return examples


@contextmanager
def reading_progress() -> Iterator[Callable[[str, int, int], None]]:
    """Shows how far reading is, once it takes long enough to be looked at."""
    from rich.progress import BarColumn, Progress, TextColumn

    with Progress(
        TextColumn("reading {task.description}"),
        BarColumn(bar_width=20),
        TextColumn("{task.percentage:.0f} %"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        tasks: dict[str, Any] = {}

        def told(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = progress.add_task(what, total=total)
            progress.update(tasks[what], completed=done, total=total)

        yield told


def _say_what_was_read(examples: Examples) -> None:
    from ltpll.data.readers.streaming import listed

    sets, training = examples.candidates, int(examples.training().sum())
    shape = " × ".join(map(str, examples.x.shape[1:]))
    kind = "pictures" if examples.x.ndim == 4 else "features"
    parts = [
        f"{len(examples):,} examples ({shape} {kind})",
        f"{sets.n_classes:,} classes",
        f"{len(sets.labels) / len(sets):.1f} candidates a set",
    ]
    if training < len(examples):
        parts.append(f"{training:,} to train on")
    if examples.table.votes is not None:
        parts.append(f"{len(examples.table.votes.names):,} annotators")
    say(", ".join(parts) + ".")
    if examples.table.left_out:
        names = listed([shown(name) for name in examples.table.left_out], SHOWN)
        say(f"Columns that hold text are not learned from: {names}.")


def _say_result(result: Record, out: Path) -> None:
    last, rows = result["last"], result["rows"]
    test = last.get("test", {})
    if "accuracy" in test:
        say(
            f"held out ({rows['held_out']:,} rows): accuracy {test['accuracy']:.1%}, balanced {test['balanced_accuracy']:.1%}, "
            f"predictions inside their sets {test['covering_rate']:.1%}"
        )
    elif test:
        say(f"held out ({rows['held_out']:,} rows): predictions inside their sets {test['covering_rate']:.1%}")
    if "target_recovery" in last:
        say(f"training rows whose true label is believed: {last['target_recovery']:.1%}")
    say(f"Next: ltpll clean {out} --out cleaned.csv; ltpll report {out}; ltpll predict {out} NEW.csv --out predictions.csv")


# ---- predict, clean, export -------------------------------------------------------------------------------------------


def predict(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder that `ltpll train TABLE --out RUN` made.")],
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="New examples: .csv, .tsv, .parquet or .mat, as for train.")],
    out: Annotated[Path, Option(help="The table to write: .csv, .tsv or .parquet.")],
    images: Annotated[Path | None, Option(help="Folder of the new pictures.", show_default=False)] = None,
    features: Annotated[Path | None, Option(help="File of the new features, as for train.", show_default=False)] = None,
    probabilities: Annotated[bool, Option("--probabilities", help="A column for each class too.")] = False,
    on_error: Annotated[str, Option(help="What to do about pictures that cannot be read: stop or skip.")] = "stop",
    device: Annotated[str, Option(help="cpu, cuda, or auto.")] = "auto",
) -> None:
    """Label new examples with a trained run: label, confidence, runner-up and margin, in the table's order."""
    from ltpll.cleaning.prediction import prediction_columns, source_like
    from ltpll.data.writers import check_output, write_table
    from ltpll.runs.run import Run
    from ltpll.runs.schema import Kind

    check_output(out)
    _keep_inputs([out], {"the table to predict": table, "the features": features})
    record = Run.open(run, Kind.TABLE).result()
    with reading_progress() as told:
        examples = read_own(source_like(record, table, images, features, on_error), told, needs_candidates=False)
    write_table(out, prediction_columns(run, record, examples, probabilities=probabilities, device=device))
    say(f"{len(examples):,} predictions: {out}")


def clean(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder that `ltpll train TABLE --out RUN` made.")],
    out: Annotated[Path, Option(help="The table to write: .csv, .tsv or .parquet.")],
    separator: Annotated[str, Option(help="Between the candidates in the written table.")] = "|",
) -> None:
    """Write the label believed in every example, how sure that is, and whether a label outside its set seems right.

    Tables of the classes and, where sets came from annotators, of these are written beside it.
    """
    from ltpll.cleaning.results import annotator_columns, class_columns, cleaned_columns
    from ltpll.cleaning.stored_tables import read_cleaned
    from ltpll.data.writers import check_output, write_table

    check_output(out)
    found = read_cleaned(run)
    beside = [_beside(out, what) for what in ("classes", "annotators")]
    _keep_inputs([out, *beside], {"the table of the run": Path(found.record["source"]["table"])})
    classes = class_columns(found)
    tables = {out: cleaned_columns(found, separator), _beside(out, "classes"): classes}
    if found.votes is not None:
        tables[_beside(out, "annotators")] = annotator_columns(found)
    for path, columns in tables.items():
        write_table(path, columns)
    cleaning = found.labels
    issues = int(cleaning.issue.sum())
    ambiguous = int((found.sizes > 1).sum())
    say(f"{len(found.ids):,} examples, {ambiguous:,} of them ambiguous; mean confidence {cleaning.confidence.mean():.1%}.")
    say(f"{issues:,} sets may lack the true label ({issues / len(found.ids):.1%}): sort by the column suspicion, and see suggestion.")
    if (cleaning.judged_by == "own").any():
        say("Their own sets were trained on by whoever judged them, which hides most issues: train with --folds 5.")
    _show_classes(classes)
    for path in tables:
        say(f"wrote {path}")


def export(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder that `ltpll train TABLE --out RUN` made.")],
    onnx: Annotated[Path, Option(help="The ONNX model to write.")],
) -> None:
    """Write a trained run as an ONNX model that takes inputs as they are and predicts debiased; onnxruntime, where it is, checks it."""
    from ltpll.cleaning.prediction import load_classifier, onnx_difference
    from ltpll.runs.run import Run
    from ltpll.runs.schema import Kind

    Run.open(run, Kind.TABLE).result()
    _keep_inputs([onnx], {})
    classifier = load_classifier(run, "cpu")
    classifier.to_onnx(onnx)
    difference = onnx_difference(classifier, onnx)
    checked = "not checked, since onnxruntime is not installed" if difference is None else f"differs from torch by {difference:.1g} at most"
    say(f"{onnx}: input x {_shape(classifier)}, output logits of {len(classifier.classes_)} classes; {checked}.")


def _keep_inputs(outputs: list[Path], inputs: dict[str, Path | None]) -> None:
    """Refuse to write over what was read, or over a file of a run."""
    for out in outputs:
        check_not_of_run(out)
        for what, path in inputs.items():
            if path is not None and out.resolve() == path.resolve():
                raise InputError(f"{out} is {what}, which would be lost: write to another file.")


def _shape(classifier: Any) -> str:
    return f"(rows, {', '.join(map(str, classifier.input_shape_))})"


def _beside(out: Path, what: str) -> Path:
    return out.with_name(f"{out.stem}.{what}{out.suffix}")


def _show_classes(columns: dict[str, Any]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    names = ("class", "estimated_prior", "candidate_in", "label_of", "distractor_rate", "most_often_instead")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in names:
        table.add_column(
            name.replace("_", " "), justify="left" if name in ("class", "most_often_instead") else "right", overflow="ellipsis"
        )
    order = sorted(range(len(columns["class"])), key=lambda c: -columns["label_of"][c])
    for c in order[:SHOWN]:
        shares = [f"{columns[name][c]:.1%}" for name in ("estimated_prior", "distractor_rate")]
        counts = [f"{columns[name][c]:,}" for name in ("candidate_in", "label_of")]
        believed, instead = (Text(printable(str(columns[which][c] or ""))) for which in ("class", "most_often_instead"))
        table.add_row(believed, shares[0], *counts, shares[1], instead)
    console.print(table)
    if len(order) > SHOWN:
        say(f"and {len(order) - SHOWN:,} smaller classes")


# ---- what train's options say of a table -------------------------------------------------------------------------------


def source_of(table: Path, options: dict[str, Any]) -> TableSource:
    """From the options that describe a table; those not given keep their usual values."""
    from ltpll.cleaning.dataset import TableSource
    from ltpll.data.readers.tables import Reading

    given = {name: value for name, value in options.items() if value is not None}
    images, features = (Path(given[name]).expanduser() if name in given else None for name in ("images", "feature_file"))
    return TableSource(table, Reading.of(given), images, features, **{name: given[name] for name in ("side", "on_error") if name in given})
