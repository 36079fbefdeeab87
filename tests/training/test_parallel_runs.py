"""Training runs in several processes: what they are given, and how they report."""

import signal
from functools import partial

import numpy as np
import pytest

from ltpll.candidates import Candidates
from ltpll.estimator import PartialLabelClassifier
from ltpll.evaluation.set_predictions import judged
from ltpll.folds import fold_splits
from ltpll.training import parallel_runs as module
from ltpll.training.callbacks import Callback, Checkpoint, Progress
from ltpll.training.fold_training import KeptFolds
from ltpll.training.job import Part, Stage

MAKE = partial(PartialLabelClassifier, method="proden", device="cpu", random_state=0)


def problem(n=60):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n)
    x = (rng.normal(size=(n, 4)) + 3 * np.eye(3, 4)[y]).astype(np.float32)
    return x, Candidates.from_matrix((rng.random((n, 3)) < 0.3) | (np.arange(3) == y[:, None])), y


def test_a_process_reports_within_epochs_and_where_it_resumed(tmp_path, monkeypatch):
    x, sets, _ = problem()
    monkeypatch.setattr(module, "WRITE_SECONDS", 0.0)
    path, checkpoint, seen = tmp_path / "report", Checkpoint(tmp_path / "checkpoint"), []

    class Reading(Callback):
        def on_step_end(self, trainer):
            seen.append((*module._read_report(path), trainer.epochs_done))
            if len(seen) == 7:
                signal.raise_signal(signal.SIGINT)

    def train():
        trainer, inputs, candidates = MAKE(epochs=3, batch_size=16).prepare_training(x, sets)
        with path.open("wb", buffering=0) as file:
            assert module._read_report(path) is None
            trainer.fit(inputs, candidates, [module._ReportEpochs(file), Reading(), checkpoint])
        return trainer.steps_per_epoch

    with pytest.raises(KeyboardInterrupt):
        train()
    steps = train()
    assert seen == [
        (0 if k <= 7 else 7 / steps, k / steps, k / steps) for k in range(1, 3 * steps + 1)
    ]
    assert module._read_report(path) == (7 / steps, 3.0)


def test_groups_and_weights_reach_the_processes_of_the_folds(tmp_path, monkeypatch):
    x, sets, _ = problem()
    sets = sets.with_groups([i // 5 for i in range(60)]).with_weights(
        np.random.default_rng(0).random(len(sets.labels)) + 0.1
    )
    seen = []
    monkeypatch.setattr(
        module,
        "in_processes",
        lambda function, calls, workers, report: [function(*call) for call in calls],
    )
    monkeypatch.setattr(
        module,
        "train_fold",
        lambda classifier, x, sets, *rest, **how: seen.append(
            (sets.groups.tolist(), sets.weights.tolist())
        ),
    )
    splits = fold_splits(sets, 2, 0)
    stage = Stage([Part("one", 1), Part("two", 1)], 2, "folds")
    progress = Progress()
    progress.plan_stages([stage])
    runs = [module.FoldRun(k, MAKE(), x, splits[k], judged) for k in (0, 1)]
    module.train_in_processes(runs, sets, KeptFolds(tmp_path, "fold-*.x"), stage, progress)
    assert seen == [(sets.groups.tolist(), sets.weights.tolist())] * 2


def test_candidates_reach_other_processes_whole():
    before = Candidates.of(["a|b", "b|c", "c"]).with_groups([0, 0, 1]).with_weights([1, 2, 1, 3, 1])
    sent = module._from_arrays(module._as_arrays(before.with_answers([1], [[0]])))
    assert [sent.row(i) for i in range(3)] == [[0, 1], [0], [2]]
    assert sent.classes == ("a", "b", "c")
    assert sent.groups.tolist() == sent.observed.groups.tolist() == [0, 0, 1]
    assert [sent.observed.row(i) for i in range(3)] == [[0, 1], [1, 2], [2]]
    assert sent.observed.weights.tolist() == before.weights.tolist()
    assert sent.weights.tolist() == pytest.approx([1 / 3, 2 / 3, 1, 1])
    assert module._from_arrays(module._as_arrays(before)).observed is None
