"""Labelling: the label of each row of a table with its confidence, and whether the row's set seems to lack the true label."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import numpy.typing as npt

from ltpll.cleaning.dataset import Examples
from ltpll.cleaning.judgement import Judgement, judge
from ltpll.cleaning.results import CleanedLabels
from ltpll.data.readers.annotations import AnnotatorVotes
from ltpll.evaluation.metrics import calibration_figures
from ltpll.evaluation.set_predictions import SetPredictions
from ltpll.runs.recording import round_floats
from ltpll.runs.run import Record

PROBABLE = 0.5  # probability from which a class outside the set becomes the label


def label_rows(
    predictions: SetPredictions,
    examples: Examples,
    trained: npt.NDArray[np.int64],
    transduced: tuple[npt.NDArray[Any], ...],
    out_of_fold: bool,
    *,
    truth_missing: bool = False,
) -> tuple[CleanedLabels, Judgement | None]:
    """Choose the labels, and judge them and their sets where predictions are by classifiers that were not trained on the rows.

    Held-out rows get the likeliest candidate. Trained rows get the label of their final targets, or the likeliest candidate by out-of-fold
    classifiers if these are surer. With `truth_missing`, a class outside the set that is probably the true label comes before both.

    Args:
        predictions: Predictions for all rows.
        examples: The examples.
        trained: The rows that were trained on.
        transduced: Their labels, confidences, runners-up and margins.
        out_of_fold: Whether the predictions for these rows are out of fold.
        truth_missing: Whether sets were trained on as if they may lack the true label; labels can then lie outside their sets.

    Returns:
        The labels, and the judgement of the rows that could be judged; None if there are none.
    """
    n, n_classes = len(examples), examples.candidates.n_classes
    judged_by = np.full(n, "held out", dtype=object)
    judged_by[trained] = "folds" if out_of_fold else "own"
    labels = predictions.inside_sets().label
    labels[trained] = transduced[0]
    confidence, margin, suspicion = np.zeros((3, n), dtype=np.float32)
    runner_up, can_judge, judgement = labels.copy(), np.zeros(n, dtype=bool), None
    rows = np.flatnonzero(judged_by != "own")
    if len(rows):
        seen = predictions.select(rows)
        judgement = judge(seen, n_classes, _agreement(examples.table.votes, n)[rows], by_size=truth_missing)
        suspicion[rows], can_judge[rows] = judgement.suspicion, judgement.judged_sets(seen)
        if examples.table.reviewed is not None:
            suspicion[examples.table.reviewed] = 0  # a person's answer is not doubted
        if out_of_fold:
            likeliest = predictions.inside_sets(temperature=judgement.temperature)
            surer = likeliest.share[trained] * (1 - truth_missing * suspicion[trained]) > transduced[1]
            labels[trained[surer]] = likeliest.label[trained][surer]
        if truth_missing:
            outside = seen.outside_shares(judgement.temperature)
            # Final targets may have memorised a set that lacks the label.
            probable = can_judge[rows] & (suspicion[rows] * outside > PROBABLE)
            labels[rows[probable]] = seen.outside[probable]
        inside = seen.inside_sets(labels[rows], judgement.temperature)
        confidence[rows] = (1 - suspicion[rows]) * inside.share
        runner_up[rows], margin[rows] = inside.runner_up, inside.share - inside.runner_up_share
        if truth_missing:
            share = np.where(labels[rows] == seen.outside, outside, 1 - outside) * suspicion[rows]
            left = labels[rows] != inside.label
            confidence[rows[left]], margin[rows[left]] = share[left], (share - confidence[rows])[left]
            runner_up[rows[left]] = inside.label[left]
    if not out_of_fold:
        confidence[trained], runner_up[trained], margin[trained] = transduced[1:]
    target = confidence.copy()
    target[trained] = _target_shares(labels[trained], *transduced)
    found = (labels, confidence, runner_up, margin, predictions.inside, predictions.outside, suspicion, can_judge, judged_by)
    return CleanedLabels(*found, target=target), judgement


def _target_shares(
    labels: npt.NDArray[np.int64], first: npt.NDArray[Any], share: npt.NDArray[Any], second: npt.NDArray[Any], margin: npt.NDArray[Any]
) -> npt.NDArray[Any]:
    """The share of each label in the final targets, of which the two largest are known; 0 for others."""
    return np.where(labels == first, share, np.where(labels == second, share - margin, 0))


def _agreement(votes: AnnotatorVotes | None, n: int) -> npt.NDArray[np.int64]:
    """1 for rows on which several annotators agree, whose sets lack the true label less often, and 0 for others."""
    if votes is None:
        return np.zeros(n, dtype=np.int64)
    annotators = np.bincount(np.unique(np.stack([votes.rows, votes.annotators]), axis=1)[0], minlength=n)
    labels = np.bincount(np.unique(np.stack([votes.rows, votes.labels]), axis=1)[0], minlength=n)
    return np.asarray((annotators > 1) & (labels == 1), dtype=np.int64)


def judgement_record(judgement: Judgement | None, cleaned: CleanedLabels, examples: Examples) -> Record | None:
    """What a report says about the judgement, and how good confidences are where true labels are known."""
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
        "not_judged": [[int(c), int(judgement.examples[c]), int(judgement.recovered[c])] for c in unknown],
    }
    ambiguous = (sizes > 1) & (cleaned.judged_by != "own")
    if ambiguous.any():
        found["ambiguous"] = {
            "rows": int(ambiguous.sum()),
            "expected": float(cleaned.confidence[ambiguous].mean()),
            "guess": float((1 / sizes[ambiguous]).mean()),
        }
    true = np.full(n, -1) if examples.table.labels is None else examples.table.labels
    for name, rows in (("all", cleaned.judged_by != "own"), ("ambiguous", ambiguous)):
        known = rows & (true >= 0)
        if known.any():
            right = cleaned.label[known] == true[known]
            found.setdefault("calibration", {})[name] = calibration_figures(cleaned.confidence[known], right)
    return cast(Record, round_floats(found))
