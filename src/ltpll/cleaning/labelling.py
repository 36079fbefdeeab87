"""Labelling: the label of each row with its confidence, and whether its set may lack it."""

from __future__ import annotations

from typing import cast

import numpy as np
import numpy.typing as npt

from ltpll.candidates.votes import AnnotatorVotes
from ltpll.cleaning.dataset import Examples
from ltpll.cleaning.judgement import Judgement, judge
from ltpll.cleaning.results import CleanedLabels
from ltpll.evaluation.metrics import calibration_figures
from ltpll.evaluation.set_predictions import SetPredictions
from ltpll.runs.recording import round_floats
from ltpll.runs.run import Record


def label_rows(
    predictions: SetPredictions,
    examples: Examples,
    trained: npt.NDArray[np.int64],
    own: SetPredictions | None,
    *,
    truth_missing: bool = False,
) -> tuple[CleanedLabels, Judgement | None]:
    """Choose the labels, and judge sets whose predictions are by classifiers not trained on them.

    There is one probability for each candidate of a row, from which the label, its confidence, the
    runner-up and the margin follow: that of the classifier that was not trained on the row or, for
    trained rows with out-of-fold predictions, the mean of theirs and of the final classifier's.
    The former do not know the row's set and the latter has memorised it; their mean recovers more
    labels than either.

    Args:
        predictions: Predictions for all rows.
        examples: The examples.
        trained: The rows that were trained on.
        own: Predictions of the final classifier for these rows, if those in `predictions` are out
            of fold; None if they are the final classifier's.
        truth_missing: Whether sets were trained on as if they may lack the true label; labels can
            then lie outside their sets.

    Returns:
        The labels, and the judgement of the rows that could be judged; None if there are none.
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
    return CleanedLabels(*found, suspicion, can_judge, judged_by), judgement


def _annotators_agree(votes: AnnotatorVotes | None, n: int) -> npt.NDArray[np.int64]:
    """Whether several annotators agree on a row, whose set then lacks the true label less often."""
    if votes is None:
        return np.zeros(n, dtype=np.int64)

    def different(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
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
    return cast(Record, round_floats(found))
