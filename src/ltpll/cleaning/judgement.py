"""Judgement: which candidate sets seem to lack the true label, and which cannot be judged."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ltpll.evaluation.missing_labels import fit_missing_labels
from ltpll.evaluation.set_predictions import SetPredictions

COMPETENCE = 0.6  # share of a class's rows that must be recovered before its sets are judged
DOUBT = 3.0  # excess sets of a class, or of a pair, before they count as mistakes of the classifier
Numbers = npt.NDArray[np.int64]
Shares = npt.NDArray[np.float32]
Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Judgement:
    """What classifiers that were not trained on the rows say about their sets.

    Attributes:
        temperature: By which their logits are divided to be calibrated.
        missing: The estimated share of sets that lack the true label.
        suspicion: For each row, the probability that its set lacks the true label.
        judged: For each class, whether it has enough examples to judge sets that hold it.
        examples: For each class, the number of rows in whose sets it is the likeliest candidate.
        recovered: In how many of them it is the likeliest class of all.
        covering: The share of rows whose predicted class is a candidate.
        chance: The same if the predictions were distributed over the rows at random.
    """

    temperature: float
    missing: float
    suspicion: Shares
    judged: Flags
    examples: Numbers
    recovered: Numbers
    covering: float
    chance: float

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
    """Judge candidate sets by out-of-fold predictions.

    Args:
        predictions: Predictions by classifiers that were not trained on the rows.
        n_classes: The number of classes.
        strata: The kind of each row, from 0, if sets of some kinds lack the true label more often
            than others: for example, whether all annotators agree.
        by_size: Whether sets of different sizes may lack the true label with different frequency.

    Returns:
        The judgement; `ltpll.cleaning.results.flagged_sets` says which sets to look at.
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


# ---- doubts ------------------------------------------------------------------------------------


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
    frequency = _weighted_counts(predictions.candidates, n_classes) / len(predictions.candidates)
    of_predicted = _weighted_counts(predicted[single], n_classes, weight[single])
    # Pairs of predicted class and label, as one number each; only those that occur are counted.
    pairs = predicted * n_classes + labels
    names, at = np.unique(
        np.concatenate([pairs, (predicted * n_classes + second)[left]]), return_inverse=True
    )
    expected = (
        _weighted_counts(at[len(pairs) :], len(names), weight[left])
        + of_predicted[names // n_classes] * frequency[names % n_classes]
    )
    suspected = np.where(supported, 0, found)
    seen = _weighted_counts(at[: len(pairs)], len(names), suspected)
    in_class = (
        _weighted_counts(second[left], n_classes, weight[left]) + of_predicted.sum() * frequency
    )
    of_class = _share_explained(in_class, _weighted_counts(labels, n_classes, suspected))[labels]
    return np.asarray(_share_explained(expected, seen)[at[: len(pairs)]] * of_class)


def _share_explained(
    expected: npt.NDArray[np.float64], seen: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """The share of the suspicious sets that an expected number explains."""
    return np.minimum(1, (expected + DOUBT) / (seen + DOUBT))


def _weighted_counts(
    numbers: Numbers, n: int, weights: npt.NDArray[np.float64] | None = None
) -> npt.NDArray[np.float64]:
    """How often each number below n occurs, or the sum of the weights where it does."""
    return np.bincount(numbers, weights=weights, minlength=n).astype(np.float64)
