"""Results: the cleaned labels of a table, and the tables and sentences that follow from them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ltpll.formatting import are, counted
from ltpll.runs.run import Record

if TYPE_CHECKING:
    from ltpll.cleaning.audit import Audit

MOST_NAMED = 5  # classes that are not judged
FALSE_DISCOVERIES = 0.3  # share of the flagged sets that may hold their true label after all
LEAST_SUSPICION = 0.5  # of a flagged set
MANY_MISSING = 0.05  # estimated share of sets without their label from which advice is given
MORE_ANSWERS, ENOUGH = 20, 0.01  # and the narrowing of an interval for which they are worthwhile
UNEVEN = 2.0  # a class's expected wrong flags, as a multiple of those in all rows together
NO_NAME = np.asarray(None, dtype=object)  # an empty cell
Numbers = npt.NDArray[np.int64]
Shares = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]
Columns = dict[str, Any]


@dataclass(frozen=True)
class CleanedLabels:
    """The label chosen for each example, and the evidence for and against it, as class numbers."""

    label: Numbers
    confidence: Shares  # the probability that the label is right
    runner_up: Numbers  # the label itself where it is the only candidate
    margin: Shares  # the label's share of the set's probability minus the runner-up's
    inside: Numbers  # the likeliest candidate, as predicted by the classifier that judged_by names
    outside: Numbers  # the likeliest label that is not a candidate; −1 where every class is one
    suspicion: Shares  # the probability that the set lacks the true label
    judged: Flags  # whether this classifier knows all candidates well enough to judge the set
    # "folds" and "held out": a classifier that was not trained on the row; "own": one that was
    judged_by: npt.NDArray[np.object_]
    # The probability outside the set, by the same classifier; runs of earlier versions lack it.
    contradiction: Shares | None = None
    false_discoveries: float = FALSE_DISCOVERIES

    @property
    def contradicted(self) -> Shares:
        """How strongly each set is contradicted, by which the most suspicious sets are found."""
        return self.suspicion if self.contradiction is None else self.contradiction

    @cached_property
    def issue(self) -> Flags:
        """Whether the set seems to lack the true label."""
        judged = self.judged & (self.outside >= 0)
        return flagged_sets(self.suspicion, judged, self.inside, self.false_discoveries)


STORED = tuple(CleanedLabels.__dataclass_fields__)[:-2]  # in every run


def flagged_sets(
    suspicion: Shares, judged: Flags, labels: Numbers, false_discoveries: float = FALSE_DISCOVERIES
) -> Flags:
    """Choose the sets to look at, the most suspicious first, while few hold their true label.

    At most the share `false_discoveries` of them is expected to do so. Sets that hold their label
    should not be flagged much more often in some classes than in others, as told by `labels`, the
    likeliest candidates.

    Examples:
        >>> flagged_sets(np.array([0.9, 0.8, 0.1]), np.ones(3, bool), np.zeros(3, int), 0.2)
        array([ True,  True, False])
    """
    probability = np.where(judged, suspicion, 0).astype(np.float64)

    def few_mistakes(rows: Numbers) -> Numbers:
        """As many of these rows as possible, the most suspicious first."""
        mistakes = np.cumsum(1 - probability[rows])
        within = np.flatnonzero(mistakes <= false_discoveries * np.arange(1, len(rows) + 1))
        return rows[: within[-1] + 1] if len(within) else rows[:0]

    flagged = np.zeros(len(probability), dtype=bool)
    order = few_mistakes(np.argsort(-probability, kind="stable"))
    fine = np.bincount(labels, weights=1 - suspicion.astype(np.float64))
    most = UNEVEN * (1 - probability[order]).sum() / max(fine.sum(), 0.5)
    chosen = order[probability[order] >= LEAST_SUSPICION]
    chosen = chosen[np.argsort(labels[chosen], kind="stable")]
    in_order = np.cumsum(1 - probability[chosen])
    starts = np.flatnonzero(np.diff(labels[chosen], prepend=-1))
    sizes = np.diff(np.append(starts, len(chosen)))
    before = np.repeat(in_order[starts] - (1 - probability[chosen[starts]]), sizes)
    even = chosen[in_order - before <= most * fine[labels[chosen]] + 1e-9]
    # Again, because a class may have lost its most suspicious sets.
    flagged[few_mistakes(even[np.argsort(-probability[even], kind="stable")])] = True
    return flagged


class StoredVotes(NamedTuple):
    """The annotations behind candidate sets: entry k is one annotator's label for one example."""

    rows: Numbers
    annotators: npt.NDArray[np.object_]
    labels: Numbers


@dataclass(frozen=True)
class CleanedTable:
    """A finished run on a table: its record, its examples, their cleaned labels and votes."""

    record: Record
    ids: npt.NDArray[np.object_]
    paths: npt.NDArray[np.object_] | None
    splits: npt.NDArray[np.object_] | None
    offsets: Numbers
    candidates: Numbers  # of row i: candidates[offsets[i]:offsets[i + 1]]
    true: npt.NDArray[np.object_]  # class numbers, None where not known
    labels: CleanedLabels
    votes: StoredVotes | None = None
    pictures: Mapping[int, bytes] = field(
        default_factory=dict
    )  # small JPEG files of noteworthy rows
    groups: npt.NDArray[np.object_] | None = None
    urls: npt.NDArray[np.object_] | None = None  # what a labelling tool calls the pictures
    reviewed: Flags | None = None  # whether the candidates are a person's answer
    # What people see of each row, by column: its text and a few values, None where there is none.
    shown: Mapping[str, npt.NDArray[np.object_]] = field(default_factory=dict)
    audit: Audit | None = None  # what follows from people's answers about some rows

    @property
    def classes(self) -> npt.NDArray[np.object_]:
        """The class names, in the order of their numbers."""
        return np.asarray(self.record["classes"], dtype=object)

    @property
    def sizes(self) -> Numbers:
        """The number of candidates of each row."""
        return np.diff(self.offsets)

    @property
    def owners(self) -> Numbers:
        """The row of each candidate."""
        return np.repeat(np.arange(len(self.ids)), self.sizes)

    @property
    def doubts(self) -> npt.NDArray[np.float64]:
        """The probability that each label is wrong."""
        return 1 - self.labels.confidence.astype(np.float64)

    @property
    def in_set(self) -> Flags:
        """Whether the label of each row is one of its candidates."""
        found = np.zeros(len(self.ids), dtype=bool)
        found[self.owners[self.candidates == self.labels.label[self.owners]]] = True
        return found

    @property
    def truth_missing(self) -> float:
        """The share of sets that the training assumed to lack the true label."""
        return float(self.record.get("truth_missing") or 0.0)

    @property
    def separator(self) -> str:
        """What separates the candidates of a set in the user's table."""
        return str(self.record["source"].get("reading", {}).get("separator") or "|")

    @property
    def judgement(self) -> Record:
        """The record of the judgement of the sets; empty if nothing was judged."""
        return self.record.get("judgement") or {}

    def setting(self, name: str, value: str | int) -> str:
        """A setting in sentences: `--folds 5` for a run, `folds=5` for a `LabelCleaner`."""
        in_python = self.record.get("source", {}).get("table", "") is None
        if in_python:
            return f"{name}={value!r}"
        return f"--folds {value}" if name == "folds" else f"--set training.{name}={value}"

    def sets(self, separator: str | None = None) -> list[str]:
        """The candidate sets as text, by default with the separator of the user's table."""
        names, separator = self.classes[self.candidates].tolist(), separator or self.separator
        return [separator.join(names[start:end]) for start, end in pairwise(self.offsets.tolist())]


# ---- what the judgement says -------------------------------------------------------------------


def summary(table: CleanedTable) -> list[str]:
    """Sentences about the labels: how many are wrong, which sets are flagged, what to trust."""
    n, ambiguous = len(table.ids), int((table.sizes > 1).sum())
    wrong = f"about {table.doubts.sum():,.0f} labels are expected to be wrong"
    first = f"{n:,} examples, {ambiguous:,} of them ambiguous; {wrong}."
    return [first, *verdicts(table), *findings(table)]


def verdicts(table: CleanedTable) -> list[str]:
    """Sentences about how far labels can be trusted; what people answered comes first."""
    judgement, judged = table.judgement, table.labels.judged_by != "own"
    sentences = said_of_answers(table)
    if not judged.all():
        own = "Rows were labelled by a classifier that was trained on them, so their sets are not"
        sentences.append(f"{own} judged: train with {table.setting('folds', 5)}.")
    if not judgement:
        return sentences
    covering, chance = judgement["covering"], judgement["chance"]
    found = f"the predicted class is a candidate in {covering:.1%} of the rows (by chance, in"
    found += f" {chance:.1%})"
    beats = _beats_chance(table)
    if not beats[0]:
        guess = "The data do not let the model beat a random guess: on rows it was not trained on"
        return [*sentences, f"{guess}, {found}. Do not trust these labels."]
    sentences.append(f"On rows that the model was not trained on, {found}.")
    inside, known = judgement.get("ambiguous"), judgement.get("calibration", {}).get("ambiguous")
    if inside is None:
        return sentences
    expected = f"{inside['expected']:.1%}"
    right = f"are expected to be right in {expected} of the cases"
    guess = f"a random guess inside the set would be right in {inside['guess']:.1%}"
    if known is not None:
        right = f"are right in {known['accuracy']:.1%} of the cases ({expected} expected)"
        if not all(beats):
            guess += ", so the model does not beat it"
    return [*sentences, f"Labels of ambiguous rows {right}; {guess}."]


def said_of_answers(table: CleanedTable) -> list[str]:
    """What answers say: how many labels are right, how good flags are, and whether to go on."""
    audit = table.audit
    if audit is None or audit.right is None:
        return []
    right = f"Without the answers, labels are right in {audit.right}"
    if audit.rare is not None:
        right += f", and those of rare classes in {audit.rare}"
    sentences = [f"{right}: that is what people say about random rows."]
    if audit.lacking is not None:
        sentences.append(f"The true label is missing from {audit.lacking} of the sets.")
    if audit.flagged is not None:
        sentences.append(f"Of the flagged sets, {audit.flagged} really lack it.")
    points = f"about {100 * audit.narrowing:.0f} points"
    enough = ""
    if audit.narrowing < ENOUGH:
        points, enough = "less than 1 point", ": there are enough"
    more = f"Another {MORE_ANSWERS} answers about random rows would narrow the first interval by"
    return [*sentences, f"{more} {points}{enough}."]


def beats_guess(table: CleanedTable) -> bool | None:
    """Whether the model beats a random guess, as in `verdicts`; None if nothing was judged."""
    return all(_beats_chance(table)) if table.judgement else None


def _beats_chance(table: CleanedTable) -> list[bool]:
    """Whether predictions lie inside sets, and labels of ambiguous rows are right if that is known,
    more often than by chance: by more than twice the standard error.
    """
    judgement, rows = table.judgement, int((table.labels.judged_by != "own").sum())
    shares = [(judgement["covering"], judgement["chance"], rows)]
    inside, known = judgement.get("ambiguous"), judgement.get("calibration", {}).get("ambiguous")
    if inside is not None and known is not None:
        shares.append((known["accuracy"], inside["guess"], known["rows"]))
    return [
        share - chance > 2 * math.sqrt(chance * (1 - chance) / max(n, 1))
        for share, chance, n in shares
    ]


def findings(table: CleanedTable) -> list[str]:
    """Sentences about how labels were found, and which sets are flagged."""
    cleaned, sentences = table.labels, []
    if "committee" in table.record:
        sentences.append(table.record["choice"])
    if cut := table.record.get("texts_cut"):
        sentences.append(f"{counted(cut, 'text')} {are(cut)} too long to be read to the end.")
    if not (cleaned.judged_by != "own").any():
        return sentences
    said, issues = _said_of_missing_labels(table), int(cleaned.issue.sum())
    if issues:
        right = f"{1 - cleaned.suspicion[cleaned.issue].mean():.0%}"
        flagged = (
            f"{counted(issues, 'set')} may lack the true label ({issues / len(table.ids):.1%})"
        )
        sort = "sort by `suspicion`; `suggestion` has the likelier label."
        sentences.append(f"{flagged}, {right} of them probably wrongly flagged: {sort}")
    if said and (table.audit is None or table.truth_missing):
        sentences.append(said)
    if table.audit is not None:
        none = "By the answers, no set is suspicious enough to be flagged."
        return sentences if issues else [*sentences, none]
    flags = "these flags may be wrong, and others missing" if issues else "no set is flagged"
    ask = f"answer {MORE_ANSWERS} rows (`ltpll review`)"
    sentences.append(f"Suspicion is a rank and not yet calibrated, so {flags}: {ask}.")
    if unknown := table.judgement.get("not_judged"):
        hold = f"The model cannot judge sets that hold {_named_classes(table.classes, unknown)}"
        sentences.append(f"{hold}: none of them is flagged.")
    return sentences


def _said_of_missing_labels(table: CleanedTable) -> str:
    """A sentence about labels outside their sets, or how to allow them where they seem needed."""
    if table.truth_missing:
        share, n = f"{table.truth_missing:.1%} of the sets", int((~table.in_set).sum())
        said = f"The training assumed that {share} lack the true label"
        return f"{said}: {n:,} labels lie outside their sets."
    missing = float(table.judgement.get("missing") or 0.0)
    if missing < MANY_MISSING:
        return ""
    said = f"About {missing:.0%} of the sets seem to lack the true label"
    if not table.labels.issue.any():
        said += ", but none certainly enough to be flagged"
    if "truth_missing" in table.record["config"]:  # the training knows that hardly any set does
        return f"{said}."
    return f"{said}: with {table.setting('truth_missing', 'auto')}, labels can leave their sets."


def _named_classes(names: npt.NDArray[Any], classes: list[tuple[int, int, int]]) -> str:
    """Classes that are not judged, all of them if they are few."""
    words = "the class " if len(classes) == 1 else f"one of {len(classes):,} classes: "
    if len(classes) > MOST_NAMED:
        words, classes = f"one of {len(classes):,} classes, such as ", classes[:1]
    return words + ", ".join(
        f"{names[c]} ({counted(examples, 'example')}, {recovered} recovered out of fold)"
        for c, examples, recovered in classes
    )


# ---- tables ------------------------------------------------------------------------------------


def cleaned_columns(
    table: CleanedTable, separator: str | None = None, for_review: int | None = None
) -> Columns:
    """The cleaned table: one row per example, in the order of the user's table.

    Args:
        table: The results of a run.
        separator: Separates the candidates of a set; by default that of the user's table.
        for_review: How many of the most suspicious sets a last column marks, if there shall be one.

    Returns:
        Columns of equal length by name: `id`, `candidates`, `label`, `confidence`, `runner_up`,
        `margin`, `set_size`, `issue`, `suggestion`, `suspicion`, `judged`, `judged_by`, and `path`,
        `split`, `group` and `true_label` if the user's table has them, `reviewed` if answers were
        given, `in_set` if labels may lie outside their sets, and `for_review` if that was asked for.

    Examples:
        >>> from ltpll.cleaning.stored_tables import read_cleaned
        >>> from ltpll.tables.writers import write_table
        >>> write_table(Path("cleaned.csv"), cleaned_columns(read_cleaned("ltpll-runs/birds")))
    """
    names, cleaned, true = table.classes, table.labels, table.true.tolist()
    columns: Columns = {"id": table.ids}
    if table.paths is not None and not np.array_equal(table.paths, table.ids):
        columns["path"] = table.paths
    if table.splits is not None:
        columns["split"] = table.splits
    if table.groups is not None:
        columns["group"] = table.groups
    columns |= {
        "candidates": table.sets(separator),
        "label": names[cleaned.label],
        "confidence": rounded_column(cleaned.confidence),
        "runner_up": np.where(
            cleaned.runner_up != cleaned.label, names[cleaned.runner_up], NO_NAME
        ),
        "margin": rounded_column(cleaned.margin),
        "set_size": table.sizes,
        "issue": cleaned.issue,
        "suggestion": np.where(cleaned.issue, names[cleaned.outside], NO_NAME),
        "suspicion": rounded_column(cleaned.suspicion),
        "judged": cleaned.judged,
        "judged_by": cleaned.judged_by,
    }
    if table.truth_missing:
        columns["in_set"] = table.in_set
    if table.reviewed is not None:
        columns["reviewed"] = table.reviewed
    if any(label is not None for label in true):
        columns["true_label"] = [None if label is None else names[label] for label in true]
    if for_review is not None:
        columns["for_review"] = suspicion_ranks(table) <= for_review
    return columns


def suspicion_ranks(table: CleanedTable) -> Numbers:
    """The rank of each set by how strongly it is contradicted, from 1; reviewed ones come last."""
    strength = table.labels.contradicted.astype(np.float64)
    if table.reviewed is not None:
        strength[table.reviewed] = -1
    ranks = np.empty(len(strength), dtype=np.int64)
    ranks[np.argsort(-strength, kind="stable")] = np.arange(1, len(strength) + 1)
    return ranks


def class_columns(table: CleanedTable) -> Columns:
    """One row per class: how often it is a candidate, how often it is chosen, and what instead.

    A rate is NaN, an empty cell, for a class that is never a candidate or never chosen.
    `recovered_out_of_fold` counts examples that are predicted to be of this class and have it as a
    candidate, out of the `judged_examples` in whose sets it is the likeliest candidate, and is None
    if nothing was judged. `information` is what a committee says about held-out sets of the class,
    in nats. `precision` and `recall` compare the labels with true labels, where these
    are known; without any, the two columns are left out.
    """
    n, names, cleaned, judgement = len(table.classes), table.classes, table.labels, table.judgement
    candidate = np.bincount(table.candidates, minlength=n)
    chosen = np.bincount(cleaned.label, minlength=n)
    confidence = np.bincount(cleaned.label, weights=cleaned.confidence, minlength=n)
    instead, times = labels_chosen_instead(table)
    judged = np.full(n, bool(judgement))
    judged[[one[0] for one in judgement.get("not_judged", [])]] = False
    with np.errstate(invalid="ignore", divide="ignore"):
        distracted = 1 - np.bincount(cleaned.label[table.in_set], minlength=n) / candidate
        columns: Columns = {
            "class": names,
            "estimated_prior": rounded_column(np.asarray(table.record["class_prior"])),
            "candidate_in": candidate,
            "label_of": chosen,
            "distractor_rate": rounded_column(distracted),
            "mean_confidence": rounded_column(confidence / chosen),
            "recovered_out_of_fold": list(judgement.get("recovered", [None] * n)),
            "judged_examples": np.bincount(cleaned.inside[cleaned.judged_by != "own"], minlength=n),
            "judged": judged,
            "suggested_for": np.bincount(cleaned.outside[cleaned.issue], minlength=n),
            "most_often_instead": [None if c < 0 else names[c] for c in instead.tolist()],
            "times_instead": times,
        }
        if "information_by_class" in table.record:
            columns["information"] = table.record["information_by_class"]
        rows, true = known_truth(table)
        if len(rows):
            label = cleaned.label[rows]
            right = np.bincount(true[label == true], minlength=n)
            columns["precision"] = rounded_column(right / np.bincount(label, minlength=n))
            columns["recall"] = rounded_column(right / np.bincount(true, minlength=n))
    return columns


def labels_chosen_instead(table: CleanedTable) -> tuple[Numbers, Numbers]:
    """For each class, the label most often chosen from sets that hold it, or −1, and how often."""
    n, chosen = len(table.classes), table.labels.label[table.owners]
    other = chosen != table.candidates
    pairs, counts = np.unique(chosen[other] * n + table.candidates[other], return_counts=True)
    instead, times = np.full(n, -1, dtype=np.int64), np.zeros(n, dtype=np.int64)
    order = np.argsort(counts, kind="stable")  # the last assignment, the largest count, remains
    instead[pairs[order] % n], times[pairs[order] % n] = pairs[order] // n, counts[order]
    return instead, times


# ---- true labels -------------------------------------------------------------------------------


def known_truth(table: CleanedTable) -> tuple[Numbers, Numbers]:
    """The rows whose true label is known, and these labels."""
    rows = np.flatnonzero([label is not None for label in table.true.tolist()])
    return rows, table.true[rows].astype(np.int64)


# ---- annotators --------------------------------------------------------------------------------


def annotator_columns(table: CleanedTable) -> Columns:
    """One row per annotator: examples, labels, and how often the label or another one agrees.

    The last column is NaN, an empty cell, for an annotator whose examples nobody else labelled.
    """
    import pandas as pd

    assert table.votes is not None
    votes = pd.DataFrame(dict(zip(("row", "annotator", "label"), table.votes, strict=True)))
    votes["agrees"] = table.votes.labels == table.labels.label[table.votes.rows]
    votes["shared"] = votes.groupby(["row", "label"])["label"].transform("size") > 1
    # Each pair of annotator and example counts once, however many labels were given.
    pairs = votes.groupby(["annotator", "row"], as_index=False)[["agrees", "shared"]].any()
    examples = pairs.groupby("annotator").size()
    with_others = pairs[pairs.groupby("row")["row"].transform("size") > 1].groupby("annotator")
    shared = with_others["shared"].mean().reindex(examples.index)
    return {
        "annotator": examples.index.to_numpy(),
        "examples": examples.to_numpy(),
        "labels": votes.groupby("annotator").size().to_numpy(),
        "agreement": rounded_column(pairs.groupby("annotator")["agrees"].mean().to_numpy()),
        "shared_with_others": rounded_column(shared.to_numpy()),
    }


def rounded_column(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return values.astype(np.float64).round(4)
