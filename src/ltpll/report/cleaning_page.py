"""The page of a run on a table, in one offline file: trust, examples, classes, annotators."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ltpll.cleaning.results import (
    CalibrationInterval,
    CleanedTable,
    Numbers,
    annotator_columns,
    beats_guess,
    calibration_intervals,
    class_columns,
    confusion_pairs,
    known_truth,
    lack_truth,
    not_judged,
    said_of_missing_labels,
    true_confusion_pairs,
    true_shares,
    verdicts,
)
from ltpll.cleaning.review import reasons, review_rows
from ltpll.cleaning.stored_tables import read_cleaned
from ltpll.formatting import are, counted
from ltpll.report import templates

MOST_EXAMPLES = 4000  # on one page: about a megabyte of text
CONFUSED_CLASSES = 20  # rows and columns of a confusion table
REVIEWED_FIRST = 10  # rows of the review queue
NAMED_CLASSES = 5  # that cannot be judged; the table of classes has all of them
WIDTH, HEIGHT, LEFT, BOTTOM = 560, 220, 44, 24  # of a plot and the margins for its axes


class Example(NamedTuple):
    """What the page shows of an example; labels are class numbers."""

    id: str
    candidates: list[int]
    label: int
    runner_up: int
    confidence: float
    margin: float
    suspicion: float | None  # None if it was judged by a classifier that was trained on it
    suggestion: int | None  # the likelier label of a flagged set
    true: int | None
    votes: list[tuple[int, int]] | None  # labels and their numbers of annotators, most first
    picture: bytes | None
    shown: Sequence[tuple[str, str]] = ()  # columns of the row and its cells


class Calibration(NamedTuple):
    """How confidences compare with accuracies on some rows."""

    of: str  # which rows
    figures: Mapping[str, float | None]  # from `ltpll.evaluation.metrics.calibration_figures`
    intervals: Sequence[CalibrationInterval]


class Truth(NamedTuple):
    """How cleaned labels compare with true labels, on the rows whose true label is known."""

    n_rows: int
    confusions: Sequence[tuple[int, int, int]]  # true label, cleaned label, number of rows
    calibrations: Sequence[Calibration]


@dataclass(frozen=True)
class PageContents:
    """Everything on the page; columns are lists of equal length by name."""

    title: str
    verdicts: Sequence[str]  # how far labels can be trusted
    beats_guess: bool | None  # None if that could not be checked
    findings: Sequence[str]  # sentences about flagged sets
    not_judged: Sequence[tuple[str, int, int]]  # class, examples, examples recovered out of fold
    facts: Sequence[tuple[str, str]]
    class_names: Sequence[str]
    classes: Mapping[str, Sequence[Any]]
    confusions: Sequence[tuple[int, int, int]]  # chosen label, other candidate, number of sets
    annotators: Mapping[str, Sequence[Any]] | None
    examples: Sequence[Example]
    n_examples: int
    curves: Mapping[str, Sequence[float]]
    config: Mapping[str, Any]
    prior: Mapping[str, Any] | None  # the record of a `PriorEstimate`
    choice: str | None  # what the rebalancer chose and why, or how members are weighted
    true_shares: Sequence[float] | None
    truth: Truth | None
    judged_by_own: bool  # whether rows were judged by a classifier that was trained on them
    review: Sequence[tuple[Example, str]] = ()  # the rows to review first, and why
    committee: Mapping[str, float] = field(
        default_factory=dict
    )  # the weight of each member, if any


# ---- from a run folder to the contents of its page ---------------------------------------------


def page_contents(
    folder: Path, title: str | None = None, false_discoveries: float | None = None
) -> PageContents:
    """Read the folder of a finished run on a table, and collect what its page shows."""
    return contents_of(read_cleaned(folder, false_discoveries), title)


def contents_of(run: CleanedTable, title: str | None = None) -> PageContents:
    """Collect what the page of a finished run shows; by default, the title names the table."""
    rows, first = _rows_shown(run), review_rows(run)[:REVIEWED_FIRST]
    votes, record, annotators = _votes_by_row(run, np.union1d(rows, first)), run.record, None
    if run.votes is not None:
        annotators = {name: list(values) for name, values in annotator_columns(run).items()}
    # Apart from the names of classes, the words of the reasons are ours.
    why = [templates.markup(why) for why in reasons(run, first, templates.bdi)]
    return PageContents(
        title=title or f"Labels of {Path(record['source']['table']).name}",
        verdicts=verdicts(run),
        beats_guess=beats_guess(run),
        findings=_sentences_on_sets(run),
        not_judged=sorted(not_judged(run), key=lambda one: -one[1]),
        facts=_run_facts(run),
        class_names=[str(name) for name in run.classes],
        classes={name: list(values) for name, values in class_columns(run).items()},
        confusions=_pair_counts(*confusion_pairs(run)),
        annotators=annotators,
        examples=[_example_shown(run, int(i), votes) for i in rows],
        n_examples=len(run.ids),
        curves=record["curves"],
        committee=record.get("committee") or {},
        config={name: record[name] for name in ("config", "source", "environment")},
        prior=record.get("prior"),
        choice=record.get("choice"),
        true_shares=true_shares(run),
        truth=_truth_shown(run),
        judged_by_own=bool((run.labels.judged_by == "own").any()),
        review=list(zip([_example_shown(run, int(i), votes) for i in first], why, strict=True)),
    )


def _rows_shown(run: CleanedTable) -> Numbers:
    """All rows in the table's order or, if they are too many, the suspicious and uncertain ones."""
    n = len(run.ids)
    if n <= MOST_EXAMPLES:
        return np.arange(n)
    suspicious = np.lexsort((-run.labels.suspicion, ~run.labels.issue))[: MOST_EXAMPLES // 2]
    uncertain = np.argsort(run.labels.margin, kind="stable")[: MOST_EXAMPLES // 2]
    return np.unique(np.concatenate([suspicious, uncertain]))


def _votes_by_row(run: CleanedTable, rows: Numbers) -> dict[int, list[tuple[int, int]]]:
    """For each of these rows, how many annotators chose each label, the most frequent first."""
    found: dict[int, list[tuple[int, int]]] = {row: [] for row in rows.tolist()}
    if run.votes is not None:
        shown = np.isin(run.votes.rows, rows)
        pairs, counts = np.unique(
            np.stack([run.votes.rows[shown], run.votes.labels[shown]]), axis=1, return_counts=True
        )
        for k in np.argsort(-counts, kind="stable").tolist():
            found[int(pairs[0, k])].append((int(pairs[1, k]), int(counts[k])))
    return found


def _example_shown(
    run: CleanedTable, i: int, votes: Mapping[int, list[tuple[int, int]]]
) -> Example:
    cleaned = run.labels
    return Example(
        id=str(run.ids[i]),
        candidates=run.candidates[run.offsets[i] : run.offsets[i + 1]].tolist(),
        label=int(cleaned.label[i]),
        runner_up=int(cleaned.runner_up[i]),
        confidence=float(cleaned.confidence[i]),
        margin=float(cleaned.margin[i]),
        suspicion=None if cleaned.judged_by[i] == "own" else float(cleaned.suspicion[i]),
        suggestion=int(cleaned.outside[i]) if cleaned.issue[i] else None,
        true=None if run.true[i] is None else int(run.true[i]),
        votes=None if run.votes is None else votes[i],
        picture=run.pictures.get(i),
        shown=[(name, one[i]) for name, one in run.shown.items() if one[i] is not None],
    )


def _pair_counts(pairs: Numbers, counts: Numbers) -> list[tuple[int, int, int]]:
    return [(a, b, n) for (a, b), n in zip(pairs.tolist(), counts.tolist(), strict=True)]


def _sentences_on_sets(run: CleanedTable) -> list[str]:
    """What the judgement says about the sets, and whether it is right by true labels."""
    judgement, issue = run.judgement, run.labels.issue
    if not judgement:
        return []
    flagged, rows = int(issue.sum()), int((run.labels.judged_by != "own").sum())
    first = f"None of {counted(rows, 'set')} is flagged: no set is suspicious enough to say that it"
    first += " lacks the true label."
    if flagged:
        wrong = 1 - float(run.labels.suspicion[issue].mean())
        first = f"{counted(flagged, 'set')} ({flagged / rows:.1%} of {rows:,}) {are(flagged)}"
        first += " flagged because the true label seems to be missing;"
        first += f" {wrong:.0%} of these flags are expected to be wrong."
    share = f"An estimated {judgement['missing']:.1%} of these sets lack the true label"
    found = [first, f"{share}; flags name only those that stand out."]
    if said := said_of_missing_labels(run):
        found.append(said)
    known, lacking = known_truth(run)[0], lack_truth(run)
    if len(known):
        n, checked, words = int(lacking.sum()), int(issue[known].sum()), ""
        lack = f"{n:,} of these sets lack" if n else "none of these sets lacks"
        if n == 1:
            lack += "s"
        if checked:
            caught = int(lacking[issue[known]].sum())
            words = f", among them {caught:,} of the {checked:,} flagged ones"
        rows_known = f"True labels are known for {counted(len(known), 'row')}"
        found.append(f"{rows_known}: {lack} the true label{words}.")
    return found


def _truth_shown(run: CleanedTable) -> Truth | None:
    rows, _ = known_truth(run)
    if not len(rows):
        return None
    words = {"all": "all rows", "ambiguous": "ambiguous rows"}
    figures = run.judgement.get("calibration", {})
    return Truth(
        n_rows=len(rows),
        confusions=_pair_counts(*true_confusion_pairs(run)),
        calibrations=[
            Calibration(words[name], figures[name], intervals)
            for name, intervals in calibration_intervals(run).items()
        ],
    )


def _run_facts(run: CleanedTable) -> list[tuple[str, str]]:
    record, cleaned = run.record, run.labels
    rows, test, config = record["rows"], record["last"].get("test", {}), record["config"]
    training = f", {rows['trained']:,} for training" if rows["held_out"] else ""
    if "committee" in record:
        counting = sum(weight > 0 for weight in record["committee"].values())
        method = f"committee of {counted(counting, 'member')}"
    else:
        rebalancer = [] if config["rebalancer"] == "none" else [config["rebalancer"]]
        method = " + ".join([config["method"], *config["extras"], *rebalancer])
    facts = [
        ("examples", f"{rows['all']:,}{training}"),
        ("classes", f"{len(run.classes):,}"),
        ("candidates per set", f"{run.sizes.mean():.2f}"),
        ("ambiguous sets", f"{int((run.sizes > 1).sum()):,}"),
        ("mean confidence", f"{cleaned.confidence.mean():.1%}"),
        ("method", method),
    ]
    if "accuracy" in test:
        for goal, found in test.get("by_goal", {"": test}).items():
            words = "held-out accuracy" + (f" with the goal {goal}" if goal else "")
            shares = f"{found['accuracy']:.1%}, balanced {found['balanced_accuracy']:.1%}"
            facts.append((words, shares))
    elif test:
        facts.append(("held-out predictions inside their sets", f"{test['covering_rate']:.1%}"))
    known, true = known_truth(run)
    if len(known):
        right = f"{(cleaned.label[known] == true).mean():.1%} of {len(known):,}"
        facts.append(("labels that are right", f"{right} with a known true label"))
    if run.reviewed is not None:
        facts.append(("reviewed", f"{int(run.reviewed.sum()):,}"))
    if record.get("texts_cut"):
        facts.append(("texts not read to the end", f"{record['texts_cut']:,}"))
    if record["skipped"]:
        facts.append(("pictures skipped", f"{len(record['skipped']):,}"))
    return facts


# ---- from the contents to HTML -----------------------------------------------------------------


def write_cleaning_page(path: Path, contents: PageContents) -> None:
    templates.write(path, render_cleaning_page(contents))


def render_cleaning_page(contents: PageContents) -> str:
    totals, truth = list(contents.classes["label_of"]), contents.truth
    confusion = true_confusion = None
    if contents.confusions:
        confusion = _confusion_matrix(contents, contents.confusions, totals, range(len(totals)))
    if truth is not None:
        totals = [0] * len(contents.class_names)
        for true, _, rows in truth.confusions:
            totals[true] += rows
        present = [c for c, total in enumerate(totals) if total]
        true_confusion = _confusion_matrix(contents, truth.confusions, totals, present)
    return templates.render(
        "cleaning.html",
        title=contents.title,
        styles=[templates.read_asset("page.css"), templates.read_asset("cleaning.css")],
        scripts=[templates.read_asset("cleaning.js")],
        contents=contents,
        named_classes=NAMED_CLASSES,
        lines=sorted(_as_rows(contents.classes), key=lambda one: -one["label_of"]),
        longest_bar=_longest_bar(contents),
        frequencies=_frequencies(contents),
        confusion=confusion,
        true_confusion=true_confusion,
        annotators=sorted(_as_rows(contents.annotators or {}), key=lambda one: one["agreement"]),
        plots=_training_plots(contents.curves) if contents.curves else [],
        committee=sorted(contents.committee.items(), key=lambda one: -one[1]),
        data=_script_data(contents),
        config=templates.json_markup(contents.config),
    )


def _as_rows(columns: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def _script_data(contents: PageContents) -> dict[str, Any]:
    """What the script shows and searches; it inserts all text as text, never as markup."""

    def compact(value: Any) -> Any:
        if isinstance(value, str):
            return templates.without_bidi_controls(value)
        if isinstance(value, (list, tuple)):
            return [compact(one) for one in value]
        return round(float(value), 4) if isinstance(value, float) else value

    pictures = {i: one.picture for i, one in enumerate(contents.examples)}
    return {
        "classes": [compact(name) for name in contents.class_names],
        "examples": [
            compact([*one._replace(picture=None), i]) for i, one in enumerate(contents.examples)
        ],
        "pictures": {i: templates.jpeg_url(one) for i, one in pictures.items() if one is not None},
    }


def _longest_bar(contents: PageContents) -> float:
    """The largest of the shares that are drawn as bars in the table of classes."""
    counts = [*contents.classes["candidate_in"], *contents.classes["label_of"]]
    prior = contents.classes["estimated_prior"]
    return max(max(counts) / contents.n_examples, max(prior)) or 1


def _confusion_matrix(
    contents: PageContents,
    pairs: Sequence[tuple[int, int, int]],
    totals: Sequence[int],
    classes: Sequence[int],
) -> dict[str, Any]:
    """How often the most frequent of these classes occur together, as rows of a table."""
    frequent = sorted(classes, key=lambda c: -totals[c])[:CONFUSED_CLASSES]
    counts, names = {(one, other): n for one, other, n in pairs}, contents.class_names
    cells = [[counts.get((one, other), 0) for other in frequent] for one in frequent]
    rows = [(names[one], totals[one], n) for one, n in zip(frequent, cells, strict=True)]
    return {
        "names": [names[c] for c in frequent],
        "rows": rows,
        "others": any(sum(n) < total for _, total, n in rows),
        "left_out": len(classes) - len(frequent),
    }


def _frequencies(contents: PageContents) -> dict[str, Any] | None:
    """The shares of each class as estimated, with bounds, by the model and in truth, on an axis."""
    if contents.prior is None:
        return None
    columns = [contents.prior[name] for name in ("estimate", "lower", "upper")]
    columns.append(contents.classes["estimated_prior"])
    if contents.true_shares:
        columns.append(contents.true_shares)
    # Anything below half an example is drawn at the left edge.
    least = 0.5 / contents.n_examples
    shares = [max(share, least) for column in columns for share in column]
    margin = 1.1 * (max(shares) / min(shares)) ** 0.04  # room for the words of the outermost marks
    low, high = min(shares) / margin, max(shares) * margin

    def at(share: float) -> str:
        return f"{100 * math.log(max(share, low) / low) / math.log(high / low):.2f}%"

    steps = (1, 2, 5) if high < 100 * low else (1, 3) if high < 1000 * low else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    ticks = [step * 10.0**power for power in powers for step in steps]
    first = low * (high / low) ** 0.03
    rows = sorted(zip(contents.class_names, *columns, strict=True), key=lambda row: -row[1])
    return {
        "ticks": [(at(tick), f"{100 * tick:g}%") for tick in ticks if first <= tick <= high],
        "rows": [
            (name, [_share_text(one) for one in row], [at(one) for one in row])
            for name, *row in rows
        ],
    }


def _share_text(share: float) -> str:
    """A share as text; small ones with two digits."""
    return f"{share:.1%}" if share >= 0.01 or share == 0 else f"{float(f'{100 * share:.2g}'):g}%"


# ---- curves ------------------------------------------------------------------------------------

WORDS = {
    "loss": "loss",
    "covering_rate": "held-out predictions inside their sets",
    "accuracy": "held-out accuracy",
    "balanced_accuracy": "held-out balanced accuracy",
    "target_recovery": "true labels recovered in training rows",
}


def _training_plots(curves: Mapping[str, Sequence[float]]) -> list[dict[str, Any]]:
    """One plot of the loss, and one of everything that is a share."""
    shares = [name for name in WORDS if name != "loss" and name in curves]
    plots = [_plot_of_curves("Loss", curves, "epoch", ["loss"], max(curves["loss"]) or 1.0)]
    if shares:
        plots.append(_plot_of_curves("Evaluation during training", curves, "measured", shares))
    return plots


def _plot_of_curves(
    title: str,
    curves: Mapping[str, Sequence[float]],
    x: str,
    names: Sequence[str],
    top: float | None = None,
) -> dict[str, Any]:
    """The points of each line in the coordinates of the SVG; without `top`, values are shares."""
    last, end = max(curves[x]) or 1, top or 1.0
    width, height = WIDTH - LEFT - 8, HEIGHT - BOTTOM - 8

    def points(name: str) -> str:
        return " ".join(
            f"{LEFT + width * epoch / last:.1f},{8 + height * (1 - value / end):.1f}"
            for epoch, value in zip(curves[x], curves[name], strict=True)
        )

    def text(value: float, digits: int) -> str:
        return f"{value:.{digits}g}" if top else f"{value:.{digits - 2}%}"

    return {
        "title": title,
        "lines": [(WORDS[name], text(curves[name][-1], 3), points(name)) for name in names],
        "marks": [(8 + height * (1 - at), text(at * end, 2)) for at in (0, 0.5, 1)],
        "last": last,
        "size": (WIDTH, HEIGHT, LEFT),
    }
