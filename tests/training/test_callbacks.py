"""Facts about callbacks: their order, and what progress reports say."""

import math

import pytest

from ltpll.errors import InputError
from ltpll.evaluation.during_training import Evaluate
from ltpll.training.callbacks import Callback, Checkpoint, OnEpoch, Progress
from support.toy_training import toy, trainer


class Noting(Callback):
    def __init__(self, notes, name=""):
        self.notes, self.name = notes, name

    def on_train_begin(self, trainer):
        self.notes.append((self.name, "begin"))

    def on_resume(self, trainer):
        self.notes.append((self.name, "resume", trainer.epoch))

    def on_step_end(self, trainer):
        self.notes.append((self.name, "step", trainer.epoch, trainer.step_of_epoch))

    def on_epoch_end(self, trainer, record):
        self.notes.append((self.name, "epoch", record["epoch"], "test" in record))


def test_hooks_are_called_in_the_order_of_training_and_of_the_list():
    x, y, candidates = toy()
    notes, one = [], trainer(epochs=2)
    one.fit(x, candidates, [Noting(notes, "a"), Evaluate(x, y, every=2), Noting(notes, "b")])
    steps = one.steps_per_epoch
    assert notes[:2] == [("a", "begin"), ("b", "begin")]
    assert [note for note in notes if note[1] == "step" and note[0] == "a"] == [
        ("a", "step", epoch, step) for epoch in range(2) for step in range(1, steps + 1)
    ]
    assert [note for note in notes if note[1] == "epoch"] == [
        ("a", "epoch", 1, False), ("b", "epoch", 1, False), ("a", "epoch", 2, False), ("b", "epoch", 2, True)
    ]  # fmt: skip


def test_a_checkpoint_is_written_after_all_other_callbacks_and_resuming_is_announced(tmp_path):
    x, _, candidates = toy()
    path, notes = tmp_path / "checkpoint", []

    def fail(record):
        if record["epoch"] == 2:
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError):
        trainer(epochs=3).fit(x, candidates, [Checkpoint(path), OnEpoch(fail)])
    one = trainer(epochs=3).fit(x, candidates, [Checkpoint(path), Noting(notes)])  # the second epoch was not saved
    assert ("", "resume", 1) in notes
    assert [note[2] for note in notes if note[1] == "epoch"] == [2, 3]
    assert one.history == trainer(epochs=3).fit(x, candidates).history


def test_progress_reports_epochs_inside_and_at_their_end_with_the_time_left(monkeypatch):
    x, y, candidates = toy()
    clock = iter(range(10**6))
    monkeypatch.setattr("ltpll.training.callbacks.time.monotonic", lambda: float(next(clock)))
    lines = []
    one = trainer(epochs=3).fit(x, candidates, [Evaluate(x, y), Progress(every_seconds=0, write=lines.append)])
    steps = one.steps_per_epoch
    assert lines[0].startswith(f"epoch {1 / steps:.2f}/3")
    assert any(line.startswith(f"epoch {1 + 2 / steps:.2f}/3 · loss") and line.endswith("views/s") for line in lines)
    assert lines[-1].startswith(f"epoch 3/3 · loss {one.history[-1]['loss']:.3f} · accuracy")
    assert "0 s left" in lines[-1]


def test_the_time_left_is_the_pace_times_the_epochs_that_remain_and_follow(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("ltpll.training.callbacks.time.monotonic", lambda: now[0])
    lines = []
    progress = Progress(0, lines.append, epochs=10, later_epochs=20, name="training")
    for epoch in (1, 2, 3):
        now[0] += 7.0
        progress.update(epoch, {"epoch": epoch, "loss": 1.0})
    assert lines[-1] == "training: epoch 3/10 · loss 1.000 · 3 min left"  # 27 epochs of 7 seconds


def test_progress_prints_no_more_often_than_it_was_asked_to(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("ltpll.training.callbacks.time.monotonic", lambda: now[0])
    lines = []
    progress = Progress(10.0, lines.append, epochs=100)
    for epoch in range(1, 101):
        now[0] += 1.0
        progress.update(epoch)
    assert len(lines) == 10
    assert lines[-1].startswith("epoch 100/100")


def test_steps_are_reported_at_most_twice_a_second_however_the_report_is_shown(monkeypatch):
    x, _, candidates = toy()
    clock = iter(0.1 * tick for tick in range(10**6))
    monkeypatch.setattr("ltpll.training.callbacks.time.monotonic", lambda: next(clock))
    updates = []

    class Silent(Progress):
        def show(self, done):
            updates.append(done)

    one = trainer(epochs=3, batch_size=2).fit(x, candidates, [Silent()])
    assert one.steps_per_epoch > 20
    assert len(updates) < 3 * one.steps_per_epoch / 3


@pytest.mark.parametrize("wrong", [{"every": 0}, {"min_seconds": -1.0}, {"min_seconds": math.nan}])
def test_a_checkpoint_refuses_intervals_that_make_no_sense(tmp_path, wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        Checkpoint(tmp_path / "checkpoint", **wrong)
