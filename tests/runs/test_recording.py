"""Runs that are recorded while they train: their log, their checkpoints, and their record."""

import os
import signal

import pytest
import torch

from ltpll.errors import CheckpointWarning
from ltpll.evaluation.during_training import Evaluate
from ltpll.methods import METHODS
from ltpll.models import build_model
from ltpll.priors import estimate_prior
from ltpll.rebalancers import REBALANCERS
from ltpll.runs.recording import round_floats
from ltpll.runs.run import Run
from ltpll.synthetic import four_squares, uniform_candidates
from ltpll.training import state as resuming
from ltpll.training.callbacks import OnEpoch
from ltpll.training.trainer import PartialLabelTrainer
from ltpll_research.recording import (
    CURVE_POINTS,
    record_curves,
    record_snapshots,
    record_training,
)
from ltpll_research.schema import check_record
from support.refusals import refusal


def record(run, *, stop_after=None, checkpoint_every=2, rebalancer="records", **more):
    x, y = four_squares([10, 20, 40, 80], seed=0)
    model = build_model("mlp", 0, n_inputs=2, n_classes=4, hidden=(8,))
    trainer = PartialLabelTrainer(
        model,
        METHODS["proden"](),
        REBALANCERS[rebalancer](),
        epochs=7,
        batch_size=32,
        lr=0.1,
        device="cpu",
    )

    def stop(epoch_record):
        if epoch_record["epoch"] == stop_after:
            raise KeyboardInterrupt

    candidates = uniform_candidates(y, 4, 0.5, seed=0)
    record_training(
        run,
        trainer,
        x,
        candidates,
        Evaluate(x, y, y),
        checkpoint_every=checkpoint_every,
        callbacks=[OnEpoch(stop)],
        note="kept",
        **more,
    )
    return trainer


def untimed(records):
    return [
        {
            key: value
            for key, value in one.items()
            if key not in ("seconds", "evaluation_seconds", "views_per_second")
        }
        for one in records
    ]


def test_a_log_cut_off_in_a_line_or_ahead_of_the_checkpoint_is_made_good(tmp_path):
    whole, run = Run(tmp_path / "whole", {"seed": 0}), Run(tmp_path / "cut", {"seed": 0})
    record(whole)
    with pytest.raises(KeyboardInterrupt):
        record(run, stop_after=3)
    with (run.folder / "metrics.jsonl").open("a") as file:
        file.write('{"epoch": 4, "lo')
    assert [one["epoch"] for one in run.records()] == [1, 2, 3]
    (run.folder / ".result.json.17.tmp").write_text("what a killed process left")
    record(run)
    assert untimed(run.records()) == untimed(whole.records())
    assert not list(run.folder.glob("*.tmp"))


def test_a_damaged_checkpoint_is_warned_of_and_the_one_before_it_is_used_with_its_log(tmp_path):
    whole, run = Run(tmp_path / "whole", {"seed": 0}), Run(tmp_path / "cut", {"seed": 0})
    record(whole)
    with pytest.raises(KeyboardInterrupt):
        record(run, stop_after=5)
    newest = run.folder / "checkpoint.safetensors"
    newest.write_bytes(newest.read_bytes()[:-100])
    with pytest.warns(
        CheckpointWarning,
        match=r"safetensors is damaged \(.*\): it was renamed to checkpoint.refused.safetensors",
    ):
        record(run)
    assert untimed(run.records()) == untimed(whole.records())
    assert run.result()["last"] == whole.result()["last"]


def test_of_many_classes_only_the_last_epoch_keeps_the_figures_of_each(tmp_path, monkeypatch):
    few, many = (
        Run(tmp_path / name, {"method": "proden", "rebalancer": "records", "seed": 0})
        for name in ("few", "many")
    )
    record(few)
    monkeypatch.setattr(resuming, "LONG_LIST", 3)  # there are four classes
    with pytest.raises(KeyboardInterrupt):
        record(many, stop_after=5)
    trainer = record(many)
    assert ["per_class" in one["test"] for one in trainer.history] == [False] * 6 + [True]
    assert not any(
        "mean_target" in one or "mean_prediction" in one["test"] for one in many.records()
    )
    one, other = few.result(), many.result()
    assert one["last"] == other["last"]
    assert one["curves"] == other["curves"]
    assert other["snapshots"]["epoch"] == [7]
    check_record(other)


def test_two_damaged_checkpoints_are_refused_in_one_sentence_and_left_alone(tmp_path):
    run = Run(tmp_path, {"seed": 0})
    with pytest.raises(KeyboardInterrupt):
        record(run, stop_after=5)
    paths = [run.folder / "checkpoint.safetensors", run.folder / "checkpoint.previous.safetensors"]
    for path in paths:
        path.write_bytes(b"nothing")
    message = refusal(lambda: record(run))
    assert f"{paths[0]} is damaged" in message
    assert message.endswith("use a copy or another path, or start a run again with --fresh.")
    assert all(path.read_bytes() == b"nothing" for path in paths)


def test_a_log_that_lacks_epochs_of_its_checkpoint_is_refused(tmp_path):
    run = Run(tmp_path, {"seed": 0})
    with pytest.raises(KeyboardInterrupt):
        record(run, stop_after=5)
    lines = (run.folder / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    (run.folder / "metrics.jsonl").write_bytes(b"".join(lines[:3]))
    assert "is damaged or lacks epochs: train" in refusal(lambda: record(run))


def test_the_seconds_of_an_epoch_are_those_of_every_process_that_worked_on_it(
    tmp_path, monkeypatch
):
    """Two seconds in one process and three in another, by a clock that stands still otherwise."""
    now = 0.0
    monkeypatch.setattr("time.perf_counter", lambda: now)
    before = signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # which tests in the background do not have
    steps, original = 0, PartialLabelTrainer.step

    def step(self, *given):
        nonlocal now, steps
        now, steps = now + 1, steps + 1
        if steps == 6:  # of four an epoch
            os.kill(os.getpid(), signal.SIGINT)
        return original(self, *given)

    monkeypatch.setattr(PartialLabelTrainer, "step", step)
    run = Run(tmp_path, {"seed": 0})
    with pytest.raises(KeyboardInterrupt):
        record(run, checkpoint_every=1)
    signal.signal(signal.SIGINT, before)
    now = 1000.0
    record(run, checkpoint_every=1)
    assert [one["seconds"] for one in run.records()] == [4.0] * 7
    assert run.result()["views_per_second"] == 32


@pytest.mark.parametrize("stop_after", [1, 2, 3, 4, 6])
def test_an_interrupted_run_ends_with_the_records_of_an_undisturbed_one(tmp_path, stop_after):
    whole = Run(tmp_path / "whole", {"seed": 0})
    trained = record(whole)
    run = Run(tmp_path / "cut", {"seed": 0})
    with pytest.raises(KeyboardInterrupt):
        record(run, stop_after=stop_after)
    assert not run.done
    again = record(run)
    assert run.done
    assert untimed(run.records()) == untimed(whole.records())
    for name in ("last", "best", "curves", "note"):
        assert run.result()[name] == whole.result()[name]
    assert torch.equal(again.targets.values, trained.targets.values)


def test_the_record_has_the_prior_that_the_rebalancer_estimates_also_after_an_interruption(
    tmp_path,
):
    _, y = four_squares([10, 20, 40, 80], seed=0)
    expected = estimate_prior(uniform_candidates(y, 4, 0.5, seed=0))
    settings = {"method": "proden", "rebalancer": "anchor", "seed": 0}
    whole, cut, without = (
        Run(tmp_path / "whole", settings),
        Run(tmp_path / "cut", settings),
        Run(tmp_path / "without", settings),
    )
    record(whole, rebalancer="anchor")
    with pytest.raises(KeyboardInterrupt):
        record(cut, rebalancer="anchor", stop_after=3)
    record(cut, rebalancer="anchor")
    record(without)
    prior = whole.result()["prior"]
    assert prior == cut.result()["prior"]
    assert prior["estimate"] == pytest.approx(expected.estimate.tolist(), abs=1e-6)
    assert prior["upper"] == pytest.approx(expected.upper.tolist(), abs=1e-6)
    assert prior["regime"] == expected.regime
    assert "prior" not in without.result()
    check_record(whole.result())


def test_without_checkpoints_an_interrupted_run_starts_anew(tmp_path):
    run = Run(tmp_path, {"seed": 0})
    with pytest.raises(KeyboardInterrupt):
        record(run, stop_after=3, checkpoint_every=0)
    record(run, checkpoint_every=0)
    assert [one["epoch"] for one in run.records()] == list(range(1, 8))


def test_seconds_and_speed_come_from_the_epochs(tmp_path):
    run = Run(tmp_path, {"seed": 0})
    record(run)
    assert run.result()["seconds"] == pytest.approx(
        sum(one["seconds"] for one in run.records()), abs=0.01
    )
    training = sorted(one["seconds"] - one.get("evaluation_seconds", 0) for one in run.records())
    assert run.result()["views_per_second"] == pytest.approx(
        128 / training[3], rel=0.01
    )  # 4 batches of 32, one view, median of 7


def test_the_speed_counts_training_alone_and_the_seconds_everything(tmp_path, monkeypatch):
    """A clock that stands still except for one second in every step and ten in every evaluation."""
    now = 0.0
    monkeypatch.setattr("time.perf_counter", lambda: now)
    step, measure = PartialLabelTrainer.step, Evaluate.measure

    def slow(original, seconds):
        def call(self, *given):
            nonlocal now
            now += seconds
            return original(self, *given)

        return call

    monkeypatch.setattr(PartialLabelTrainer, "step", slow(step, 1))
    monkeypatch.setattr(Evaluate, "measure", slow(measure, 10))
    run = Run(tmp_path, {"seed": 0})
    record(run)
    assert [
        (one["seconds"], one["evaluation_seconds"], one["views_per_second"])
        for one in run.records()
    ] == [(14.0, 10.0, 32)] * 7
    assert (run.result()["seconds"], run.result()["views_per_second"]) == (98.0, 32)


def test_rounding_keeps_structure_and_everything_but_floats():
    assert round_floats({"a": [0.12345678, 1, None, "x"], "b": (True, {"c": 2.0})}) == {
        "a": [0.123457, 1, None, "x"],
        "b": [True, {"c": 2.0}],
    }


def test_a_run_counts_only_when_everything_that_belongs_to_it_is_written(tmp_path):
    run = Run(tmp_path, {"seed": 0})

    def fail():
        assert not run.done
        raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        record(run, before_done=fail)
    assert not run.done
    record(run, before_done=lambda: (run.folder / "more").touch())
    assert run.done
    assert (run.folder / "more").exists()


def test_snapshots_are_evenly_spread_and_end_with_the_last():
    history = [
        {"epoch": epoch, "loss": 1.0}
        | ({"test": {"mean_prediction": [epoch / 100]}} if epoch % 2 == 0 else {})
        for epoch in range(1, 41)
    ]
    kept = record_snapshots(history, ["test"])
    assert kept["epoch"] == [4, 10, 14, 20, 24, 30, 34, 40]
    assert kept["mean_prediction"]["test"] == [[epoch / 100] for epoch in kept["epoch"]]
    assert record_snapshots(history[:5], ["test"])["epoch"] == [2, 4]


def test_snapshots_leave_out_epochs_that_have_details_only_because_they_were_the_best_so_far():
    history = [
        {
            "epoch": epoch,
            "test": {"mean_prediction": [0.0]} if epoch % 10 == 0 or epoch < 30 else {},
        }
        for epoch in range(1, 81)
    ]
    assert record_snapshots(history, ["test"], every=10)["epoch"] == [
        10,
        20,
        30,
        40,
        50,
        60,
        70,
        80,
    ]


@pytest.mark.parametrize(
    ("n", "every", "expected"),
    [(7, 1, 1), (120, 1, 1), (200, 1, 2), (800, 1, 10), (1100, 1, 10), (800, 10, 10), (805, 1, 10)],
)
def test_curves_hold_the_last_epoch_and_round_numbers_of_epochs_that_do_not_depend_on_the_run(
    n, every, expected
):
    history = [
        {"epoch": epoch, "loss": 1.0, "test": {"balanced_accuracy": epoch / n}}
        for epoch in range(1, n + 1)
        if epoch % every == 0
    ]
    curves = record_curves(history, ["test"])
    assert curves["epoch"] == sorted({*range(expected, n + 1, expected), n})
    assert len(curves["epoch"]) <= CURVE_POINTS + 1
    assert curves["accuracy"]["test"] == [round(epoch / n, 6) for epoch in curves["epoch"]]


def test_a_finished_run_that_has_lost_its_result_gets_the_same_from_its_checkpoint(tmp_path):
    run = Run(tmp_path, {"seed": 0})
    record(run)
    before = run.result()
    (run.folder / "result.json").unlink()
    assert not run.done
    trained = record(run)
    assert trained.history[-1]["epoch"] == 7
    assert run.done
    for name in ("last", "best", "curves", "note"):
        assert run.result()[name] == before[name]
