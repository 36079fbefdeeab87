"""Missing labels: how many candidate sets lack the true label, and calibration without labels.

A classifier that was not trained on a row gives its set, k of C classes, the probability s. If a
share ε of such sets lacks the true label, and wrong labels are drawn at random, then the set is
observed with a probability proportional to

    (1 − ε) s  +  ε (1 − s) k / (C − k),

and the share of the second term is the probability that the set lacks its label. ε, and the
temperature that calibrates the classifier, are those that make all sets most probable together: if
the classifier is often wrong, the temperature is high, and contradictions count little.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.special import softmax

from ltpll.evaluation.set_predictions import TEMPERATURES, SetPredictions

MOST_ROWS = 20_000  # that the temperature is chosen by
PASSES = 60  # of EM
LEAST = 1e-6
POOLED = 20  # rows of the average that the share of each size is shrunk by
Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Shares = npt.NDArray[np.float32]


class MissingLabels(NamedTuple):
    """How many sets lack the true label."""

    temperature: float  # by which the classifier's logits are divided to be calibrated
    shares: Floats  # the estimated share of sets that lack the true label, for each kind of rows
    suspicion: Floats  # for each row, the probability that its set lacks the true label


def fit_missing_labels(
    predictions: SetPredictions,
    n_classes: int,
    strata: Numbers,
    *,
    temperature_by_strata: bool = False,
) -> MissingLabels:
    """Fit the shares of sets without the true label, and the temperature, to predictions.

    Args:
        predictions: Predictions by classifiers that were not trained on the rows.
        n_classes: The number of classes.
        strata: The kind of each row, from 0; sets of different kinds may lack the true label with
            different frequency.
        temperature_by_strata: Whether the temperature is fitted together with a share for each
            kind, or with a common one.
    """
    sizes, probability = np.diff(predictions.offsets), predictions.set_probability
    kinds = strata if temperature_by_strata else np.zeros_like(strata)
    place = _temperature(probability, sizes, n_classes, kinds)
    holds, lacks = set_likelihoods(probability[:, place].astype(np.float64), sizes, n_classes)
    shares = _missing_shares(holds, lacks, strata)
    missing = shares[strata]
    suspicion = missing * lacks / np.maximum(missing * lacks + (1 - missing) * holds, 1e-300)
    return MissingLabels(TEMPERATURES[place], shares, suspicion)


def balanced_temperature(predictions: SetPredictions, prior: Floats, missing: float) -> float:
    """The temperature of predictions that assume that all classes are equally frequent.

    Logits are those of the predictions minus the logarithm of the class prior. The temperature is
    the one that makes the sets most probable, if rows count in inverse proportion to how frequent
    their classes are. It is 1 if the probabilities of all classes were not kept.
    """
    if predictions.log_probability is None:
        return 1.0
    n, n_classes = predictions.log_probability.shape
    predictions = predictions.select(np.arange(n)[:: -(-n // MOST_ROWS)])
    logs, starts = predictions.log_probability, predictions.offsets[:-1]
    assert logs is not None
    rare = predictions.candidate_shares() / prior[predictions.candidates]
    weights, sizes = np.add.reduceat(rare, starts), np.diff(predictions.offsets)
    logits, rows = logs - np.log(prior), np.repeat(np.arange(len(logs)), sizes)
    found = []
    for temperature in TEMPERATURES:
        shares = softmax(logits / temperature, axis=1)[rows, predictions.candidates]
        holds, lacks = set_likelihoods(np.add.reduceat(shares, starts), sizes, n_classes)
        found.append(weights @ np.log((1 - missing) * holds + missing * lacks))
    return TEMPERATURES[int(np.argmax(found))]


def missing_by_size(predictions: SetPredictions, n_classes: int) -> list[float]:
    """The estimated share of sets that lack the true label, for sets of each size from 0.

    A set that has lost its true label is often smaller than others, so one share for all sizes
    would be wrong for most of them. Sizes with few rows are shrunk towards the share of all rows.
    """
    sizes = np.diff(predictions.offsets).astype(np.int64)
    found = fit_missing_labels(predictions, n_classes, sizes, temperature_by_strata=True).suspicion
    total = np.bincount(sizes, weights=found, minlength=n_classes + 1) + POOLED * found.mean()
    shares: list[float] = (total / (np.bincount(sizes, minlength=n_classes + 1) + POOLED)).tolist()
    return shares


def set_likelihoods(s: Floats, sizes: Numbers, n_classes: int) -> tuple[Floats, Floats]:
    """How probable each set is if it holds and if it lacks the true label, up to a common factor.

    s may have several columns.
    """
    ratio = np.where(sizes < n_classes, sizes / np.maximum(n_classes - sizes, 1), 0.0)
    return np.maximum(s, 1e-30), np.maximum(1 - s, 0) * (ratio if s.ndim == 1 else ratio[:, None])


def _temperature(set_probability: Shares, sizes: Numbers, n_classes: int, strata: Numbers) -> int:
    """The place in `TEMPERATURES` of the one that makes the sets most probable."""
    rows = slice(None, None, -(-len(sizes) // MOST_ROWS))
    holds, lacks = set_likelihoods(set_probability[rows].astype(np.float64), sizes[rows], n_classes)
    columns = zip(holds.T, lacks.T, strict=True)
    shares = [_missing_shares(*column, strata[rows]) for column in columns]
    missing = np.stack(shares, axis=1)[strata[rows]]
    return int(np.log(missing * lacks + (1 - missing) * holds).sum(0).argmax())


def _missing_shares(holds: npt.NDArray[Any], lacks: npt.NDArray[Any], strata: Numbers) -> Floats:
    """The share of sets that lack their label, for each kind of rows."""
    counts = np.maximum(np.bincount(strata), 1)
    missing = np.full(len(counts), 0.05)
    for _ in range(PASSES):
        share = missing[strata]
        found = share * lacks / (share * lacks + (1 - share) * holds)
        missing = np.clip(np.bincount(strata, weights=found) / counts, LEAST, 1 - LEAST)
    return missing
