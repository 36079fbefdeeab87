"""The describe command: statistics of candidate sets, in sentences and small tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ltpll.cleaning.settings import TrainJob
from ltpll.cli.console import console, print_line, print_table
from ltpll.cli.options import output_option, takes_settings
from ltpll.errors import InputError, printable
from ltpll.formatting import counted, format_names
from ltpll.runs.run_files import RunFile
from ltpll.settings import values_of

if TYPE_CHECKING:
    from ltpll.analysis import Description
    from ltpll.convert.open import LabelledSets

REGIMES = {
    "independent": "Wrong labels seem to join sets independently",
    "co-occurrence": "Sets seem to hold labels that occur together, such as all objects of a "
    "picture",
    "unclear": "It is unclear where the sets come from",
    "known": "No set is ambiguous",
}
ESTIMATES = {
    "independent": "EM, the most likely prior",
    "co-occurrence": "the average uniform target",
    "unclear": "a mean of EM and the average uniform target",
    "known": "the class counts",
}


@takes_settings(
    *("table.candidates", "table.separator", "table.class_columns", "table.probability_columns"),
    *("table.top_k", "table.annotators", "table.label", "table.group"),
)
def describe(
    job: TrainJob,
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="File of candidate sets, or folder of a finished run."
        ),
    ],
    top: Annotated[int, output_option(min=1, help="Number of pairs and classes to show.")] = 10,
    as_json: Annotated[bool, output_option("--json", help="Print JSON, with every class.")] = False,
) -> None:
    """Describe candidate sets: their sizes, pairs, origin, and the class prior.

    A file is a .csv, .tsv or .parquet table that `ltpll train` can read, or a .json file
    of a labelling tool or SpeciesNet.
    """
    from ltpll.analysis import describe as describe_sets
    from ltpll.convert.open import read_candidates

    path, given = Path(source).expanduser(), [n for n in values_of(job) if n.startswith("table.")]
    is_run = (path / RunFile.CONFIG).exists()
    if is_run or (path.is_dir() and not any(one.is_dir() for one in path.iterdir())):
        if given:
            raise InputError(f"{given[0]} says how a file is read: leave it out for {source}.")
        sets = _sets_of_run(path)
    elif job.table.separator == "":
        raise InputError("The separator is empty: give the text between labels, such as '|'.")
    else:
        column = job.table.candidates if "table.candidates" in given else None
        sets = read_candidates(path, column, job.table)
    found = describe_sets(sets.candidates, sets.labels, most_pairs=top)
    if as_json:
        record = {"source": source, **found.record()}
        ascii_only = not console.encoding.startswith("utf")
        typer.echo(json.dumps(record, indent=1, ensure_ascii=ascii_only, allow_nan=False))
        return
    for note in sets.notes:
        _print(note)
    print_line(source)
    _print_sets(found)
    _print_pairs(found)
    _print_prior(found, top)
    if sets.candidates.weights is not None and job.table.annotators is None:
        _print("Scores were read; in training they weight the candidates.")


def _sets_of_run(path: Path) -> LabelledSets:
    import numpy as np

    from ltpll.cleaning.results import candidates_of
    from ltpll.cleaning.stored_tables import read_cleaned
    from ltpll.convert.open import LabelledSets

    table = read_cleaned(path)
    true = [-1 if label is None else label for label in table.true.tolist()]
    return LabelledSets(candidates_of(table), np.asarray(true))


def _print(sentence: str) -> None:
    console.print(sentence, markup=False)


def _print_heading(title: str) -> None:
    console.print()
    console.print(title, style="bold", markup=False)


def _print_sets(found: Description) -> None:
    known = "known" if found.class_counts else "not known"
    if found.n_labelled and not found.class_counts:
        known = f"known for {found.n_labelled:,} of them, which is not enough to compare with"
    classes = counted(found.n_classes, "class", "classes")
    _print(f"{counted(found.n_examples, 'example')}, {classes}; true labels are {known}.")
    appearances = zip(found.classes, found.appearances, strict=True)
    if never := [str(name) for name, n in appearances if n == 0]:
        names = format_names(never, 5)
        _print(f"Never a candidate, and excluded from every estimated imbalance: {names}.")
    first, last = min(found.size_counts), max(found.size_counts)
    _print_heading(f"Set sizes: {found.mean_size:.2f} labels on average, from {first} to {last}")
    if last == 1:
        _print("If you expect more, the labels may have another separator: --separator.")
        return
    _print(f"A single label: {found.size_counts.get(1, 0) / found.n_examples:.1%} of the rows.")
    _print(f"On average, a wrong label joins a set with probability {found.wrong_label_rate:.3f}.")


def _print_pairs(found: Description) -> None:
    pairs = found.pairs
    _print_heading("Classes that share sets, compared with independent appearance")
    if not pairs.n:
        _print("None.")
        return
    rows = []
    for pair in pairs.most_frequent:
        figures = (f"{pair.sets:,}", f"{pair.sets / found.n_examples:.1%}", f"{pair.expected:,.1f}")
        rows.append((_short(*pair.classes), *figures, f"{pair.times:.2f}"))
    print_table(("pair", "rows", "share", "expected", "ratio"), rows, left=[0])
    left = pairs.n - len(pairs.most_frequent)
    more = f"{counted(left, 'more pair shares', 'more pairs share')} sets. " if left else ""
    most = pairs.most_above
    if most is None:
        _print(f"{more}No pair does so more often than chance explains.")
        return
    _print(
        f"{more}More often than chance explains: {pairs.n_above:,} of {counted(pairs.n, 'pair')}, "
        f"above all {_short(*most.classes)}: {counted(most.sets, 'row')}, {most.times:.1f} times as "
        "many as expected."
    )


def _short(*names: Any) -> str:
    """Class names, cut to fit a line of 80 columns together with their numbers."""
    texts = [printable(" ".join(str(name).split())) for name in names]
    return " + ".join(text if len(text) <= 19 else text[:18] + "…" for text in texts)


def _print_prior(found: Description, top: int) -> None:
    prior, n = found.prior, found.n_examples
    _print_heading("Where the sets come from")
    if prior.evidence:
        _print(f"{found.recurring:.1%} of the rows share their set with another row.")
    _print(f"{REGIMES[prior.regime]}: {prior.because}.")
    _print_heading("Class prior")
    width = f", with bounds of {prior.width:g} standard deviations"
    _print(f"Estimate: {ESTIMATES[prior.regime]}{'' if prior.regime == 'known' else width}.")
    known = "" if found.true_imbalance is None else f" (true labels: {found.true_imbalance:,.1f})"
    below = bool((prior.estimate[prior.seen] < (1 - 1e-9) / prior.n).any())
    imbalance = f"{'above ' if below else ''}{prior.imbalance:,.1f}{known}"
    _print(f"Imbalance, the largest class over the smallest: {imbalance}.")
    if prior.regime == "independent":
        _print(f"Sampling gives the estimate an L1 error of about {prior.expected_error:.2f}.")
    if found.errors is not None:
        _print(
            "L1 error: estimate {estimate:.3f}, EM {em:.3f}, average {average:.3f}; "
            "{within_bounds:.0%} of the classes lie within their bounds.".format(**found.errors)
        )
    console.print()
    rows = []
    for c in sorted(range(found.n_classes), key=lambda c: -prior.estimate[c])[:top]:
        bounds = f"{prior.lower[c]:.2%}–{prior.upper[c]:.2%}"
        true = [] if found.class_counts is None else [f"{found.class_counts[c] / n:.2%}"]
        rows.append([_short(found.classes[c]), f"{prior.estimate[c]:.2%}", bounds, *true])
    headings = ["class", "estimate", "bounds"]
    print_table(headings if found.class_counts is None else [*headings, "true"], rows, left=[0])
    if found.n_classes > top:
        left = found.n_classes - top
        _print(f"Smaller classes not shown: {left:,} (--top shows more, --json all).")
