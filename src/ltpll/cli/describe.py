"""The describe command: statistics of candidate sets, in sentences and small tables."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ltpll.cleaning.settings import TrainJob
from ltpll.cli.console import console, print_table
from ltpll.cli.options import output_option, takes_settings
from ltpll.cli.report import check_is_table_run
from ltpll.errors import InputError, printable
from ltpll.formatting import counted
from ltpll.runs.run import read_result, run_of_file
from ltpll.runs.run_files import RunFile
from ltpll.settings import values_of

if TYPE_CHECKING:
    from ltpll.analysis import Description
    from ltpll.convert.candidate_files import LabelledSets


Top = Annotated[int, output_option(min=1, help="Number of pairs and classes to show.")]
AsJson = Annotated[bool, output_option("--json", help="Print JSON, with every class.")]


FRONT = (
    *("table.candidates", "table.separator", "table.class_columns", "table.probability_columns"),
    *("table.top_k", "table.annotators", "table.label", "table.group"),
)


@takes_settings(*FRONT)
def describe(
    job: TrainJob,
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="File of candidate sets, or folder of a finished run."
        ),
    ],
    top: Top = 10,
    as_json: AsJson = False,
) -> None:
    """Describe candidate sets: their sizes, pairs, origin, and the class prior.

    A file is a .csv, .tsv or .parquet table that `ltpll train` can read, an .npy or .npz array of
    zeros and ones (rows × classes), a MATLAB file with the arrays data and partial_target, or a
    .json file of a labelling tool or a detector.
    """
    from ltpll.convert.candidate_files import read_candidates

    path, given = Path(source).expanduser(), [n for n in values_of(job) if n.startswith("table.")]
    has_folders = path.is_dir() and any(one.is_dir() for one in path.iterdir())
    is_run = path.is_dir() and not (has_folders and run_of_file(path / RunFile.CONFIG) is None)
    if is_run or (path.suffix == ".json" and _is_result_file(path)):
        if given:
            raise InputError(f"{given[0]} says how a file is read: leave it out for {source}.")
        found = _sets_of_run(path)
    elif job.table.separator == "":
        raise InputError("The separator is empty: give the text between labels, such as '|'.")
    else:
        column = job.table.candidates if "table.candidates" in given else None
        found = read_candidates(path, column, job.table)
    print_description(source, found, top, as_json=as_json)
    if not as_json and found.candidates.weights is not None and job.table.annotators is None:
        _print("Scores were read; in training they weight the candidates.")


def print_description(source: str, sets: LabelledSets, top: int, *, as_json: bool) -> None:
    """Describe candidate sets as sentences and tables, or as JSON."""
    from ltpll.analysis import describe as describe_sets

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
    """Whether a JSON file is the record of a run; one that cannot be read, by its name."""
    from ltpll.convert.json_formats import json_format
    from ltpll.tables.json_stream import json_items

    try:
        items = json_items(path)
        return json_format(path) is None and any(one.key in ("format", "config") for one in items)
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
    true = [-1 if label is None else label for label in table.true.tolist()]
    return LabelledSets(candidates_of(table)[0], np.asarray(true))


# ---- printing ------------------------------------------------------------------------------------

REGIMES = {
    "independent": "Wrong labels seem to join sets independently",
    "co-occurrence": (
        "Sets seem to hold labels that occur together, such as all objects of a picture"
    ),
    "unclear": "It is unclear where the sets come from",
    "known": "No set is ambiguous",
}
ESTIMATES = {
    "independent": "EM, the most likely prior",
    "unclear": "a mean of EM and the average uniform target",
}
CAUTION = {
    "co-occurrence": "The bounds assume that no class has more rows per group than others, "
    "which the "
    "sets cannot show.",
    "unclear": "The bounds are wide, since the sets do not show which estimate is right; "
    "--group or "
    "known labels would help.",
}
PLOT_WIDTH = 30


def _show(source: str, found: Description, top: int) -> None:
    console.print(source, markup=False, soft_wrap=True)
    known = "known" if found.class_counts else "not known"
    if found.n_labelled and not found.class_counts:
        known = f"known for {found.n_labelled:,} of them, which is not enough to compare with"
    examples, classes = counted(found.n_examples, "example"), found.n_classes
    _print(f"{examples}, {counted(classes, 'class', 'classes')}; true labels are {known}.")
    appearances = zip(found.classes, found.appearances, strict=True)
    never = [_short(name, 38) for name, n in appearances if n == 0]
    if never:
        shown = ", ".join(never[:5]) + (f" and {len(never) - 5} more" if len(never) > 5 else "")
        _print(f"Never a candidate, and excluded from every estimated imbalance: {shown}.")
    _show_sizes(found)
    _show_pairs(found)
    _show_regime(found)
    _show_prior(found)
    _show_classes(found, top)


def _print(sentence: str) -> None:
    console.print(sentence, markup=False)


def _print_heading(title: str) -> None:
    console.print()
    console.print(title, style="bold", markup=False)


def _show_sizes(found: Description) -> None:
    first, last = min(found.size_counts), max(found.size_counts)
    _print_heading(f"Set sizes: {found.mean_size:.2f} labels on average, from {first} to {last}")
    if last == 1:
        _print("If you expect more, the labels may have another separator: --separator.")
        return
    width = -(-(last - first + 1) // 12)  # at most twelve rows
    bins: dict[str, int] = {}
    for low in range(first, last + 1, width):
        sizes = range(low, min(low + width, last + 1))
        name = str(low) if len(sizes) == 1 else f"{low}–{sizes[-1]}"
        bins[name] = sum(found.size_counts.get(size, 0) for size in sizes)
    largest = max(bins.values())
    rows = (
        (name, f"{n:,}", f"{n / found.n_examples:.1%}", "█" * round(30 * n / largest))
        for name, n in bins.items()
    )
    print_table(("size", "rows", "share", ""), rows, left=[3])
    _print(f"On average, a wrong label joins a set with probability {found.wrong_label_rate:.3f}.")


def _show_pairs(found: Description) -> None:
    pairs = found.pairs
    _print_heading("Classes that share sets, compared with independent appearance")
    if not pairs.n:
        _print("None.")
        return
    rows = []
    for pair in pairs.most_frequent:
        expected = f"{pair.expected:,.{0 if pair.expected >= 10 else 1}f}"
        figures = (f"{pair.sets:,}", f"{pair.sets / found.n_examples:.1%}", expected)
        rows.append((_both(pair.classes), *figures, f"{pair.times:.2f}"))
    print_table(("pair", "rows", "share", "expected", "ratio"), rows, left=[0])
    left = pairs.n - len(pairs.most_frequent)
    more = f"{counted(left, 'more pair shares', 'more pairs share')} sets. " if left else ""
    most = pairs.most_above
    if most is None:
        _print(f"{more}No pair does so more often than chance explains.")
        return
    does = "does" if pairs.n_above == 1 else "do"
    _print(
        f"{more}{pairs.n_above:,} of {counted(pairs.n, 'pair')} {does} so more often than chance "
        f"explains, above all {_both(most.classes)}: {counted(most.sets, 'row')}, {most.times:.1f} "
        "times as many as expected."
    )


def _short(name: Any, most: int) -> str:
    """A class name, cut to fit a line of 80 columns together with its numbers."""
    text = printable(" ".join(str(name).split()))
    return text if len(text) <= most else text[: most - 1] + "…"


def _both(names: Iterable[Any]) -> str:
    return " + ".join(_short(name, 19) for name in names)


def _show_regime(found: Description) -> None:
    _print_heading("Where the sets come from")
    prior, rows = found.prior, []
    for one in prior.evidence:
        digits = 2 if abs(one.observed) >= 1 else 3
        form = f",.{0 if one.what.startswith('sets with') else digits}f"
        expected = "" if one.expected is None else f"{one.expected:{form}}"
        p = "" if one.p is None else "< 0.0001" if one.p < 0.0001 else f"{one.p:.4f}"
        rows.append((one.what, f"{one.observed:{form}}", expected, p, one.speaks_for))
    if rows:
        print_table(("evidence", "observed", "expected", "p-value", "indicates"), rows, left=[0, 4])
        _print("Expected: if rows were drawn one by one, and wrong labels joined independently.")
        _print(f"{found.recurring:.1%} of the rows share their set with another row.")
    _print(f"{REGIMES[prior.regime]}: {prior.because}.")


def _show_prior(found: Description) -> None:
    from ltpll.priors.distinct_sets import TOLERANCE

    prior = found.prior
    _print_heading("Class prior")
    estimate = ESTIMATES.get(prior.regime, "the average uniform target")
    if prior.regime == "known":
        _print("The class counts are known.")
    else:
        _print(f"Estimate: {estimate}, with bounds of {prior.width:g} standard deviations.")
    below = bool((prior.estimate[prior.seen] < (1 - 1e-9) / prior.n).any())
    known = "" if found.true_imbalance is None else f" (true labels: {found.true_imbalance:,.1f})"
    imbalance = f"{'above ' if below else ''}{prior.imbalance:,.1f}{known}"
    _print(f"Imbalance, the largest class over the smallest: {imbalance}.")
    if prior.regime == "independent":
        _print(f"Sampling gives the estimate an L1 error of about {prior.expected_error:.2f}.")
    elif prior.regime in CAUTION:
        _print(CAUTION[prior.regime])
    if found.errors is not None:
        _print(
            "L1 error: estimate {estimate:.3f}, EM {em:.3f}, average {average:.3f}; "
            "{within_bounds:.0%} of the classes lie within their bounds.".format(**found.errors)
        )
    if prior.em_gap > TOLERANCE * found.n_classes:
        gap = f"its log-likelihood may be {prior.em_gap:.2g} below the maximum"
        _print(f"EM stopped before it converged: {gap}.")
    console.print()


def _show_classes(found: Description, top: int) -> None:
    prior, truth = found.prior, {}
    order = sorted(range(found.n_classes), key=lambda c: -prior.estimate[c])[:top]
    if found.class_counts is not None:
        truth = {c: found.class_counts[c] / found.n_examples for c in order}
    largest = max([float(prior.upper[c]) for c in order] + list(truth.values()))
    rows = []
    for c in order:
        low, middle, high = (float(one[c]) for one in (prior.lower, prior.estimate, prior.upper))
        plot = interval_plot(low, middle, high, truth.get(c), largest)
        rows.append((_short(found.classes[c], 19), f"{middle:.2%}", f"{low:.2%}–{high:.2%}", plot))
    print_table(("class", "estimate", "bounds", "square-root scale"), rows, left=[0, 3])
    of_truth = ", × true share (⊗ at the estimate)" if truth else ""
    _print(f"● estimate, ├ ┤ bounds{of_truth}")
    left = found.n_classes - top
    if left > 0:
        _print(f"Smaller classes not shown: {left:,} (--top shows more, --json all).")


def interval_plot(
    lower: float,
    estimate: float,
    upper: float,
    truth: float | None,
    largest: float,
    width: int = PLOT_WIDTH,
) -> str:
    """A line with an estimate between its bounds, and the true share if it is known.

    Positions grow with the square root of the share.
    """

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
