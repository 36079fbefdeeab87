"""Facts about callbacks: their order, and what progress reports say."""

import itertools
import math
from types import SimpleNamespace

import pytest

from ltpll.errors import InputError
from ltpll.evaluation.during_training import Evaluate
from ltpll.training.callbacks import Callback, Checkpoint, OnEpoch, Progress
from ltpll.training.job import Part, Stage
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
        ("a", "epoch", 1, False), ("b", "epoch", 1, False),
        ("a", "epoch", 2, False), ("b", "epoch", 2, True)
    ]  # fmt: skip


def test_a_checkpoint_is_written_after_all_other_callbacks_and_resuming_is_announced(tmp_path):
    x, _, candidates = toy()
    path, notes = tmp_path / "checkpoint", []

    def fail(record):
        if record["epoch"] == 2:
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError):
        trainer(epochs=3).fit(x, candidates, [Checkpoint(path), OnEpoch(fail)])
    one = trainer(epochs=3).fit(
        x, candidates, [Checkpoint(path), Noting(notes)]
    )  # the second epoch was not saved
    assert ("", "resume", 1) in notes
    assert [note[2] for note in notes if note[1] == "epoch"] == [2, 3]
    assert one.history == trainer(epochs=3).fit(x, candidates).history


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("ltpll.training.callbacks.time.monotonic", lambda: now[0])
    return now


class Ticking(Callback):
    """Lets every step take the same time."""

    def __init__(self, clock, seconds):
        self.clock, self.seconds = clock, seconds

    def on_step_end(self, trainer):
        self.clock[0] += self.seconds


def test_progress_reports_epochs_inside_and_at_their_end_with_both_accuracies_by_their_names(clock):
    x, y, candidates = toy()
    lines = []
    progress = Progress(every_seconds=0, write=lines.append)
    one = trainer(epochs=3).fit(
        x, candidates, [Ticking(clock, 1.0), Evaluate(x[y < 2], y[y < 2]), progress]
    )
    steps, test = one.steps_per_epoch, one.history[-1]["test"]
    assert lines[0].endswith(f"epoch {int(10 / steps) / 10}/3")
    left = 3 * steps - (steps + 2)
    assert any(
        line.startswith(f"{100 * (steps + 2) // (3 * steps)}% · {left} s left · epoch 1.")
        and line.endswith(" views/s")
        for line in lines
    )
    assert (
        f"accuracy {test['accuracy']:.1%} · balanced accuracy {test['balanced_accuracy']:.1%} · "
        in lines[-1]
    )
    assert lines[-1].startswith(
        f"100% · finished in {3 * steps} s · epoch 3/3 · "
        f"loss {one.history[-1]['loss']:.3f} · accuracy"
    )


def test_lines_come_early_then_every_few_seconds_and_rarely_after_a_minute_also_within_an_epoch(
    clock,
):
    lines, times = [], []
    progress = Progress(5.0, lambda line: (lines.append(line), times.append(clock[0])))
    one = Part("training", epochs=2)
    progress.plan_stages([Stage([one])])
    progress.start_part(one)
    while clock[0] < 300:
        clock[0] += 0.25
        progress.report_epochs(2 * clock[0] / 300)
    assert times == [1.0, *range(6, 61, 5), *range(61, 300, 30), 300.0]
    assert lines[3] == "5% · 5 min left · training: epoch 0.1/2"
    assert lines[-1].startswith("100% · finished in 5 min")


def test_a_job_ends_once_and_each_training_with_measured_figures_is_shown(clock):
    lines = []
    progress = Progress(5.0, lines.append)
    finished = SimpleNamespace(epoch=1, epochs=1, threads=SimpleNamespace(number=1))
    parts = [Part("training", 1), Part("fold 1 of 2", 1), Part("fold 2 of 2", 1)]
    progress.plan_stages([Stage(parts[:1]), Stage(parts[1:])])
    for part, figures in zip(parts, ({"test": {"covering_rate": 0.5}}, {}, {}), strict=True):
        progress.start_part(part)
        progress.on_epoch_end(finished, {"loss": 1.0, **figures})
    progress.report_epochs(1)
    assert [line.partition(" · loss")[0] for line in lines] == [
        "33% · training: epoch 1/1",
        "100% · finished in 0 s · fold 2 of 2: epoch 1/1",
    ]
    assert "inside sets 50.0%" in lines[0]


def test_steps_are_reported_a_few_times_per_second_however_the_report_is_shown(clock):
    x, _, candidates = toy()
    updates = []

    class Silent(Progress):
        def show_progress(self, important):
            updates.append(clock[0])

    one = trainer(epochs=3, batch_size=2).fit(x, candidates, [Ticking(clock, 0.05), Silent()])
    assert one.steps_per_epoch > 20
    assert clock[0] / 0.25 - 4 <= len(updates) <= clock[0] / 0.2 + 1
    assert min(later - earlier for earlier, later in itertools.pairwise(updates[:-1])) > 0.19


def test_epochs_that_were_done_before_a_training_resumed_do_not_count_for_its_speed(
    clock, tmp_path
):
    x, _, candidates = toy()
    path, lines = tmp_path / "checkpoint", []

    def stop(record):
        if record["epoch"] == 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        trainer(epochs=30).fit(x, candidates, [Checkpoint(path), OnEpoch(stop)])
    one = trainer(epochs=30)
    one.fit(
        x,
        candidates,
        [Ticking(clock, 1.0), Checkpoint(path), Progress(every_seconds=0, write=lines.append)],
    )
    steps = one.steps_per_epoch
    assert f"% · {10 * steps} s left" not in lines[0]  # one step says nothing about the speed
    for line in lines[1:-1]:
        epoch, left = float(line.split("epoch ")[1].split("/")[0]), line.split(" · ")[1]
        assert 19 <= epoch <= 30
        seconds = {"s": 1, "min": 60}[left.split()[1]] * float(left.split()[0])
        assert (
            abs(seconds - (30 - epoch) * steps) <= 30 + steps
        )  # of rounding to minutes and tenths of an epoch


@pytest.mark.parametrize("wrong", [{"every": 0}, {"min_seconds": -1.0}, {"min_seconds": math.nan}])
def test_a_checkpoint_refuses_intervals_that_make_no_sense(tmp_path, wrong):
    with pytest.raises(InputError, match=next(iter(wrong))):
        Checkpoint(tmp_path / "checkpoint", **wrong)
