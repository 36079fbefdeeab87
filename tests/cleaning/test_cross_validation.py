"""Out-of-fold predictions: the same one after the other and in parallel, interrupted or not."""

import os
from functools import partial

import numpy as np
import pytest
import torch

from ltpll.candidates import Candidates
from ltpll.cleaning.cleaning_job import fold_runs, fold_stage, out_of_fold
from ltpll.estimator import PartialLabelClassifier
from ltpll.evaluation.set_predictions import TEMPERATURES
from ltpll.folds import fold_splits
from ltpll.processes import PRELOADED
from ltpll.training import fold_training as module
from ltpll.training.callbacks import Progress
from support.refusals import refusal
from support.waiting import LastOneWaits

EPOCHS = 40
PRELOADED.append(
    "ltpll.cleaning.cleaning_job"
)  # so that each of several worker processes need not import it


def problem(n=60):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n)
    x = (rng.normal(size=(n, 4)) + 3 * np.eye(3, 4)[y]).astype(np.float32)
    return x, Candidates.from_matrix((rng.random((n, 3)) < 0.3) | (np.arange(3) == y[:, None])), y


MAKE = partial(PartialLabelClassifier, method="proden", epochs=EPOCHS, device="cpu", random_state=0)


def judged(folder, workers, progress=None, make=MAKE, folds=3):
    x, sets, _ = problem()
    folder.mkdir(exist_ok=True)
    splits = fold_splits(sets, folds, seed=0)
    stage = fold_stage(make(), x, splits, workers)
    progress = progress or Progress(write=lambda line: None)
    progress.plan_stages([stage])
    return out_of_fold(fold_runs(make(), x, splits), sets, folder, stage, progress)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    torch.set_num_threads(1)
    return judged(tmp_path_factory.mktemp("one after the other"), workers=1)


def same(one, other):
    return all(torch.equal(value, other.tensors()[name]) for name, value in one.tensors().items())


def test_a_classifier_judges_rows_that_it_was_not_trained_on(tmp_path, monkeypatch, expected):
    x, sets, y = problem()
    trained_on = []
    begin = PartialLabelClassifier.prepare_training

    def noting(self, given, candidates):
        trained_on.append({row.tobytes() for row in given})
        return begin(self, given, candidates)

    monkeypatch.setattr(PartialLabelClassifier, "prepare_training", noting)
    asked = []
    predict = PartialLabelClassifier.predict_proba

    def answering(self, given):
        asked.append({row.tobytes() for row in given})
        return predict(self, given)

    monkeypatch.setattr(PartialLabelClassifier, "predict_proba", answering)
    assert same(judged(tmp_path / "folds", workers=1), expected)
    for seen, judged_rows in zip(trained_on, asked, strict=True):
        assert not seen & judged_rows
    assert set.union(*asked) == {row.tobytes() for row in x}
    assert (expected.inside == y).mean() > 0.8
    assert bool(
        sets[torch.arange(len(x))].gather(1, torch.from_numpy(expected.inside)[:, None]).all()
    )


def test_side_by_side_and_interrupted_they_judge_as_one_after_the_other(
    tmp_path, tmp_path_factory, expected
):
    seen, waiting = [], LastOneWaits(**MAKE.keywords)
    waiting.folder, waiting.parent = tmp_path_factory.mktemp("waiting"), os.getpid()

    class Watching(Progress):
        def report_epochs(self, done, **options):
            super().report_epochs(done, **options)
            seen.append(sum(part.done for part in self.parts))
            if len(seen) == 3:
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        judged(tmp_path, 2, Watching(write=lambda line: None), lambda: waiting)
    (waiting.folder / "go").touch()
    assert not list(tmp_path.glob(".progress*"))
    finished = {path: path.stat().st_mtime_ns for path in tmp_path.glob("fold-*")}
    assert len(finished) < 3
    lines = []
    found = judged(tmp_path, 2, Watching(write=lines.append))
    assert same(found, expected)
    assert seen[3] >= len(finished) * EPOCHS
    assert seen[-1] == 3 * EPOCHS
    assert lines[-1].startswith("100% · finished in ")
    assert lines[-1].endswith("folds: 3 of 3 done")
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in finished.items())
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"fold-{k}.safetensors" for k in (1, 2, 3)
    ]


def test_checkpoints_of_folds_that_were_killed_after_they_finished_are_deleted(tmp_path, expected):
    judged(tmp_path, workers=1)
    for name in ("checkpoint-fold-1.safetensors", "checkpoint-fold-2.previous.safetensors"):
        (tmp_path / name).write_bytes(b"")
    assert same(judged(tmp_path, workers=1), expected)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        f"fold-{k}.safetensors" for k in (1, 2, 3)
    ]


def test_all_rows_of_a_group_are_in_the_same_fold():
    _, sets, _ = problem()
    groups = np.random.default_rng(1).integers(0, 12, len(sets))
    splits = fold_splits(sets.with_groups(groups), 5, seed=0)
    assert len(splits) == 5
    assert sorted(np.concatenate([rows for _, rows in splits]).tolist()) == list(range(len(sets)))
    for others, rows in splits:
        assert not set(groups[others]) & set(groups[rows])
        assert sorted([*others, *rows]) == list(range(len(sets)))
    again, other = (fold_splits(sets.with_groups(groups), 5, seed) for seed in (0, 1))
    assert all(np.array_equal(one[1], two[1]) for one, two in zip(splits, again, strict=True))
    assert not all(np.array_equal(one[1], two[1]) for one, two in zip(splits, other, strict=True))


def test_there_are_no_more_folds_than_groups_and_a_single_group_is_refused():
    _, sets, _ = problem()
    assert len(fold_splits(sets.with_groups(["a", "b"] * 30), 5, seed=0)) == 2
    assert len(fold_splits(sets, 100, seed=0)) == 60
    assert "All rows to train on are in one group" in refusal(
        lambda: fold_splits(sets.with_groups(["a"] * 60), 5, seed=0)
    )


def test_rows_are_judged_as_frequent_as_their_classes_are_whatever_the_goal_is(tmp_path):
    x, sets, _ = problem()
    make = partial(MAKE, rebalancer="mean-target", epochs=3, goal="balanced")
    found = judged(tmp_path, 1, make=make, folds=2)
    others, rows = fold_splits(sets, 2, seed=0)[0]
    fitted = make().fit(x[others], sets.select(others))
    by_goal = {}
    for goal in ("balanced", "accuracy"):
        probabilities = fitted.set_params(goal=goal).predict_proba(x[rows])
        by_goal[goal] = (probabilities * sets.select(rows)[torch.arange(len(rows))].numpy()).sum(1)
    np.testing.assert_allclose(
        found.set_probability[rows, TEMPERATURES.index(1.0)], by_goal["accuracy"], atol=1e-5
    )
    assert np.abs(by_goal["balanced"] - by_goal["accuracy"]).max() > 1e-3


@pytest.mark.parametrize(
    ("n", "workers", "expected"), [(1000, None, 1), (30_000, None, 4), (30_000, 1, 1), (1000, 2, 2)]
)
def test_processes_are_started_where_there_is_work_for_them_or_if_asked_for(
    monkeypatch, n, workers, expected
):
    monkeypatch.setattr(module.os, "cpu_count", lambda: 4)
    assert workers_of(n, workers) == expected


def workers_of(n, workers):
    x, sets, _ = problem(n)
    return fold_stage(MAKE(), x, fold_splits(sets, 5, seed=0), workers).workers


def test_processes_are_no_more_than_there_is_room_for(monkeypatch):
    monkeypatch.setattr(module.os, "cpu_count", lambda: 4)
    monkeypatch.setattr(
        module, "MOST_BYTES", 8 * 30_000 * 16 + 1
    )  # bytes, four times the inputs for each of two
    assert workers_of(30_000, None) == 2
