"""Judgement: the label of each row, and which candidate sets seem to lack the true label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.candidates.votes import AnnotatorVotes
from ltpll.cleaning.dataset import Examples
from ltpll.cleaning.results import CleanedLabels, Flags, Numbers, Shares
from ltpll.evaluation.metrics import calibration_figures
from ltpll.evaluation.missing_labels import fit_missing_labels
from ltpll.evaluation.set_predictions import TEMPERATURES, SetPredictions
from ltpll.runs.run import Record

COMPETENCE = 0.6  # share of a class's rows that must be recovered before its sets are judged
DOUBT = 3.0  # excess sets of a class, or of a pair, before they count as mistakes of the classifier


@dataclass(frozen=True)
class Judgement:
    """What classifiers that were not trained on the rows say about their sets."""

    temperature: float  # by which their logits are divided to be calibrated
    missing: float  # the estimated share of sets that lack the true label
    suspicion: Shares  # for each row, the probability that its set lacks the true label
    judged: Flags  # for each class, whether it has enough examples to judge sets that hold it
    examples: Numbers  # for each class, the rows in whose sets it is the likeliest candidate
    recovered: Numbers  # in how many of them it is the likeliest class of all
    covering: float  # the share of rows whose predicted class is a candidate
    chance: float  # the same if the predictions were distributed over the rows at random

    def judged_sets(self, predictions: SetPredictions) -> Flags:
        """Whether each set can be judged: a class that is not known may be its label unnoticed."""
        return np.logical_and.reduceat(
            self.judged[predictions.candidates], predictions.offsets[:-1]
        )


def judge(
    predictions: SetPredictions,
    n_classes: int,
    strata: Numbers | None = None,
    *,
    by_size: bool = False,
) -> Judgement:
    """Judge candidate sets by predictions of classifiers that were not trained on the rows.

    Sets of some kinds may lack the true label more often than others: `strata` has the kind of each
    row, from 0, such as whether all annotators agree; `by_size` tells sizes of sets apart, too.
    `ltpll.cleaning.results.flagged_sets` says which sets to look at.
    """
    labels = predictions.inside
    strata = np.zeros(len(labels), dtype=np.int64) if strata is None else strata
    if by_size:
        strata = strata * (n_classes + 1) + np.diff(predictions.offsets)
    fitted = fit_missing_labels(predictions, n_classes, strata, temperature_by_strata=by_size)
    missing, found = fitted.shares[strata], fitted.suspicion
    predicted = np.where(predictions.supported, predictions.inside, predictions.outside)
    suspicion = found * _mistake_factors(found, missing, predictions, predicted, n_classes)
    examples = np.bincount(labels, minlength=n_classes)
    recovered = np.bincount(labels[predicted == labels], minlength=n_classes)
    explained = np.bincount(labels, weights=suspicion, minlength=n_classes)
    frequency = np.bincount(predictions.candidates, minlength=n_classes) / len(labels)
    return Judgement(
        temperature=fitted.temperature,
        missing=float(missing.mean()),
        suspicion=suspicion.astype(np.float32),
        judged=np.asarray((recovered > 0) & (recovered >= COMPETENCE * (examples - explained))),
        examples=examples,
        recovered=recovered,
        covering=float(predictions.supported.mean()),
        chance=float(frequency[predicted].mean()),
    )


def _mistake_factors(
    found: npt.NDArray[np.float64],
    missing: npt.NDArray[np.float64],
    predictions: SetPredictions,
    predicted: Numbers,
    n_classes: int,
) -> npt.NDArray[np.float64]:
    """Factors below one where missing labels do not explain all suspicious sets of a class or pair.

    Labels go missing in rows of all classes alike, and leave random wrong labels. Mistakes of the
    classifier pile up instead: in rare classes that it has not learned, and between classes that it
    confuses. How many suspicious sets to expect is counted over the rows whose predicted class is a
    candidate: without it, their label would be the second candidate or, if there is none, any class
    in proportion to how often it is a candidate.
    """
    supported, labels = predictions.supported, predictions.inside
    second = predictions.most_probable(predictions.candidate_probability).runner_up
    alone = np.diff(predictions.offsets) == 1
    weight = missing * len(labels) / max(int(supported.sum()), 1)
    left, single = supported & ~alone, supported & alone

    def counts(numbers: Numbers, n: int, weights: Any = None) -> npt.NDArray[np.float64]:
        return np.bincount(numbers, weights=weights, minlength=n).astype(np.float64)

    def share_explained(expected: Any, seen: Any) -> npt.NDArray[np.float64]:
        """The share of the suspicious sets that an expected number explains."""
        return np.asarray(np.minimum(1, (expected + DOUBT) / (seen + DOUBT)))

    frequency = counts(predictions.candidates, n_classes) / len(predictions.candidates)
    of_predicted = counts(predicted[single], n_classes, weight[single])
    # Pairs of predicted class and label, as one number each; only those that occur are counted.
    pairs = predicted * n_classes + labels
    names, at = np.unique(
        np.concatenate([pairs, (predicted * n_classes + second)[left]]), return_inverse=True
    )
    expected = counts(at[len(pairs) :], len(names), weight[left])
    expected = expected + of_predicted[names // n_classes] * frequency[names % n_classes]
    suspected = np.where(supported, 0, found)
    seen = counts(at[: len(pairs)], len(names), suspected)
    in_class = counts(second[left], n_classes, weight[left]) + of_predicted.sum() * frequency
    of_class = share_explained(in_class, counts(labels, n_classes, suspected))[labels]
    return np.asarray(share_explained(expected, seen)[at[: len(pairs)]] * of_class)


# ---- labels ------------------------------------------------------------------------------------


def label_rows(
    predictions: SetPredictions,
    examples: Examples,
    trained: Numbers,
    own: SetPredictions | None,
    *,
    truth_missing: bool = False,
) -> tuple[CleanedLabels, Judgement | None]:
    """Choose the labels, and judge sets whose predictions are by classifiers not trained on them.

    There is one probability for each candidate of a row, from which the label, its confidence, the
    runner-up and the margin follow: that of the classifier that was not trained on the row or, for
    trained rows with out-of-fold predictions, the mean of theirs and of the final classifier's.
    The former do not know the row's set and the latter has memorised it; their mean recovers more
    labels than either. `own` are the predictions of the final classifier for the `trained` rows, if
    the others are out of fold. With `truth_missing`, labels may lie outside their sets.
    """
    n, n_classes = len(examples), examples.candidates.n_classes
    judged_by = np.full(n, "held out", dtype=object)
    judged_by[trained] = "own" if own is None else "folds"
    suspicion, can_judge, judgement = np.zeros(n, dtype=np.float32), np.zeros(n, dtype=bool), None
    rows = np.flatnonzero(judged_by != "own")
    if len(rows):
        seen = predictions.select(rows)
        strata = _annotators_agree(examples.table.votes, n)[rows]
        judgement = judge(seen, n_classes, strata, by_size=truth_missing)
        suspicion[rows], can_judge[rows] = judgement.suspicion, judgement.judged_sets(seen)
        if examples.table.reviewed is not None:
            suspicion[examples.table.reviewed] = 0  # a person's answer is not doubted
    temperature = 1.0 if judgement is None else judgement.temperature
    shares = predictions.candidate_shares(temperature)
    if own is not None:
        places = predictions.places(trained)
        shares[places] = (shares[places] + own.candidate_shares(temperature)) / 2
    label, share, runner_up, next_share = predictions.most_probable(shares)
    confidence, margin = (1 - suspicion) * share, share - next_share
    if truth_missing:
        outside = suspicion * predictions.outside_shares(temperature)
        left = can_judge & (outside > confidence)
        runner_up[left], margin[left] = label[left], (outside - confidence)[left]
        label[left], confidence[left] = predictions.outside[left], outside[left]
    found = (label, confidence, runner_up, margin, predictions.inside, predictions.outside)
    contradiction = 1 - predictions.set_probability[:, TEMPERATURES.index(1.0)]
    contradiction = np.clip(contradiction, 0, 1)
    return CleanedLabels(*found, suspicion, can_judge, judged_by, contradiction), judgement


def _annotators_agree(votes: AnnotatorVotes | None, n: int) -> Numbers:
    """Whether several annotators agree on a row, whose set then lacks the true label less often."""
    if votes is None:
        return np.zeros(n, dtype=np.int64)

    def different(numbers: Numbers) -> Numbers:
        pairs = np.unique(np.stack([votes.rows, numbers]), axis=1)
        return np.bincount(pairs[0], minlength=n)

    agree = (different(votes.annotators) > 1) & (different(votes.labels) == 1)
    return np.asarray(agree, dtype=np.int64)


def judgement_record(
    judgement: Judgement | None, cleaned: CleanedLabels, examples: Examples
) -> Record | None:
    """What a report says about the judgement, with the calibration where true labels are known."""
    if judgement is None:
        return None
    n, sizes = len(examples), examples.candidates.sizes.numpy()
    unknown = np.flatnonzero(~judgement.judged & (judgement.examples > 0))
    found: Record = {
        "temperature": judgement.temperature,
        "missing": judgement.missing,
        "covering": judgement.covering,
        "chance": judgement.chance,
        "recovered": judgement.recovered.tolist(),
        "not_judged": [
            [int(c), int(judgement.examples[c]), int(judgement.recovered[c])] for c in unknown
        ],
    }
    ambiguous = (sizes > 1) & (cleaned.judged_by != "own")
    if ambiguous.any():
        found["ambiguous"] = {
            "rows": int(ambiguous.sum()),
            "expected": float(cleaned.confidence[ambiguous].mean()),
            "guess": float((1 / sizes[ambiguous]).mean()),
        }
    true = np.full(n, -1) if examples.table.labels is None else examples.table.labels
    calibration = {}
    for name, rows in (("all", cleaned.judged_by != "own"), ("ambiguous", ambiguous)):
        known = rows & (true >= 0)
        if known.any():
            right = cleaned.label[known] == true[known]
            calibration[name] = calibration_figures(cleaned.confidence[known], right)
    if calibration:
        found["calibration"] = calibration
    return found
