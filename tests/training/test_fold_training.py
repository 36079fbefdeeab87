"""Training runs in several processes: what they are given, and how they report."""

import signal
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from ltpll.candidates import Candidates
from ltpll.estimator import PartialLabelClassifier
from ltpll.evaluation.set_predictions import judged
from ltpll.folds import fold_splits
from ltpll.training import fold_training as module
from ltpll.training.callbacks import Callback, Checkpoint, Progress
from ltpll.training.fold_training import KeptFolds
from ltpll.training.job import Part, Stage

MAKE = partial(PartialLabelClassifier, method="proden", device="cpu", random_state=0)


def problem(n=60):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n)
    x = (rng.normal(size=(n, 4)) + 3 * np.eye(3, 4)[y]).astype(np.float32)
    return x, Candidates.from_matrix((rng.random((n, 3)) < 0.3) | (np.arange(3) == y[:, None])), y


def test_a_process_reports_within_epochs_and_where_it_resumed(tmp_path):
    x, sets, _ = problem()
    report, checkpoint, seen = np.zeros(2), Checkpoint(tmp_path / "checkpoint"), []

    class Reading(Callback):
        def on_step_end(self, trainer):
            seen.append((*report, trainer.epochs_done))
            if len(seen) == 7:
                signal.raise_signal(signal.SIGINT)

    def train():
        trainer, inputs, candidates = MAKE(epochs=3, batch_size=16).prepare_training(x, sets)
        trainer.fit(inputs, candidates, [module._ReportEpochs(report), Reading(), checkpoint])
        return trainer.steps_per_epoch

    with pytest.raises(KeyboardInterrupt):
        train()
    steps = train()
    assert seen == [
        (0 if k <= 7 else 7 / steps, k / steps, k / steps) for k in range(1, 3 * steps + 1)
    ]


def test_candidates_reach_the_processes_whole_and_progress_counts_what_was_kept(
    tmp_path, monkeypatch
):
    x, sets, _ = problem()
    sets = sets.with_groups([i // 5 for i in range(60)]).with_weights(
        np.random.default_rng(0).random(len(sets.labels)) + 0.1
    )
    sets = sets.with_answers([1], [[0]])
    seen, kept = [], KeptFolds(tmp_path, "fold-*.x")
    stage = Stage([Part(name, 4) for name in ("one", "two", "three")], 2, "folds")
    kept.write(2, {})

    def in_this_process(function, calls, workers, report):
        for call in calls:
            function(*call)
            report()
            seen.append([part.done for part in stage.parts])

    def train(run, sets, kept, callbacks):
        seen.append((run.classifier.threads, sets))
        callbacks[0].on_resume(SimpleNamespace(epochs_done=1.0))
        callbacks[0].on_step_end(SimpleNamespace(epochs_done=1.5))

    monkeypatch.setattr(module, "in_processes", in_this_process)
    monkeypatch.setattr(module.FoldRun, "train", train)
    progress = Progress(write=lambda line: None)
    progress.plan_stages([stage])
    splits = fold_splits(sets, 3, 0)
    runs = [module.FoldRun(k, MAKE(), x, splits[k], judged) for k in range(3)]
    module.train_in_processes(runs, sets, kept, stage, progress)
    assert seen[1::2] == [[1.5, 0, 4], [1.5, 1.5, 4]]
    for threads, sent in seen[::2]:
        assert threads == 1
        assert sent.classes == sets.classes
        for one, other in ((sent, sets), (sent.observed, sets.observed)):
            for name in ("offsets", "labels", "groups", "weights"):
                assert torch.equal(getattr(one, name), getattr(other, name))
