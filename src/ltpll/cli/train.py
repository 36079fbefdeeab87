"""The train command: train on a table with candidate labels; the run folder is what predict, clean, report and export read."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import ltpll.cli.options as opt
from ltpll.cli.config_file import read_config
from ltpll.cli.console import print_line
from ltpll.cli.outputs import check_run_folder
from ltpll.cli.prune import prune_read_examples
from ltpll.cli.tables import MOST_SHOWN, read_source
from ltpll.cli.training import (
    exit_on_interrupt,
    given,
    given_files,
    prepare_run,
    torchrun_processes,
)
from ltpll.errors import InputError, option, shown
from ltpll.formatting import command, counted, format_names
from ltpll.runs.run import Record

if TYPE_CHECKING:
    from ltpll.cleaning.dataset import Examples, TableSource
    from ltpll.cleaning.pipeline import TrainingSettings

SUFFIXES = (".csv", ".tsv", ".parquet", ".mat", ".json", ".jsonl", ".ndjson")
EVALUATION_ONLY = " (true labels, for evaluation only)"


class TrainCommand(opt.CommandWithLibraryDefaults):
    def dataclasses(self) -> tuple[type[Any], ...]:
        from ltpll.cleaning.dataset import TableSource
        from ltpll.cleaning.pipeline import TrainingSettings
        from ltpll.tables.reading import Reading

        return (TrainingSettings, Reading, TableSource)


def train(
    context: typer.Context,
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="TABLE",
            help="Table of examples and their candidate labels: .csv, .tsv, .parquet, .mat; or .json of a labelling tool.",
        ),
    ] = None,
    images: Annotated[
        Path | None,
        opt.data_option(help="Folder of the pictures that the column `path` (or `id`) names."),
    ] = None,
    features: Annotated[
        Path | None,
        opt.data_option(
            help="File of features: .npy, .npz or a table; joined by id, or without ids in the order of the table."
        ),
    ] = None,
    side: Annotated[
        int | None,
        opt.data_option(
            help="Pictures are scaled to squares of this many pixels.",
            min=4,
            show_default="that of the backbone, or by the pictures: 32, 64 or 128",
        ),
    ] = None,
    on_error: opt.OnError = None,
    reviewed: Annotated[
        list[Path] | None,
        opt.data_option(
            help="Answers that replace candidate sets: a table of id and answer, such as a filled-in queue. May be repeated."
        ),
    ] = None,
    earlier: Annotated[
        Path | None,
        opt.data_option(
            "--from",
            help="Finished run on this table; training starts from its labels.",
            metavar="RUN",
        ),
    ] = None,
    candidates: Annotated[
        str | None,
        opt.column_option(help="Column of candidate sets, such as cat|fox or a JSON list."),
    ] = None,
    separator: opt.Separator = None,
    class_column: opt.ClassColumn = None,
    probability_column: opt.ProbabilityColumn = None,
    top_k: opt.TopK = None,
    mass: opt.Mass = None,
    scores: opt.Scores = None,
    excluded: opt.Excluded = None,
    empty: opt.Empty = None,
    taxonomy: opt.Taxonomy = None,
    possible: opt.Possible = None,
    site: opt.Site = None,
    possible_at: opt.PossibleAt = None,
    from_annotators: opt.FromAnnotators = None,
    task: opt.Task = None,
    worker: opt.Worker = None,
    annotation: opt.Annotation = None,
    vote_weights: opt.VoteWeights = None,
    control: opt.Control = None,
    objects: opt.Objects = None,
    feature_column: Annotated[
        list[str] | None,
        opt.column_option(
            help="Column to learn from. May be repeated, or be a pattern: 'f*'.",
            show_default="all other columns of numbers",
        ),
    ] = None,
    ignore: opt.Ignore = None,
    id_column: Annotated[str | None, opt.column_option("--id", help="Column of ids.")] = None,
    path_column: Annotated[
        str | None, opt.column_option("--path", help="Column of paths inside --images.")
    ] = None,
    label: opt.Label = None,
    split: Annotated[
        str | None, opt.column_option(help="Column with train or test; test rows are held out.")
    ] = None,
    group: opt.Group = None,
    prune: Annotated[
        bool | None,
        opt.data_option(
            "--prune",
            help="First remove candidates that the sets of similar examples vote against.",
        ),
    ] = None,
    method: opt.Method = None,
    rebalancer: opt.Rebalancer = None,
    prior: Annotated[
        str | None,
        opt.part_option(
            help="Class shares: average or sets (two estimates), auto (by how the sets arose), or a file of class and share.",
            metavar="auto|average|sets|FILE",
        ),
    ] = None,
    truth_missing: Annotated[
        str | None,
        opt.part_option(
            help="Share of sets that lack the true label: never, auto (three more runs), or a number.",
            metavar="never|auto|SHARE",
        ),
    ] = None,
    goal: opt.Goal = None,
    extra: opt.Extra = None,
    model: Annotated[
        str | None,
        opt.part_option(
            help="Network: mlp, small-cnn, resnet18 or auto (chosen by the kind of input)."
        ),
    ] = None,
    backbone: Annotated[
        str | None,
        opt.part_option(
            help="Pretrained network for pictures: efficientnet-lite0, a folder, an .onnx file or a name on the Hugging Face hub.",
            metavar="NAME|FOLDER",
        ),
    ] = None,
    finetune: Annotated[
        str | None,
        opt.part_option(
            help="Layers of the backbone to train: none (its features are computed once), last or all.",
            metavar="none|last|all",
        ),
    ] = None,
    views: Annotated[
        str | None,
        opt.part_option(
            help="Augmentation of pictures: photo, flip-crop, crop (never mirrored), paper, or auto (by their size)."
        ),
    ] = None,
    config: opt.Config = None,
    epochs: Annotated[
        int | None,
        opt.training_option(
            help="Passes over the training data; auto is chosen by the number of rows."
        ),
    ] = None,
    batch_size: Annotated[
        int | None,
        opt.training_option(help="Examples per step; auto is chosen by the number of rows."),
    ] = None,
    lr: opt.LearningRate = None,
    seed: opt.Seed = None,
    folds: Annotated[
        int | None,
        opt.training_option(
            help="Cross-validation folds that give every row an out-of-fold prediction; 0 for none.",
            min=0,
        ),
    ] = None,
    on_nan: opt.OnNan = "stop",
    out: Annotated[
        Path | None,
        opt.output_option(help="Run folder.", show_default="ltpll-runs/ and the name of the table"),
    ] = None,
    tensorboard: opt.TensorBoard = False,
    fresh: opt.Fresh = False,
    device: opt.Device = "auto",
    precision: Annotated[
        str | None,
        opt.hardware_option(help="float32, bfloat16 or auto (bfloat16 to fine-tune on CUDA)."),
    ] = None,
    threads: opt.Threads = None,
    workers: Annotated[
        int | None,
        opt.hardware_option(
            help="Folds trained in parallel on a CPU.",
            show_default="chosen by work and cores",
            min=1,
        ),
    ] = None,
) -> None:
    """Train on your own table of candidate labels. Rerun the command to resume an interrupted training."""
    from ltpll.cleaning.dataset import TableSource
    from ltpll.cleaning.pipeline import PRIORS, TrainingSettings, table_run, train_table_run
    from ltpll.cli.progress import ProgressBar, TensorBoardEvents
    from ltpll.tables.prior_files import read_prior
    from ltpll.tables.reading import Reading

    configured = read_config(config)
    configured_table = configured.pop("data", None)
    path = _table_path(table or configured_table)
    reading = given(
        candidates=candidates,
        separator=separator,
        class_columns=class_column,
        probability_columns=probability_column,
    )
    reading |= given(
        top_k=top_k,
        mass=mass,
        annotators=from_annotators,
        task=task,
        worker=worker,
        annotation=annotation,
    )
    reading |= given(
        vote_weights=vote_weights,
        id=id_column,
        path=path_column,
        label=label,
        split=split,
        group=group,
    )
    reading |= given(
        features=feature_column,
        control=control,
        objects=objects,
        scores=scores,
        excluded=excluded,
        empty=empty,
    )
    reading |= given(possible=possible, site=site, ignore=ignore)
    reading |= given_files(taxonomy=taxonomy, possible_at=possible_at)
    images, features = (folder and folder.expanduser() for folder in (images, features))
    options = given(
        method=method,
        rebalancer=rebalancer,
        extras=tuple(extra) if extra else None,
        model=model,
        views=views,
        epochs=epochs,
    )
    options |= given(
        batch_size=batch_size,
        lr=lr,
        seed=seed,
        precision=precision,
        folds=folds,
        prior=prior,
        goal=goal,
    )
    options = (
        configured
        | options
        | given(
            backbone=backbone,
            finetune=finetune,
            prune=prune,
            truth_missing=_as_share(truth_missing),
        )
    )
    if isinstance(options.get("prior"), str) and options["prior"] not in PRIORS:
        options["prior"] = read_prior(Path(options["prior"]).expanduser())
    settings = TrainingSettings.from_mapping(options)
    source = TableSource(
        path,
        Reading.of(reading),
        images,
        features,
        **_how_pictures_are_read(settings, images, side),
        **given(on_error=on_error),
    )
    out = out or Path("ltpll-runs") / path.stem
    check_run_folder(context, out)
    if earlier is not None and earlier.resolve() == out.resolve():
        raise InputError(
            f"--from and --out are the same run, {out}: write the new run to another folder."
        )
    if settings.prune and (reviewed or earlier is not None):
        raise InputError(
            "Pruning would undo what people answered and what an earlier run learned: leave --prune out."
        )
    with torchrun_processes(device) as (world, own_device):
        if source.backbone is not None and not world.alone:
            raise InputError(
                "Several processes would all compute the same features: run `ltpll embed` first, then train with --features."
            )
        if settings.prune:
            _check_can_prune(source, alone=world.alone)
        examples = _with_earlier_work(
            read_source(source, device=device), source, reviewed or [], earlier
        )
        if settings.prune:
            from ltpll.cleaning.pruned_tables import settings_after_pruning

            pruned = prune_read_examples(examples)
            examples, settings = pruned.examples, settings_after_pruning(settings, pruned)
        run = table_run(out, settings, examples)
        run.check_folder(afresh=fresh)
        world.wait()  # every process has to check the folder before the first one writes to it
        finished = prepare_run(run, world, fresh=fresh)
        _print_examples(examples, source, pretrained=settings.backbone is not None)
        if finished:
            print_line(f"This run was finished earlier (--fresh trains it again): {out}")
        else:
            progress = ProgressBar()
            events = [TensorBoardEvents(run)] if tensorboard and world.first else []
            hardware: Record = {
                "device": own_device,
                "threads": threads or "auto",
                "workers": workers,
            }
            with exit_on_interrupt(run, progress):
                how: Record = {
                    "progress": progress,
                    "callbacks": events,
                    "on_nan": on_nan,
                    "on_choice": print_line,
                }
                train_table_run(run, source, examples, settings, **how, **hardware)
            world.wait()
        _print_result(run.result(), out)


def _with_earlier_work(
    examples: Examples, source: TableSource, reviewed: list[Path], earlier: Path | None
) -> Examples:
    """The examples with people's answers as their sets, and with targets to start from if there is an earlier run."""
    from dataclasses import replace

    from ltpll.cleaning.earlier_run import starting_from
    from ltpll.cleaning.stored_tables import read_cleaned
    from ltpll.tables.reviewed import read_answers, with_answers

    if reviewed:
        columns, separator = examples.table.columns, source.reading.separator
        answers = read_answers(
            reviewed,
            examples.table,
            id_column=columns.get("task") or columns.get("id"),
            separator=separator,
        )
        examples = replace(examples, table=with_answers(examples.table, answers))
    return examples if earlier is None else starting_from(examples, read_cleaned(earlier))


def _how_pictures_are_read(
    settings: TrainingSettings, images: Path | None, side: int | None
) -> dict[str, Any]:
    """The preprocessing of pictures, and the backbone whose features are used instead of them, as arguments of a `TableSource`."""
    from ltpll.backbones import Backbone, Preprocessing

    if settings.backbone is None:
        return {} if side is None else {"preprocessing": Preprocessing(side)}
    if images is None:
        raise InputError(
            "A backbone is for pictures: give their folder with --images, or leave --backbone out."
        )
    if side is not None:
        raise InputError("The backbone decides the size of the pictures: leave --side out.")
    backbone = Backbone.from_pretrained(settings.backbone)
    return {
        "preprocessing": backbone.preprocessing,
        "backbone": backbone if settings.finetune == "none" else None,
    }


def _as_share(text: str | None) -> float | str | None:
    """A number if the text is one."""
    try:
        return None if text is None else float(text)
    except ValueError:
        return text


def _check_can_prune(source: TableSource, *, alone: bool) -> None:
    """Refuse examples whose neighbours cannot be found, before they are read."""
    from ltpll.cleaning.pruned_tables import NEEDS_FEATURES

    first = "run `ltpll data prune` first, then train on its table without --prune."
    if not alone:
        raise InputError(f"Several processes would all look for the same neighbours: {first}")
    if source.images is not None and source.backbone is None:
        raise InputError(f"{NEEDS_FEATURES}: give --backbone without --finetune, or {first}")


def _table_path(table: Any) -> Path:
    """The table to train on; anything else is refused."""
    needed = f"a table ({', '.join(SUFFIXES)})"
    if table is None:
        raise InputError(f"There is nothing to train on: give {needed}.")
    if not isinstance(table, str):
        raise InputError(
            f"The config's data is {shown(table)}: it must be text, the path of {needed}."
        )
    path = Path(table).expanduser()
    if path.is_dir():
        raise InputError(
            f"{table} is a folder: give {needed}, and the folder of pictures with --images."
        )
    if path.suffix.lower() not in SUFFIXES and not path.is_file():
        raise InputError(
            f"There is no file {table}: give {needed}, or an image set to `ltpll-research benchmark`."
        )
    return path


def _print_examples(examples: Examples, source: TableSource, *, pretrained: bool) -> None:
    from ltpll.pictures.sizes import recommendation

    sets, training = examples.candidates, int(examples.training().sum())
    shape = " × ".join(map(str, examples.x.shape[1:]))
    kind = (
        "pictures"
        if examples.x.ndim == 4
        else "features"
        if source.backbone is None
        else f"features of {source.backbone.name}"
    )
    facts = [
        f"{counted(len(examples), 'example')} ({shape} {kind})",
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
    if sets.weights is not None and examples.table.votes is None:
        print_line("Scores were read and weight the candidates; --scores none uses the sets only.")
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
        ids = (
            f" (name an id with {option('id', examples.table.like_ids[0])})"
            if examples.table.like_ids
            else ""
        )
        print_line(f"Columns of text are ignored: {names}{ids}.")
    advice = (
        recommendation(len(examples), examples.x.shape[1])
        if examples.x.ndim == 4 and not pretrained
        else None
    )
    if advice is not None:
        print_line(advice)


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
            f"{held_out}{with_goal}: {_accuracies(test)}, predictions inside their sets {test['covering_rate']:.1%}."
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
