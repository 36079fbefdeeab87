"""The describe command: statistics of candidate sets, in sentences and small tables."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ltpll.cleaning.settings import TrainJob
from ltpll.cli.console import console, print_line, print_table
from ltpll.cli.options import output_option, takes_settings
from ltpll.errors import InputError, printable
from ltpll.formatting import counted, format_names
from ltpll.settings import values_of

if TYPE_CHECKING:
    from ltpll.analysis import Description

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
    *("table.top_k", "table.annotators", "table.group"),
)
def describe(
    job: TrainJob,
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(metavar="SOURCE", help="File of candidate sets."),
    ],
    top: Annotated[int, output_option(min=1, help="Number of classes to show.")] = 10,
    as_json: Annotated[bool, output_option("--json", help="Print JSON, with every class.")] = False,
) -> None:
    """Describe candidate sets: their sizes, their origin, and the class prior.

    A file is a table that `ltpll train` can read, a quoted pattern for several, a MATLAB file with
    the arrays data and partial_target, or a .json file of a labelling tool or a detector.
    """
    from ltpll.convert.open import read_candidates

    if job.table.separator == "":
        raise InputError("The separator is empty: give the text between labels, such as '|'.")
    column = job.table.candidates if "table.candidates" in values_of(job) else None
    sets = read_candidates(Path(source).expanduser(), column, job.table)
    from ltpll.analysis import describe as describe_sets

    found = describe_sets(sets.candidates)
    if as_json:
        record = {"source": source, **found.record()}
        ascii_only = not console.encoding.startswith("utf")
        typer.echo(json.dumps(record, indent=1, ensure_ascii=ascii_only, allow_nan=False))
        return
    for note in sets.notes:
        _print(note)
    print_line(source)
    _print_sets(found)
    _print_prior(found, top)
    are_votes = job.table.annotators is not None or len(job.table.candidate_columns) > 1
    if sets.candidates.weights is not None and not are_votes:
        _print("Scores were read; in training they weight the candidates.")


def _print(sentence: str) -> None:
    console.print(sentence, markup=False)


def _print_heading(title: str) -> None:
    console.print()
    console.print(title, style="bold", markup=False)


def _print_sets(found: Description) -> None:
    classes = counted(found.n_classes, "class", "classes")
    _print(f"{counted(found.n_examples, 'example')}, {classes}.")
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


def _short(name: object) -> str:
    """A class name, cut to fit a line of 80 columns together with its numbers."""
    text = printable(" ".join(str(name).split()))
    return text if len(text) <= 40 else text[:39] + "…"


def _print_prior(found: Description, top: int) -> None:
    prior = found.prior
    _print_heading("Where the sets come from")
    if prior.evidence:
        _print(f"{found.recurring:.1%} of the rows share their set with another row.")
    _print(f"{REGIMES[prior.regime]}: {prior.because}.")
    _print_heading("Class prior")
    width = f", with bounds of {prior.width:g} standard deviations"
    _print(f"Estimate: {ESTIMATES[prior.regime]}{'' if prior.regime == 'known' else width}.")
    below = bool((prior.estimate[prior.seen] < (1 - 1e-9) / prior.n).any())
    imbalance = f"{'above ' if below else ''}{prior.imbalance:,.1f}"
    _print(f"Imbalance, the largest class over the smallest: {imbalance}.")
    if prior.regime == "independent":
        _print(f"Sampling gives the estimate an L1 error of about {prior.expected_error:.2f}.")
    console.print()
    rows = []
    for c in sorted(range(found.n_classes), key=lambda c: -prior.estimate[c])[:top]:
        bounds = f"{prior.lower[c]:.2%}–{prior.upper[c]:.2%}"
        rows.append([_short(found.classes[c]), f"{prior.estimate[c]:.2%}", bounds])
    print_table(("class", "estimate", "bounds"), rows, left=[0])
    if found.n_classes > top:
        left = found.n_classes - top
        _print(f"Smaller classes not shown: {left:,} (--top shows more, --json all).")
