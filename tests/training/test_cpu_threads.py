import json
import os
import subprocess
import sys
import time

import pytest
import torch
from torch import nn

from ltpll.errors import InputError
from ltpll.estimator import PartialLabelClassifier
from ltpll.rebalancers import REBALANCERS
from ltpll.runs.run import Run
from ltpll.training import cpu_threads as threads
from ltpll.training.callbacks import Checkpoint, OnEpoch
from ltpll.training.checkpoint import read_checkpoint
from ltpll.training.cpu_threads import CHANGE_GAIN, START_GAIN, Threads, faster, seconds_per_pass
from ltpll_research.recording import record_training
from support.processes import environment_of_tests
from support.toy_training import assert_same, classifier, everything, toy, trainer


@pytest.fixture
def two(monkeypatch):
    """As for a user with two cores who has said nothing."""
    for name in threads.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(threads, "AT_IMPORT", 2)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def pretend(monkeypatch, one, two):
    """Measurements that come to these seconds; returns a list of what was measured."""
    measured = []

    def seconds(numbers, passes, most_rows):
        measured.append(list(numbers))
        return {number: one if number == 1 else two for number in numbers}

    monkeypatch.setattr(threads, "seconds_per_pass", seconds)
    return measured


def in_use_during(one, *callbacks):
    """The numbers of threads that torch had in the epochs of a training."""
    x, _, candidates = toy()
    seen = []
    one.fit(
        x, candidates, [OnEpoch(lambda record: seen.append(torch.get_num_threads())), *callbacks]
    )
    return seen


# ---- deciding ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seconds", "current", "times", "expected"),
    [
        ({1: 1.0, 2: 30.0}, 1, START_GAIN, 1),
        ({1: 1.0, 2: 0.9}, 1, START_GAIN, 1),  # not worth a second core
        ({1: 1.0, 2: 0.6}, 1, START_GAIN, 2),
        ({1: 1.0, 2: 30.0}, 2, CHANGE_GAIN, 1),
        ({1: 1.0, 2: 1.2}, 2, CHANGE_GAIN, 2),  # not worth other roundings
        ({1: 1.0, 4: 0.4, 16: 0.3}, 4, CHANGE_GAIN, 4),
        ({1: 1.0, 4: 0.4, 16: 0.1}, 4, CHANGE_GAIN, 16),
    ],
)
def test_a_number_of_threads_is_left_for_one_that_is_clearly_faster(
    seconds, current, times, expected
):
    assert faster(seconds, current, times) == expected


@pytest.mark.parametrize(("slow", "expected"), [(2, 1), (1, 2)])
def test_the_faster_number_is_measured(two, slow, expected):
    def passes(rows):
        time.sleep(0.002 if torch.get_num_threads() == slow else 0.0005)

    assert faster(seconds_per_pass([1, 2], passes, 64), slow, CHANGE_GAIN) == expected


def test_a_network_that_takes_long_is_measured_with_few_rows(two):
    asked = []

    def passes(rows):
        asked.append(rows)
        time.sleep(0.001 * rows)

    seconds_per_pass([1, 2], passes, 4096)
    assert max(asked) <= 8
    asked.clear()
    seconds_per_pass([1, 2], lambda rows: asked.append(rows), 300)
    assert max(asked) == 300


# ---- a training ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("seconds_of_two", "expected"), [(30.0, 1), (0.5, 2)])
def test_a_training_uses_the_faster_number_and_puts_the_old_one_back(
    two, monkeypatch, seconds_of_two, expected
):
    measured = pretend(monkeypatch, 1.0, seconds_of_two)
    one = trainer()
    assert in_use_during(one) == [expected] * 3
    assert one.threads.number == expected
    assert measured == [[1, 2]]  # once, however many epochs there are
    assert torch.get_num_threads() == 2


def test_the_old_number_is_put_back_after_an_error(two, monkeypatch):
    pretend(monkeypatch, 1.0, 30.0)
    x, _, candidates = toy()

    def fail(record):
        assert torch.get_num_threads() == 1
        raise RuntimeError("of the user")

    with pytest.raises(RuntimeError, match="of the user"):
        trainer().fit(x, candidates, [OnEpoch(fail)])
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("variable", threads.VARIABLES)
def test_what_the_environment_says_is_obeyed(two, monkeypatch, variable):
    monkeypatch.setenv(variable, "2")
    measured = pretend(monkeypatch, 1.0, 30.0)
    assert in_use_during(trainer()) == [2] * 3
    assert not measured


def test_what_torch_was_told_is_obeyed(two, monkeypatch):
    measured = pretend(monkeypatch, 1.0, 30.0)
    torch.set_num_threads(3)
    assert in_use_during(trainer()) == [3] * 3
    assert not measured
    assert torch.get_num_threads() == 3


def test_a_number_that_is_given_goes_before_everything_else(two, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    measured = pretend(monkeypatch, 1.0, 0.1)
    assert in_use_during(trainer(threads=1)) == [1] * 3
    assert not measured
    assert torch.get_num_threads() == 2


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "all"])
def test_a_number_that_is_none_is_refused(wrong):
    with pytest.raises(InputError, match="threads is"):
        Threads(wrong)


def test_the_classifier_hands_its_number_on(two):
    x, _, candidates = toy()
    seen = []
    model = PartialLabelClassifier(
        epochs=2,
        threads=1,
        device="cpu",
        on_epoch=lambda record: seen.append(torch.get_num_threads()),
    )
    model.fit(x, candidates)
    assert seen == [1, 1]


def test_a_network_that_cannot_be_measured_is_trained_with_all_threads(two):
    class Whole(nn.Linear):
        def forward(self, x):
            if len(x) != 32:
                raise ValueError("not a whole batch")
            return super().forward(x)

    assert in_use_during(trainer(model=classifier(Whole(2, 8)))) == [2] * 3


# ---- what it must not change ---------------------------------------------------------------------


def test_measuring_changes_nothing():
    """Neither weights, statistics and momenta, nor any random state."""
    model = classifier(nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Dropout(0.2)))
    one = trainer("corr", REBALANCERS["records"](), model=model)
    x, _, candidates = toy()
    one.prepare(x, candidates)
    one.train_epoch()
    before = {name: value.clone() for name, value in one.state.tensors().items()}
    own, training = torch.get_rng_state(), model.training
    seconds_per_pass([1], one._timed_pass(), 32)
    assert_same(one.state.tensors(), before)
    assert torch.equal(torch.get_rng_state(), own)
    assert model.training == training


def test_a_training_that_measures_ends_like_one_that_was_told(two):
    x, _, candidates = toy()
    measured = trainer("corr").fit(x, candidates)
    told = trainer("corr", threads=measured.threads.number).fit(x, candidates)
    assert_same(everything(measured), everything(told))
    assert measured.history == told.history


# ---- resuming and recording ----------------------------------------------------------------------


@pytest.mark.parametrize(("seconds_of_two", "expected"), [(0.9, 2), (1.4, 2), (2.0, 1)])
def test_a_training_goes_on_with_its_number_unless_that_is_far_slower_now(
    two, monkeypatch, tmp_path, seconds_of_two, expected
):
    x, _, candidates = toy()
    pretend(monkeypatch, 1.0, 0.5)
    trainer(epochs=1).fit(x, candidates, [Checkpoint(tmp_path / "checkpoint")])
    assert read_checkpoint(tmp_path / "checkpoint")[1]["threads"] == 2
    pretend(monkeypatch, 1.0, seconds_of_two)
    assert in_use_during(trainer(epochs=3), Checkpoint(tmp_path / "checkpoint")) == [expected] * 2


@pytest.mark.parametrize("number", [64, 10**12, -3])
def test_a_number_from_another_machine_or_a_foreign_file_is_not_used(
    two, monkeypatch, tmp_path, number
):
    x, _, candidates = toy()
    first = trainer(epochs=1)
    first.fit(x, candidates)
    first.threads.number = number
    first.save(tmp_path / "checkpoint")
    measured = pretend(monkeypatch, 1.0, 2.0)
    assert in_use_during(trainer(epochs=3), Checkpoint(tmp_path / "checkpoint")) == [1] * 2
    assert measured == [[1, 2]]


def test_the_record_has_the_number_that_was_used(two, tmp_path):
    from ltpll.evaluation.during_training import Evaluate

    x, y, candidates = toy()
    run = Run(tmp_path, {"seed": 0, "method": "proden", "rebalancer": "none"})
    record_training(run, trainer(threads=1), x, candidates, Evaluate(x, y, y))
    assert run.result()["environment"]["threads"] == 1


# ---- beside other jobs ---------------------------------------------------------------------------

BESIDE_OTHERS = """
import json, os, subprocess, sys, time
import numpy as np, torch
from ltpll.estimator import PartialLabelClassifier

rng = np.random.default_rng(0)
x, y = rng.normal(size=(3000, 64)).astype("float32"), rng.integers(0, 10, 3000)

def seconds(threads):
    ends = []
    note = lambda record: ends.append(time.perf_counter())
    PartialLabelClassifier(epochs=4, threads=threads, device="cpu", on_epoch=note).fit(x, y)
    return ends[-1] - ends[0]

seconds(1)
busy = f"import os\\nwhile os.getppid() == {os.getpid()}: pass"  # and not longer than this process
cores = range(len(os.sched_getaffinity(0)))
others = [subprocess.Popen([sys.executable, "-c", busy]) for _ in cores]
try:
    time.sleep(0.5)
    for _ in range(3):
        found = {"one": seconds(1), "chosen": seconds("auto"), "threads": torch.get_num_threads()}
        if found["chosen"] < 3 * found["one"]:
            break
finally:
    for other in others:
        other.kill()
        other.wait()
print(json.dumps(found))
"""


@pytest.mark.reliability
@pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2,
    reason="one core has one thread",
)
def test_beside_other_jobs_the_default_is_not_far_slower_than_one_thread():
    """With all threads it was ten to thirty times slower: each waits for the one whose core is
    busy with another job."""
    environment = environment_of_tests()
    for name in (*threads.VARIABLES, "OMP_WAIT_POLICY"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-c", BESIDE_OTHERS],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found["chosen"] < 3 * found["one"], found
    assert found["threads"] > 1  # put back
