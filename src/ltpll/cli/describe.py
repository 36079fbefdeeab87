"""The `data describe` command: statistics of candidate sets, in sentences and small tables."""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ltpll.cli.console import console
from ltpll.cli.options import Ambiguity, DataRoot, Imbalance, Superclass, data_option, output_option
from ltpll.errors import InputError, printable

if TYPE_CHECKING:
    from rich.table import Table

    from ltpll.analysis.describe import Description

file_option = partial(typer.Option, rich_help_panel="Files")


def describe(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="File of candidate sets, folder of a finished run, or image set.")],
    column: Annotated[str | None, file_option(help="Column, or array of an .npz file, that holds the sets.")] = None,
    separator: Annotated[str | None, file_option(help="Separates the labels of a set.")] = None,
    imbalance: Imbalance = None,
    ambiguity: Ambiguity = None,
    superclass: Superclass = None,
    seed: Annotated[int | None, data_option(help="Seed of the subset and the sets.")] = None,
    root: DataRoot = None,
    top: Annotated[int, output_option(min=1, help="Number of pairs and classes to show.")] = 10,
    as_json: Annotated[bool, output_option("--json", help="Print JSON, with every class.")] = False,
) -> None:
    """Describe candidate sets: their sizes, classes that share sets, ambiguity, and the class imbalance estimated from them.

    A file is a .csv, .tsv or .parquet table with a column of lists or of text such as cat|dog, an .npy or .npz array of zeros and ones
    (rows × classes), or a MATLAB file with the arrays data and partial_target. The options for image sets draw the sets as
    `ltpll benchmark` does.
    """
    from ltpll.analysis.describe import describe as describe_sets
    from ltpll.cleaning.results import candidates_of
    from ltpll.cleaning.stored_tables import read_cleaned
    from ltpll.data.benchmarks.image_sets import IMAGE_SETS
    from ltpll.data.readers.tables import Reading, read_candidates
    from ltpll.experiments.benchmark import redraw_candidates
    from ltpll.runs.run import read_result

    given = {"imbalance": imbalance, "ambiguity": ambiguity, "superclass": superclass, "seed": seed}
    settings = {name: value for name, value in given.items() if value is not None}
    path = Path(source).expanduser()
    is_run = path.is_dir() or path.suffix == ".json"
    if source not in IMAGE_SETS and settings:
        raise InputError(f"--{next(iter(settings))} is for image sets ({', '.join(IMAGE_SETS)}): leave it out for {source}.")
    if (source in IMAGE_SETS or is_run) and (column is not None or separator is not None):
        raise InputError(f"--column and --separator are for files, and {source} is not a file: leave them out.")
    if separator == "":
        raise InputError("The separator is empty: give the text between labels, such as '|'.")
    labels: list[int] | None = None
    config = {"experiment": "images", "data": source, **settings} if source in IMAGE_SETS else read_result(path)["config"] if is_run else {}
    if config.get("experiment") == "own":
        candidates, labels = candidates_of(read_cleaned(path if path.is_dir() else path.parent))
    elif config:
        drawn = redraw_candidates(config, root)
        candidates, labels = drawn.candidates, drawn.labels
        source = drawn.description if source in IMAGE_SETS else f"{source}: {drawn.description}"
    else:
        candidates = read_candidates(path, column, separator or Reading.separator)
    description = describe_sets(candidates, labels, most_pairs=top)
    if as_json:
        typer.echo(json.dumps({"source": source, **description.record()}, indent=1, ensure_ascii=False, allow_nan=False))
    else:
        _show(source, description, top)


# ---- printing ---------------------------------------------------------------------------------------------------------

REGIMES = {
    "independent": "Wrong labels seem to join sets independently",
    "co-occurrence": "Sets seem to hold labels that occur together, such as all objects of a picture",
    "unclear": "It is unclear where the sets come from",
    "known": "No set is ambiguous",
}
ESTIMATES = {"em": "EM (most likely prior)", "average": "average uniform target"}


def _show(source: str, found: Description, top: int) -> None:
    console.print(source, markup=False, soft_wrap=True)
    known = "known" if found.class_counts else "not known"
    _print(f"{found.n_examples:,} examples, {found.n_classes:,} classes; true labels are {known}.")
    never = [_short(name, 38) for name, n in zip(found.classes, found.appearances, strict=True) if n == 0]
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
        table.add_column(heading, justify="right" if i else "left", no_wrap=True, overflow="ellipsis")
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
        _print("If this is not what you expect, the labels may have another separator: --separator.")
        return
    width = -(-(last - first + 1) // 12)  # at most twelve rows
    bins = [(low, min(low + width - 1, last)) for low in range(first, last + 1, width)]
    counts = [sum(found.size_counts.get(size, 0) for size in range(low, high + 1)) for low, high in bins]
    table = _table("size", "rows", "share", "")
    table.columns[0].justify, table.columns[-1].justify = "right", "left"
    for (low, high), n in zip(bins, counts, strict=True):
        bar = "█" * round(30 * n / max(counts))
        table.add_row(str(low) if low == high else f"{low}–{high}", f"{n:,}", f"{n / found.n_examples:.1%}", bar)
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
        share, expected = f"{pair.sets / found.n_examples:.1%}", f"{pair.expected:,.{0 if pair.expected >= 10 else 1}f}"
        table.add_row(Text(_both(pair.classes)), f"{pair.sets:,}", share, expected, f"{pair.times:.2f}")
    console.print(table)
    left = pairs.n - len(pairs.most_frequent)
    more = f"{left:,} more pairs share sets. " if left else ""
    most = pairs.most_above
    if most is None:
        _print(f"{more}No pair does so more often than chance explains.")
    else:
        _print(
            f"{more}{pairs.n_above:,} of {pairs.n:,} pairs do so more often than chance explains, above all {_both(most.classes)}: "
            f"{most.sets:,} rows, {most.times:.1f} times as many as expected."
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
    _print_heading("Where the sets come from, compared with wrong labels that join independently")
    table = _table("evidence", "observed", "if independent", "indicates")
    for evidence in found.evidence:
        form = ",.0f" if evidence.what in ("distinct sets", "pairs above chance") else ".3f"
        limit = f"{evidence.margin:{form}}"
        expected = f"{evidence.independent:{form}} ± {limit}" if evidence.independent else f"{limit} at most"
        table.add_row(evidence.what, f"{evidence.observed:{form}}", expected, evidence.speaks_for)
    console.print(table)
    _print(f"{found.recurring:.1%} of the rows share their set with another row; if independent: {found.recurring_if_independent:.1%}.")
    sure = "" if found.verdict.regime == "unclear" else f" ({found.verdict.certainty})"
    _print(f"{REGIMES[found.verdict.regime]}{sure}: {found.verdict.because}.")


def _show_prior(found: Description, top: int) -> None:
    from ltpll.priors.set_priors import TOLERANCE

    _print_heading("Class imbalance (largest class over smallest)")
    known, trust = found.true_imbalance is not None, found.verdict.trust
    table = _table("from", "imbalance", *(["L1 error"] if known else []), "")
    table.columns[-1].justify = "left"
    if known:
        table.add_row("true labels", f"{found.true_imbalance:,.1f}", "", "")
    guess = "the better guess" if found.verdict.certainty == "unsure" else "trust this one"
    for name, estimate in (("em", found.em), ("average", found.average)):
        imbalance = f"above {estimate.imbalance:,.0f}" if estimate.below_one_example else f"{estimate.imbalance:,.1f}"
        mark = f"◀ {guess} ({found.verdict.certainty})" if name == trust else ""
        table.add_row(ESTIMATES[name], imbalance, *([f"{estimate.error:.3f}"] if known else []), mark)
    console.print(table)
    em = found.em
    if trust == "em" and em.low is not None and em.random_error is not None:
        reach = f"{em.low:,.0f} or more" if em.high is None else f"{em.low:,.0f} to {em.high:,.0f}"
        _print(f"Sampling gives EM an L1 error of about {em.random_error:.2f}; the imbalance may be {reach}.")
    elif found.verdict.regime != "known":
        _print("The average treats every label of a set as equally likely; the sets alone cannot show how wrong that is.")
    if found.em_gap > TOLERANCE:
        _print(f"EM stopped before it converged: its log-likelihood may be {found.em_gap:.2g} below the maximum.")
    console.print()
    _show_classes(found, top)


def _show_classes(found: Description, top: int) -> None:
    from rich.text import Text

    table = _table("class", "in sets", *(["true"] if found.class_counts else []), "EM", "average")
    trusted = found.em.prior if found.verdict.trust == "em" else found.average.prior
    for c in sorted(range(found.n_classes), key=lambda c: -trusted[c])[:top]:
        shares = [found.appearances[c] / found.n_examples, found.em.prior[c], found.average.prior[c]]
        if found.class_counts:
            shares.insert(1, found.class_counts[c] / found.n_examples)
        table.add_row(Text(_short(found.classes[c], 38)), *(f"{share:.2%}" for share in shares))
    console.print(table)
    if found.n_classes > top:
        _print(f"Smaller classes not shown: {found.n_classes - top:,} (--top shows more, --json all).")
