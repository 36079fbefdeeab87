"""The `data describe` command: statistics of candidate sets, in sentences and small tables."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import ltpll.cli.options as opt
from ltpll.cli.console import console
from ltpll.cli.report import check_is_table_run
from ltpll.cli.training import given, given_files
from ltpll.errors import InputError, printable
from ltpll.formatting import counted
from ltpll.runs.run import read_result

if TYPE_CHECKING:
    from rich.table import Table

    from ltpll.analysis.describe import Description
    from ltpll.convert.candidate_files import LabelledSets


Top = Annotated[int, opt.output_option(min=1, help="Number of pairs and classes to show.")]
AsJson = Annotated[bool, opt.output_option("--json", help="Print JSON, with every class.")]


class DescribeCommand(opt.CommandWithLibraryDefaults):
    def dataclasses(self) -> tuple[type[Any], ...]:
        from ltpll.tables.reading import Reading

        return (Reading,)


def describe(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="File of candidate sets, or folder of a finished run."
        ),
    ],
    column: Annotated[
        str | None,
        opt.column_option(
            "--column",
            "--candidates",
            help="Column, or array of an .npz file, that holds the sets.",
            show_default="candidates",
        ),
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
    control: opt.Control = None,
    objects: opt.Objects = None,
    label: opt.Label = None,
    group: opt.Group = None,
    top: Top = 10,
    as_json: AsJson = False,
) -> None:
    """Describe candidate sets: their sizes, classes that share sets, ambiguity, where the sets come from, and the class prior.

    A file is a .csv, .tsv or .parquet table that `ltpll train` can read, an .npy or .npz array of zeros and ones (rows × classes), or a
    MATLAB file with the arrays data and partial_target, or a .json file of a labelling tool or a detector.
    """
    from ltpll.convert.candidate_files import read_candidates
    from ltpll.tables.reading import Reading

    reading = given(
        separator=separator,
        class_columns=class_column,
        probability_columns=probability_column,
        top_k=top_k,
        mass=mass,
    )
    reading |= given(
        annotators=from_annotators,
        task=task,
        worker=worker,
        annotation=annotation,
        label=label,
        group=group,
    )
    reading |= given(control=control, objects=objects)
    reading |= given(scores=scores, excluded=excluded, empty=empty, possible=possible, site=site)
    reading |= given_files(taxonomy=taxonomy, possible_at=possible_at)
    path = Path(source).expanduser()
    if path.is_dir() or (path.suffix == ".json" and _is_result_file(path)):
        if column is not None or reading:
            raise InputError(
                f"Options that name columns, or say how sets are read from them, are for files: leave them out for {source}."
            )
        found = _sets_of_run(path)
    elif separator == "":
        raise InputError("The separator is empty: give the text between labels, such as '|'.")
    else:
        found = read_candidates(path, column, Reading.of(reading))
    print_description(source, found, top, as_json=as_json)
    if not as_json and found.candidates.weights is not None and from_annotators is None:
        _print(
            "Scores were read; in training they weight the candidates (--scores), and they do not matter here."
        )


def print_description(source: str, sets: LabelledSets, top: int, *, as_json: bool) -> None:
    """Describe candidate sets as sentences and tables, or as JSON."""
    from ltpll.analysis.describe import describe as describe_sets

    found = describe_sets(sets.candidates, sets.labels, most_pairs=top)
    if as_json:
        record = {"source": source, **found.record()}
        ascii_only = not console.encoding.startswith("utf")
        typer.echo(json.dumps(record, indent=1, ensure_ascii=ascii_only, allow_nan=False))
        return
    for note in sets.notes:
        _print(note)
    _show(source, found, top)


def _is_result_file(path: Path) -> bool:
    """Whether a JSON file is the record of a run and not a file of a labelling tool; one that is missing or damaged, by its name."""
    from ltpll.convert.json_formats import json_format
    from ltpll.convert.json_stream import json_items

    try:
        return json_format(path) is None and any(
            item.key in ("format", "config") for item in json_items(path)
        )
    except InputError:
        return path.name == "result.json"


def _sets_of_run(path: Path) -> LabelledSets:
    """The sets that a run on a table was trained on, and the true labels."""
    import numpy as np

    from ltpll.cleaning.results import candidates_of
    from ltpll.cleaning.stored_tables import read_cleaned
    from ltpll.convert.candidate_files import LabelledSets

    config = read_result(path)["config"]
    check_is_table_run(path, config, "data describe")
    table = read_cleaned(path if path.is_dir() else path.parent)
    return LabelledSets(
        candidates_of(table)[0],
        np.asarray([-1 if label is None else label for label in table.true.tolist()]),
    )


# ---- printing ---------------------------------------------------------------------------------------------------------

REGIMES = {
    "independent": "Wrong labels seem to join sets independently",
    "co-occurrence": "Sets seem to hold labels that occur together, such as all objects of a picture",
    "unclear": "It is unclear where the sets come from",
    "known": "No set is ambiguous",
}
ESTIMATES = {
    "independent": "EM, the most likely prior",
    "unclear": "a mean of EM and the average uniform target",
}
AVERAGE = "the average uniform target"
PLOT_WIDTH = 30


def _show(source: str, found: Description, top: int) -> None:
    console.print(source, markup=False, soft_wrap=True)
    some = (
        f"known for {found.n_labelled:,} of them, which is not enough to compare with"
        if found.n_labelled
        else "not known"
    )
    known = "known" if found.class_counts else some
    facts = (
        f"{counted(found.n_examples, 'example')}, {counted(found.n_classes, 'class', 'classes')}"
    )
    _print(f"{facts}; true labels are {known}.")
    never = [
        _short(name, 38) for name, n in zip(found.classes, found.appearances, strict=True) if n == 0
    ]
    if never:
        shown = ", ".join(never[:5]) + (f" and {len(never) - 5} more" if len(never) > 5 else "")
        _print(f"Never a candidate, and excluded from every estimated imbalance: {shown}.")
    _show_sizes(found)
    _show_pairs(found)
    _show_ambiguity(found)
    _show_regime(found)
    _show_prior(found, top)


def _table(*headings: str) -> Table:
    """A small table with text in the first column and numbers in the others."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for i, heading in enumerate(headings):
        table.add_column(
            heading, justify="right" if i else "left", no_wrap=True, overflow="ellipsis"
        )
    return table


def _print(sentence: str) -> None:
    console.print(sentence, markup=False)


def _print_heading(title: str) -> None:
    console.print()
    console.print(title, style="bold", markup=False)


def _show_sizes(found: Description) -> None:
    first, last = min(found.size_counts), max(found.size_counts)
    _print_heading(f"Set sizes: {found.mean_size:.2f} labels on average, from {first} to {last}")
    if last == 1:
        _print(
            "If this is not what you expect, the labels may have another separator: --separator."
        )
        return
    width = -(-(last - first + 1) // 12)  # at most twelve rows
    bins = [(low, min(low + width - 1, last)) for low in range(first, last + 1, width)]
    counts = [
        sum(found.size_counts.get(size, 0) for size in range(low, high + 1)) for low, high in bins
    ]
    table = _table("size", "rows", "share", "")
    table.columns[0].justify, table.columns[-1].justify = "right", "left"
    for (low, high), n in zip(bins, counts, strict=True):
        bar = "█" * round(30 * n / max(counts))
        table.add_row(
            str(low) if low == high else f"{low}–{high}",
            f"{n:,}",
            f"{n / found.n_examples:.1%}",
            bar,
        )
    console.print(table)


def _show_pairs(found: Description) -> None:
    from rich.text import Text

    pairs = found.pairs
    _print_heading("Classes that share sets, compared with independent appearance")
    if not pairs.n:
        _print("None.")
        return
    table = _table("pair", "rows", "share", "expected", "ratio")
    for pair in pairs.most_frequent:
        share, expected = (
            f"{pair.sets / found.n_examples:.1%}",
            f"{pair.expected:,.{0 if pair.expected >= 10 else 1}f}",
        )
        table.add_row(
            Text(_both(pair.classes)), f"{pair.sets:,}", share, expected, f"{pair.times:.2f}"
        )
    console.print(table)
    left = pairs.n - len(pairs.most_frequent)
    more = f"{counted(left, 'more pair shares', 'more pairs share')} sets. " if left else ""
    most = pairs.most_above
    if most is None:
        _print(f"{more}No pair does so more often than chance explains.")
    else:
        _print(
            f"{more}{pairs.n_above:,} of {counted(pairs.n, 'pair')} {'does' if pairs.n_above == 1 else 'do'} so more often than chance "
            f"explains, above all {_both(most.classes)}: "
            f"{counted(most.sets, 'row')}, {most.times:.1f} times as many as expected."
        )


def _short(name: Any, most: int) -> str:
    """A class name, cut to fit a line of 80 columns together with its numbers."""
    text = printable(" ".join(str(name).split()))
    return text if len(text) <= most else text[: most - 1] + "…"


def _both(names: Iterable[Any]) -> str:
    return " + ".join(_short(name, 19) for name in names)


def _show_ambiguity(found: Description) -> None:
    low, high = found.ambiguity_bounds
    _print_heading("Ambiguity")
    _print(f"On average, a wrong label joins a set with probability {found.wrong_label_rate:.3f}.")
    if found.ambiguity_degree is None:
        _print(
            "The ambiguity degree, the largest such probability of any label in any class, depends on the true labels: "
            f"from the sets alone, it is between {low:.3f} and {high:.3f}."
        )
    else:
        _print(
            "The ambiguity degree, the largest share of a class's examples whose sets hold the same wrong label, is "
            f"{found.ambiguity_degree:.3f}; small classes raise it by chance. "
            f"From the sets alone, it is between {low:.3f} and {high:.3f}."
        )


def _show_regime(found: Description) -> None:
    _print_heading("Where the sets come from")
    prior = found.prior
    if prior.evidence:
        table = _table("evidence", "observed", "expected", "p-value", "indicates")
        table.columns[-1].justify = "left"
        for one in prior.evidence:
            form = (
                ",.0f"
                if one.what.startswith("sets with")
                else ",.2f"
                if abs(one.observed) >= 1
                else ".3f"
            )
            expected = "" if one.expected is None else f"{one.expected:{form}}"
            p = "" if one.p is None else "< 0.0001" if one.p < 0.0001 else f"{one.p:.4f}"
            table.add_row(one.what, f"{one.observed:{form}}", expected, p, one.speaks_for)
        console.print(table)
        _print(
            "Expected: if rows were drawn one by one, and wrong labels joined them independently."
        )
        _print(f"{found.recurring:.1%} of the rows share their set with another row.")
    _print(f"{REGIMES[prior.regime]}: {prior.because}.")


def _show_prior(found: Description, top: int) -> None:
    from ltpll.priors.set_priors import TOLERANCE

    prior = found.prior
    _print_heading("Class prior")
    if prior.regime == "known":
        _print("The class counts are known.")
    else:
        _print(
            f"Estimate: {ESTIMATES.get(prior.regime, AVERAGE)}, with bounds of {prior.width:g} standard deviations."
        )
    below = bool((prior.estimate[prior.seen] < (1 - 1e-9) / prior.n).any())
    known = "" if found.true_imbalance is None else f" (true labels: {found.true_imbalance:,.1f})"
    _print(
        f"Imbalance, the largest class over the smallest: {'above ' if below else ''}{prior.imbalance:,.1f}{known}."
    )
    if prior.regime == "independent":
        _print(f"Sampling gives the estimate an L1 error of about {prior.expected_error:.2f}.")
    elif prior.regime == "co-occurrence":
        _print(
            "The bounds assume that no class has more rows per group than others, which the sets cannot show."
        )
    elif prior.regime == "unclear":
        _print(
            "The bounds are wide, since the sets do not show which estimate is right; --group or known labels would help."
        )
    if found.errors is not None:
        _print(
            f"L1 error: estimate {found.errors['estimate']:.3f}, EM {found.errors['em']:.3f}, average {found.errors['average']:.3f}; "
            f"{found.errors['within_bounds']:.0%} of the classes lie within their bounds."
        )
    if prior.em_gap > TOLERANCE * found.n_classes:
        _print(
            f"EM stopped before it converged: its log-likelihood may be {prior.em_gap:.2g} below the maximum."
        )
    console.print()
    _show_classes(found, top)


def _show_classes(found: Description, top: int) -> None:
    from rich.text import Text

    prior = found.prior
    order = sorted(range(found.n_classes), key=lambda c: -prior.estimate[c])[:top]
    truth = (
        None
        if found.class_counts is None
        else [count / found.n_examples for count in found.class_counts]
    )
    largest = max(
        [float(prior.upper[c]) for c in order] + ([truth[c] for c in order] if truth else [])
    )
    table = _table("class", "estimate", "bounds", "square-root scale")
    table.columns[-1].justify = "left"
    for c in order:
        true = None if truth is None else truth[c]
        plot = interval_plot(
            float(prior.lower[c]), float(prior.estimate[c]), float(prior.upper[c]), true, largest
        )
        bounds = f"{prior.lower[c]:.2%}–{prior.upper[c]:.2%}"
        table.add_row(
            Text(_short(found.classes[c], 19)), f"{prior.estimate[c]:.2%}", bounds, Text(plot)
        )
    console.print(table)
    _print(
        "● estimate, ├ ┤ bounds" + ("" if truth is None else ", × true share (⊗ at the estimate)")
    )
    if found.n_classes > top:
        _print(
            f"Smaller classes not shown: {found.n_classes - top:,} (--top shows more, --json all)."
        )


def interval_plot(
    lower: float,
    estimate: float,
    upper: float,
    truth: float | None,
    largest: float,
    width: int = PLOT_WIDTH,
) -> str:
    """A line with an estimate between its bounds, and the true share if known; positions grow with the square root of the share."""

    def position(share: float) -> int:
        return round((width - 1) * (min(share, largest) / largest) ** 0.5) if largest > 0 else 0

    line = [" "] * width
    first, last = position(lower), position(upper)
    line[first : last + 1] = "─" * (last + 1 - first)
    line[first], line[last] = "├", "┤"
    line[position(estimate)] = "●"
    if truth is not None:
        line[position(truth)] = "⊗" if position(truth) == position(estimate) else "×"
    return "".join(line).rstrip()
