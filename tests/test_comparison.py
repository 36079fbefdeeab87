"""The comparison on held-out rows: its scores are those of out-of-fold predictions, and it is made
only where it is needed."""

import warnings

import numpy as np
import pytest

from ltpll import PartialLabelClassifier
from ltpll.before_training import can_compare, comparison_parts, held_out_scores
from ltpll.folds import fold_splits
from ltpll.rebalancers import RECORDS, Anchor, Auto, SetEvidence
from ltpll.synthetic import uniform_candidates
from ltpll.training.callbacks import Callback
from ltpll_research.set_origins import neighbour_candidates

LABELS = np.repeat(np.arange(8), 15)
X = (LABELS[:, None] + np.random.default_rng(0).normal(size=(len(LABELS), 2))).astype(np.float32)
UNCLEAR = neighbour_candidates(LABELS, 8, seed=0)


def quick(**options):
    return PartialLabelClassifier("proden", epochs=2, device="cpu", threads=1, **options)


def test_scores_are_those_of_out_of_fold_predictions():
    scores = held_out_scores(quick(), Auto(warmup=0.5), X, UNCLEAR)
    ways = {
        "plain": SetEvidence(),
        "average": Anchor("average", "point", warmup=0.5, lift="warm-up"),
    }
    assert scores.keys() == ways.keys()
    for way, rebalancer in ways.items():
        found = np.empty((len(X), 8))
        for others, rows in fold_splits(UNCLEAR, 3, seed=0):
            fitted = quick(rebalancer=rebalancer).fit(X[others], UNCLEAR.select(others))
            found[rows] = fitted.predict_proba(X[rows])
        mean, sets = found.mean(0), [UNCLEAR.row(row) for row in range(len(X))]
        ratios = [found[row, own].sum() / mean[own].sum() for row, own in enumerate(sets)]
        assert scores[way] == pytest.approx(np.log(ratios).mean(), abs=1e-5)


def test_a_fit_with_auto_says_what_the_comparison_found():
    fitted = quick().fit(X, UNCLEAR)
    assert "held-out sets" in fitted.choice_
    assert "held-out sets" not in quick(rebalancer="anchor").fit(X, UNCLEAR).choice_


def test_rows_of_a_group_are_held_out_together():
    groups = np.arange(len(X)) // 5
    seen = []

    class Rows(Callback):
        def on_train_begin(self, trainer):
            seen.append(set(trainer.candidates.groups.tolist()))

    held_out_scores(quick(), Auto(), X, UNCLEAR.with_groups(groups), lambda number: [Rows()])
    assert len(seen) == 6
    for trained_on in seen:
        assert len(trained_on) == 16  # of 24 groups


def test_every_training_is_announced_by_its_number_and_has_the_size_that_was_planned():
    numbers, trained = [], []

    class Sizes(Callback):
        def on_train_begin(self, trainer):
            trained.append((len(trainer.candidates), trainer.epochs, trainer.batch_size))

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        held_out_scores(
            quick(), Auto(), X, UNCLEAR, lambda number: numbers.append(number) or [Sizes()]
        )
    assert numbers == list(range(6))
    planned = comparison_parts(quick(), UNCLEAR)
    assert [part.name for part in planned] == [f"comparison {k + 1} of 6" for k in range(6)]
    assert [(part.epochs, part.cost) for part in planned] == [
        (epochs, rows * (1 + 100 / batch)) for rows, epochs, batch in trained
    ]


def test_it_is_made_only_for_tables_whose_sets_leave_auto_undecided():
    assert can_compare(Auto(), X, UNCLEAR)
    assert not can_compare(RECORDS(), X, UNCLEAR)
    assert not can_compare(Auto(prior="average"), X, UNCLEAR)
    assert not can_compare(Auto(), X[:, :, None, None], UNCLEAR)  # images
    assert not can_compare(
        Auto(), X, UNCLEAR.with_groups(np.arange(len(X)) % 2)
    )  # three folds need three groups
    assert not can_compare(Auto(), X[:40], UNCLEAR.select(np.arange(40)))
    assert not can_compare(Auto(), X, uniform_candidates(LABELS, 8, 0.3, seed=0))
