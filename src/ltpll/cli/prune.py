"""The `data prune` command: remove candidates that the nearest neighbours' sets vote against."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import ltpll.cli.options as opt
from ltpll.cli.console import console, print_line
from ltpll.cli.outputs import check_outputs
from ltpll.cli.tables import MOST_SHOWN, read_source
from ltpll.cli.training import given, given_files
from ltpll.errors import InputError, printable
from ltpll.formatting import command, counted

if TYPE_CHECKING:
    from ltpll.cleaning.dataset import Examples, TableSource
    from ltpll.cleaning.pruned_tables import PrunedExamples


class PruneCommand(opt.CommandWithLibraryDefaults):
    def dataclasses(self) -> tuple[type[Any], ...]:
        from ltpll.cleaning.dataset import TableSource
        from ltpll.tables.reading import Reading

        return (Reading, TableSource)


def prune(
    context: typer.Context,
    table: Annotated[
        Path,
        typer.Argument(
            metavar="TABLE",
            help="Table of examples, as for `ltpll train`: .csv, .tsv, .parquet or .mat.",
        ),
    ],
    out: Annotated[Path, opt.output_option(help="Table to write: .csv, .tsv or .parquet.")],
    images: Annotated[
        Path | None,
        opt.data_option(help="Folder of the pictures that the table names; needs --backbone."),
    ] = None,
    backbone: Annotated[
        str | None,
        opt.data_option(
            help="Pretrained network that computes features of pictures, as for `ltpll train`."
        ),
    ] = None,
    features: Annotated[
        Path | None,
        opt.data_option(
            help="File of features: .npy, .npz or a table; joined by id, or without ids in the order of the table."
        ),
    ] = None,
    on_error: opt.OnError = None,
    candidates: Annotated[
        str | None,
        opt.column_option(help="Column of candidate sets, such as cat|fox or a JSON list."),
    ] = None,
    separator: opt.Separator = None,
    class_column: opt.ClassColumn = None,
    probability_column: opt.ProbabilityColumn = None,
    top_k: opt.TopK = None,
    mass: opt.Mass = None,
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
    feature_column: Annotated[
        list[str] | None,
        opt.column_option(
            help="Column to compare rows by. May be repeated, or be a pattern: 'f*'.",
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
        str | None,
        opt.column_option(help="Column with train or test; test rows neither vote nor change."),
    ] = None,
    group: Annotated[
        str | None,
        opt.column_option(
            help="Column of the picture or scene that rows share; they do not vote for each other."
        ),
    ] = None,
    neighbours: Annotated[
        int | None, opt.part_option(help="Nearest rows that vote.", min=1, show_default="20")
    ] = None,
    threshold: Annotated[
        float | None,
        opt.part_option(
            help="A candidate needs this share of the votes of the best one.",
            min=0,
            max=1,
            show_default="0.3",
        ),
    ] = None,
    device: opt.Device = "auto",
) -> None:
    """Remove candidates that the nearest neighbours' sets vote against, and write the table with what is left.

    The removed labels are in the column `pruned`. A table of classes is written next to it, and one of the class shares where the sets
    before pruning show them.
    """
    from ltpll.backbones import Backbone
    from ltpll.cleaning.dataset import TableSource
    from ltpll.cleaning.pruned_tables import NEEDS_FEATURES
    from ltpll.cleaning.write_pruned import (
        check_plain_sets,
        check_pruned_output,
        class_table,
        shares_before,
        shares_table,
        write_pruned,
    )
    from ltpll.convert.json_stream import JSON_SUFFIXES
    from ltpll.tables.reading import Reading
    from ltpll.tables.writers import write_table

    names = given(
        candidates=candidates,
        separator=separator,
        id=id_column,
        path=path_column,
        label=label,
        split=split,
        group=group,
    )
    reading = names | given(
        class_columns=class_column, probability_columns=probability_column, top_k=top_k, mass=mass
    )
    reading |= given(
        annotators=from_annotators,
        task=task,
        worker=worker,
        annotation=annotation,
        vote_weights=vote_weights,
    )
    rules = given(excluded=excluded, empty=empty, possible=possible, site=site) | given_files(
        taxonomy=taxonomy, possible_at=possible_at
    )
    reading |= given(features=feature_column, ignore=ignore) | rules
    table, out = table.expanduser(), out.expanduser()
    images, features = (path and path.expanduser() for path in (images, features))
    if images is not None and backbone is None:
        raise InputError(
            f"{NEEDS_FEATURES}: give a pretrained network with --backbone, such as efficientnet-lite0."
        )
    network = None if backbone is None else Backbone.from_pretrained(backbone)
    source = TableSource(
        table, Reading.of(reading), images, features, backbone=network, **given(on_error=on_error)
    )
    beside = {
        name: out.with_name(f"{out.stem}.{name}{out.suffix}") for name in ("classes", "shares")
    }
    if table.suffix.lower() in JSON_SUFFIXES:
        raise InputError(
            f"{table} is not a table, so it cannot be written with other sets: prune while training, with ltpll train --prune."
        )
    check_outputs(context, out, *beside.values())
    check_pruned_output(source, out)
    examples = read_source(source, device=device)
    check_plain_sets(source, examples)
    found = prune_read_examples(examples, neighbours=neighbours, threshold=threshold)
    classes, shares = class_table(found.of_training), shares_before(found)
    write_pruned(out, source, found)
    tables = {beside["classes"]: classes} | (
        {} if shares is None else {beside["shares"]: shares_table(shares)}
    )
    for path, columns in tables.items():
        write_table(path, columns)
    print_classes(classes)
    for path in (out, *tables):
        print_line(f"Wrote {path}")
    prior = None if shares is None else beside["shares"]
    _print_next(
        source,
        found.examples,
        out,
        {"backbone": backbone, "prior": prior},
        {**names, "feature-column": feature_column, **rules},
    )


def prune_read_examples(
    examples: Examples, *, neighbours: int | None = None, threshold: float | None = None
) -> PrunedExamples:
    """Prune the sets of a table, and print what was removed."""
    from ltpll.cleaning.pruned_tables import prune_examples
    from ltpll.cli.progress import reading_progress

    with reading_progress("comparing") as on_progress:
        how = given(neighbours=neighbours, threshold=threshold)
        found = prune_examples(
            examples, on_progress=lambda done, total: on_progress("rows", done, total), **how
        )
    pruned, before, after = found.of_training, found.of_training.given, found.of_training.candidates
    removed, n = len(before.labels) - len(after.labels), len(before)
    print_line(
        f"Neighbours voted against {removed:,} of {counted(len(before.labels), 'candidate')}, in {counted(len(pruned.changed()), 'set')}: "
        f"{len(before.labels) / n:.2f} → {len(after.labels) / n:.2f} candidates per set."
    )
    if found.lost is not None:
        lost = found.lost
        print_line(
            f"Lost true labels (for evaluation only): {lost.lost:,} of {lost.rows:,} ({lost.lost / lost.rows:.1%}), and in the rarest "
            f"third of the classes {lost.rare_lost:,} of {lost.rare_rows:,} ({lost.rare_lost / lost.rare_rows:.1%})."
        )
    return found


def print_classes(columns: dict[str, list[Any]]) -> None:
    """Print the classes from whose sets most was removed."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    order = [
        c
        for c in sorted(range(len(columns["class"])), key=lambda c: -columns["removed"][c])
        if columns["removed"][c]
    ]
    if not order:
        return
    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for name in columns:
        shown.add_column(
            name.replace("_", " "),
            justify="left" if name == "class" else "right",
            overflow="ellipsis",
        )
    for c in order[:MOST_SHOWN]:
        name, before, removed, share = (
            columns[column][c] for column in ("class", "candidate_in", "removed", "share")
        )
        shown.add_row(Text(printable(name)), f"{before:,}", f"{removed:,}", f"{share:.1%}")
    console.print(shown)
    if len(order) > MOST_SHOWN:
        print_line(
            f"and {counted(len(order) - MOST_SHOWN, 'class', 'classes')} of which less was removed"
        )


def _print_next(
    source: TableSource, examples: Examples, out: Path, how: dict[str, Any], names: dict[str, Any]
) -> None:
    """Print the command that trains on the written table."""
    from ltpll.cleaning.write_pruned import has_set_column

    inside = examples.table.features is not None and source.features is None
    options: dict[str, Any] = {"images": source.images, "features": source.features, **how}
    if has_set_column(source):
        options |= names
    else:
        options |= {"group": None if examples.table.groups is None else "group"}
        if not inside and source.reading.features:
            options |= {"feature-column": list(source.reading.features)}
    words: list[object] = ["ltpll", "train", out]
    for name, value in options.items():
        for one in value if isinstance(value, list) else [] if value is None else [value]:
            words += [f"--{name.replace('_', '-')}", one]
    print_line(f"Next: {command(*words)}")
    if examples.candidates.weights is not None:
        again = command("ltpll", "train", source.table)
        print_line(
            f"The written table does not hold the votes of annotators: to train with them, use `{again} … --prune`."
        )
