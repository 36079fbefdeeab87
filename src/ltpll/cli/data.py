"""The `data` commands: prepare an image set from its published archives, list what is prepared, and describe candidate sets."""

from __future__ import annotations

import ast
import csv
import json
import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from ltpll.cli.console import console
from ltpll.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from ltpll.candidates import Candidates
    from ltpll.describe import Description

app = typer.Typer(help="Prepare and list image sets, and describe candidate sets.", no_args_is_help=True)

DataRoot = Annotated[
    Path | None,
    typer.Option("--data-root", help="Folder of the image sets (default: $LTPLL_DATA, else the user's cache folder).", show_default=False),
]


@app.command()
def prepare(
    name: Annotated[str, typer.Argument(help="An image set.", metavar="cifar10|cifar100|voc2007")],
    archive: Annotated[
        list[Path] | None, typer.Option(help="A published archive already on this disk; repeat for sets that have several.")
    ] = None,
    root: DataRoot = None,
    no_check: Annotated[bool, typer.Option("--no-check", help="Take the given archives whatever their checksum.")] = False,
) -> None:
    """Download an image set, or take the archives given, and write it as plain arrays."""
    from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

    from ltpll.data.image_sets import load_image_set, prepare_image_set

    tasks: dict[str, TaskID] = {}
    try:
        with Progress(TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn(), console=console) as progress:

            def show(what: str, done: int, total: int) -> None:
                if what not in tasks:
                    tasks[what] = progress.add_task(what, total=total or None)
                progress.update(tasks[what], completed=done, total=total or None)

            folder = prepare_image_set(name, root, archive or (), show, check=not no_check)
    except KeyboardInterrupt:
        console.print("Interrupted: nothing was changed; the same command starts again.")
        raise typer.Exit(130) from None
    prepared = load_image_set(name, root, mmap=True)
    console.print(
        f"{name}: {len(prepared.y_train)} training and {len(prepared.y_test)} test images of {len(prepared.classes)} classes in {folder}",
        markup=False,
        soft_wrap=True,
    )


@app.command("list")
def list_sets(
    root: DataRoot = None,
    verify: Annotated[bool, typer.Option("--verify", help="Compare the checksum of every file.")] = False,
) -> None:
    """Show which image sets are prepared, and which are not yet."""
    from rich import box
    from rich.table import Table

    from ltpll.data.archives import SOURCES
    from ltpll.data.image_sets import data_root, list_image_sets

    listed = list_image_sets(root, verify=verify)
    prepared = [one for one in listed if one.prepared]
    if prepared:
        table = Table(box=box.SIMPLE, pad_edge=False)
        for heading, side in (("name", "left"), ("images", "right"), ("classes", "right"), ("size", "right"), ("checksums", "left")):
            table.add_column(heading, justify=side, no_wrap=True)  # type: ignore[arg-type]
        for one in prepared:
            state = "damaged" if one.problem else "ok" if one.verified else "not checked"
            numbers = (
                ("–", "–", "–") if one.problem else (f"{one.n_train} + {one.n_test}", str(one.n_classes), f"{one.n_bytes / 2**20:.1f} MiB")
            )
            table.add_row(one.name, *numbers, state)
        console.print(table)
        # Below the table and not in it, where a narrow terminal would break it so that it cannot be copied.
        console.print(f"images: training + test; each set is a folder in {data_root(root)}", markup=False, soft_wrap=True)
    else:
        console.print(f"No image set is prepared in {data_root(root)}.", markup=False, soft_wrap=True)
    for one in listed:
        if not one.prepared:
            archives = " and ".join(source.file_name for source in SOURCES[one.name])
            console.print(f"Not prepared: {one.name} (`ltpll data prepare {one.name}` downloads {archives}).", markup=False, soft_wrap=True)
    damaged = [one.problem for one in prepared if one.problem]
    for problem in damaged:
        console.print(problem, markup=False, soft_wrap=True)
    if damaged:
        raise typer.Exit(2)


# ---- describe ---------------------------------------------------------------------------------------------------------


@app.command()
def describe(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="An image set's name, a finished run's folder, or a file of sets.")],
    imbalance: Annotated[float | None, typer.Option(help="Of an image set, as for train; default 100.", show_default=False)] = None,
    ambiguity: Annotated[float | None, typer.Option(help="Of an image set, as for train; default 0.05.", show_default=False)] = None,
    superclass: Annotated[bool | None, typer.Option("--superclass/--uniform", help="Of an image set, as for train.")] = None,
    seed: Annotated[int | None, typer.Option(help="Of an image set, as for train; default 0.", show_default=False)] = None,
    root: DataRoot = None,
    column: Annotated[str | None, typer.Option(help="Of a file: the column, or the array of an .npz, that holds the sets.")] = None,
    separator: Annotated[str | None, typer.Option(help="Of a file: what stands between labels; default |.", show_default=False)] = None,
    top: Annotated[int, typer.Option(min=1, help="Pairs and classes to show.")] = 10,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, with every class.")] = False,
) -> None:
    """Say what candidate sets are like: sizes, classes that share sets, ambiguity, and the class imbalance they let see.

    A file is a .csv, .tsv or .parquet table with a column of lists or of text such as cat|dog, or an .npy or .npz array of zeros and ones
    (rows × classes).
    """
    from ltpll.data.image_sets import IMAGE_SETS
    from ltpll.describe import describe as describe_sets

    given = {"imbalance": imbalance, "ambiguity": ambiguity, "superclass": superclass, "seed": seed}
    settings = {name: value for name, value in given.items() if value is not None}
    path = Path(source).expanduser()
    is_run = path.is_dir() or path.suffix == ".json"
    if source not in IMAGE_SETS and settings:
        raise InputError(f"--{next(iter(settings))} draws the sets of an image set ({', '.join(IMAGE_SETS)}): leave it out for {source}.")
    if (source in IMAGE_SETS or is_run) and (column is not None or separator is not None):
        raise InputError(f"--column and --separator are for files, and {source} is none: leave them out.")
    if separator == "":
        raise InputError("The separator is empty: give what stands between labels, such as '|'.")
    labels: list[int] | None = None
    if source in IMAGE_SETS or is_run:
        drawn = drawn_sets(
            {"experiment": "images", "data": source, **settings} if source in IMAGE_SETS else run_record(path)["config"], root
        )
        candidates, labels = drawn.candidates, drawn.labels
        source = drawn.how if source in IMAGE_SETS else f"{source}: {drawn.how}"
    else:
        candidates = _read_file(path, column, "|" if separator is None else separator)
    description = describe_sets(candidates, labels, most_pairs=top)
    if as_json:
        typer.echo(json.dumps({"source": source, **description.record()}, indent=1, ensure_ascii=False, allow_nan=False))
    else:
        _show(source, description, top)


class Drawn(NamedTuple):
    """The candidate sets of an experiment with their true labels, and its settings in words."""

    candidates: Candidates
    labels: list[int]
    how: str


def run_record(run: Path) -> dict[str, Any]:
    """The record of a finished run, from its folder or its result file."""
    from ltpll.runs import read_result

    return read_result(run / "result.json" if run.is_dir() else run)


def drawn_sets(config: Mapping[str, Any], root: Path | None) -> Drawn:
    """What an experiment's config draws from its image set, as training draws it."""
    import numpy as np

    from ltpll.candidates import Candidates
    from ltpll.data.image_sets import load_image_set
    from ltpll.experiment import Experiment, draw_problem

    if config.get("experiment") != "images":
        raise InputError("The run is one of a study and not of an image set: its sets cannot be drawn again.")
    experiment = Experiment.from_config(config)
    images = load_image_set(experiment.data, root, mmap=True)
    # Pixels have no say in the sets, and leaving them on the disk saves gigabytes.
    x_train, x_test = (np.zeros((len(x), 1, 1, 3), np.uint8) for x in (images.x_train, images.x_test))
    problem = draw_problem(experiment, images._replace(x_train=x_train, x_test=x_test))
    sets = problem.candidates
    where = ", eight times that inside a superclass" if experiment.superclass else ""
    how = f"{images.name} at imbalance {experiment.imbalance:g}, ambiguity {experiment.ambiguity:g}{where}, seed {experiment.seed}"
    if images.candidates is not None:
        how = f"{images.name} with its own sets, whatever imbalance, ambiguity and seed"
    return Drawn(Candidates(sets.offsets, sets.labels, sets.n_classes, images.classes), problem.y.tolist(), how)


# ---- files ------------------------------------------------------------------------------------------------------------


def _read_file(path: Path, column: str | None, separator: str) -> Candidates:
    from ltpll.candidates import Candidates
    from ltpll.data.image_sets import IMAGE_SETS
    from ltpll.sets import read_series

    kind = path.suffix.lower()
    if kind not in (".csv", ".tsv", ".parquet", ".npz", ".npy"):
        known = ", ".join(IMAGE_SETS)
        raise InputError(f"{path} is no image set ({known}), no run's folder and no .csv, .tsv, .parquet, .npz or .npy file.")
    if not path.is_file():
        raise InputError(f"There is no file {path}.")
    if kind in (".npz", ".npy"):
        return Candidates.from_matrix(_read_array(path, column))
    try:
        header, columns = _read_parquet(path) if kind == ".parquet" else _read_text(path, "\t" if kind == ".tsv" else ",")
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path} cannot be read as a table of UTF-8 text ({error}).") from None
    chosen = _chosen(path, header, columns, column, separator)
    return Candidates.from_flat(*read_series(_lists(columns[chosen]), separator, None, None))


def _read_array(path: Path, name: str | None) -> Any:
    import numpy as np

    try:
        return _named_array(path, np.load(path, allow_pickle=False), name)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        if isinstance(error, InputError):
            raise
        # numpy's own sentence would tell the user how to run what a stranger has put into the file.
        raise InputError(
            f"{path} holds no plain arrays, or is cut off: write it with numpy.save or numpy.savez, without objects."
        ) from None


def _named_array(path: Path, content: Any, name: str | None) -> Any:
    import numpy as np

    if isinstance(content, np.ndarray):
        if name is not None:
            raise InputError(f"{path} holds one array without a name: leave --column out.")
        return content
    with content:
        if name is None and len(content.files) == 1:
            name = content.files[0]
        if name not in content.files:
            raise InputError(_which(path, "array", content.files, name))
        return content[name]


def _read_parquet(path: Path) -> tuple[list[str], list[list[Any]]]:
    try:
        import pandas as pd

        table = pd.read_parquet(path)
    except ImportError:
        raise InputError(f"{path} needs pandas and pyarrow, which are not both installed: pip install pandas pyarrow.") from None
    except (ValueError, OSError) as error:  # ArrowInvalid is a ValueError
        reason = (str(error).splitlines() or [type(error).__name__])[0].rstrip(".")
        raise InputError(f"{path} cannot be read as Parquet ({reason}).") from None
    return [str(name) for name in table.columns], [table.iloc[:, i].tolist() for i in range(table.shape[1])]


def _read_text(path: Path, delimiter: str) -> tuple[list[str], list[list[Any]]]:
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = [row for row in csv.reader(file, delimiter=delimiter, strict=True) if row]
    if len(rows) < 2:
        raise InputError(f"{path} has no rows below a header that names the columns.")
    header = [name.strip() for name in rows[0]]
    uneven = next((i for i, row in enumerate(rows[1:]) if len(row) != len(header)), None)
    if uneven is not None:
        n = len(rows[1 + uneven])
        raise InputError(f"The header of {path} has {len(header)} columns, but row {uneven} has {n}: correct the file.")
    return header, [list(cells) for cells in zip(*rows[1:], strict=True)]


def _chosen(path: Path, header: Sequence[str], columns: Sequence[Sequence[Any]], name: str | None, separator: str) -> int:
    """The column asked for, or the only one that has sets in it."""
    if name is not None:
        found = [i for i, one in enumerate(header) if one == name]
    else:
        found = [i for i, cells in enumerate(columns) if any(_is_set(cell, separator) for cell in cells)]
        found = [0] if len(header) == 1 else found
    if len(found) != 1:
        raise InputError(_which(path, "column", header, name))
    return found[0]


def _which(path: Path, what: str, names: Sequence[str], asked: str | None) -> str:
    shown = ", ".join(names[:20]) + (f" and {len(names) - 20} more" if len(names) > 20 else "")
    if asked is not None:
        return f"{path} has {'several' if asked in names else 'no'} {what}s called {asked!r}: it has {shown}."
    return f"{path} has the {what}s {shown}: say with --column which of them holds the sets."


def _is_set(cell: Any, separator: str) -> bool:
    return bool(separator and separator in cell) or _is_list(cell) if isinstance(cell, str) else hasattr(cell, "__len__")


def _is_list(text: str) -> bool:
    return text.lstrip().startswith("[") and text.rstrip().endswith("]")


def _lists(cells: list[Any]) -> list[Any]:
    """Lists that a table has written as text, such as ['cat', 'dog'], as lists."""
    if not all(isinstance(cell, str) and _is_list(cell) for cell in cells):
        return cells
    found = []
    for i, cell in enumerate(cells):
        try:
            # Without commas, as numpy writes it, Python would glue the names together.
            if re.search(r"""['"]\s+['"]""", cell):
                raise ValueError("no commas")
            found.append(ast.literal_eval(cell.strip()))
        except (ValueError, SyntaxError, RecursionError, MemoryError):
            raise InputError(f"Row {i} holds {cell[:80]!r}, which is no list: write it like ['cat', 'dog'], or cat|dog.") from None
    return found


# ---- printing ---------------------------------------------------------------------------------------------------------

REGIMES = {
    "independent": "Wrong labels seem to join independently of each other",
    "co-occurrence": "Sets seem to come from what occurs together, as all objects of a picture do",
    "unclear": "It is unclear where the sets come from",
    "known": "Nothing is ambiguous",
}
ESTIMATES = {"em": "EM (likeliest prior)", "average": "average uniform target"}


def _show(source: str, found: Description, top: int) -> None:
    console.print(source, markup=False, soft_wrap=True)
    known = "known" if found.class_counts else "not known"
    _say(f"{found.n_examples:,} examples, {found.n_classes:,} classes; true labels are {known}.")
    never = [_short(name, 38) for name, n in zip(found.classes, found.appearances, strict=True) if n == 0]
    if never:
        shown = ", ".join(never[:5]) + (f" and {len(never) - 5} more" if len(never) > 5 else "")
        _say(f"Never a candidate, and left out of every estimated imbalance: {shown}.")
    _show_sizes(found)
    _show_pairs(found)
    _show_ambiguity(found)
    _show_regime(found)
    _show_prior(found, top)


def _table(*headings: str) -> Table:
    """A small table whose first column is text, and whose others are numbers."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for i, heading in enumerate(headings):
        table.add_column(heading, justify="right" if i else "left", no_wrap=True, overflow="ellipsis")
    return table


def _say(sentence: str) -> None:
    console.print(sentence, markup=False)


def _head(title: str) -> None:
    console.print()
    console.print(title, style="bold", markup=False)


def _show_sizes(found: Description) -> None:
    first, last = min(found.size_counts), max(found.size_counts)
    _head(f"Set sizes: {found.mean_size:.2f} labels on average, from {first} to {last}")
    if last == 1:
        _say("If that is not meant, labels may be separated by something else: --separator.")
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
    _head("Classes that share sets, against independent appearance")
    if not pairs.n:
        _say("None.")
        return
    table = _table("pair", "rows", "share", "expected", "times")
    for pair in pairs.most_frequent:
        share, expected = f"{pair.sets / found.n_examples:.1%}", f"{pair.expected:,.{0 if pair.expected >= 10 else 1}f}"
        table.add_row(Text(_both(pair.classes)), f"{pair.sets:,}", share, expected, f"{pair.times:.2f}")
    console.print(table)
    left = pairs.n - len(pairs.most_frequent)
    more = f"{left:,} more pairs share a set. " if left else ""
    most = pairs.most_above
    if most is None:
        _say(f"{more}No pair does so more often than chance explains.")
    else:
        _say(
            f"{more}Of all {pairs.n:,}, {pairs.n_above:,} do so more often than chance explains, most of all {_both(most.classes)}: "
            f"{most.sets:,} rows, {most.times:.1f} times as many as expected."
        )


def _short(name: Any, most: int) -> str:
    """A class name that leaves a line of 80 columns room for its numbers."""
    text = " ".join(str(name).split())
    return text if len(text) <= most else text[: most - 1] + "…"


def _both(names: Iterable[Any]) -> str:
    return " + ".join(_short(name, 19) for name in names)


def _show_ambiguity(found: Description) -> None:
    low, high = found.ambiguity_bounds
    _head("Ambiguity")
    _say(f"On average a wrong label joins a set with probability {found.wrong_label_rate:.3f}.")
    if found.ambiguity_degree is None:
        _say(
            "The ambiguity degree, the largest such probability of one label in one class, depends on the true labels: "
            f"the sets alone put it between {low:.3f} and {high:.3f}."
        )
    else:
        _say(
            f"The ambiguity degree, the largest share of one class's examples whose sets hold one and the same wrong label, is "
            f"{found.ambiguity_degree:.3f}; chance lifts it where classes are small. "
            f"The sets alone put it between {low:.3f} and {high:.3f}."
        )


def _show_regime(found: Description) -> None:
    _head("Where the sets come from, against wrong labels that join independently")
    table = _table("evidence", "observed", "independent", "speaks for")
    for one in found.evidence:
        form = ",.0f" if one.what in ("distinct sets", "pairs above chance") else ".3f"
        expected = f"{one.independent:{form}} ± {one.margin:{form}}" if one.independent else f"{one.margin:{form}} at most"
        table.add_row(one.what, f"{one.observed:{form}}", expected, one.speaks_for)
    console.print(table)
    _say(f"{found.recurring:.1%} of the rows share their set with another row; independent: {found.recurring_if_independent:.1%}.")
    sure = "" if found.verdict.regime == "unclear" else f" ({found.verdict.certainty})"
    _say(f"{REGIMES[found.verdict.regime]}{sure}: {found.verdict.because}.")


def _show_prior(found: Description, top: int) -> None:
    from ltpll.describe import TOLERANCE

    _head("Class imbalance, the largest class over the smallest")
    known, trust = found.true_imbalance is not None, found.verdict.trust
    table = _table("from", "imbalance", *(["L1 error"] if known else []), "")
    table.columns[-1].justify = "left"
    if known:
        table.add_row("true labels", f"{found.true_imbalance:,.1f}", "", "")
    guess = "the better guess" if found.verdict.certainty == "unsure" else "trust this one"
    for name, one in (("em", found.em), ("average", found.average)):
        imbalance = f"above {one.imbalance:,.0f}" if one.below_one_example else f"{one.imbalance:,.1f}"
        mark = f"◀ {guess} ({found.verdict.certainty})" if name == trust else ""
        table.add_row(ESTIMATES[name], imbalance, *([f"{one.error:.3f}"] if known else []), mark)
    console.print(table)
    em = found.em
    if trust == "em" and em.low is not None and em.random_error is not None:
        reach = f"{em.low:,.0f} or more" if em.high is None else f"{em.low:,.0f} to {em.high:,.0f}"
        _say(f"Chance gives EM an L1 error of about {em.random_error:.2f}, and leaves open an imbalance of {reach}.")
    elif found.verdict.regime != "known":
        _say("The average takes every label of a set for equally likely; how wrong that is cannot be read off the sets.")
    if found.em_gap > TOLERANCE:
        _say(f"EM was stopped before its end: its log-likelihood may be {found.em_gap:.2g} from the maximum.")
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
        _say(f"{found.n_classes - top:,} smaller classes are left out (--top shows more, --json all).")
