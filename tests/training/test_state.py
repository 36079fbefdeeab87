"""A training that stops after any step and is taken up by another trainer ends to the last bit
like one that was not disturbed."""

import signal

import numpy as np
import pytest
from torch import nn

from ltpll.errors import InputError
from ltpll.extras import EXTRAS
from ltpll.methods import METHODS
from ltpll.models import build_model
from ltpll.rebalancers import REBALANCERS
from ltpll.synthetic import uniform_candidates
from ltpll.training.callbacks import Checkpoint
from ltpll.training.checkpoint import has_checkpoint, read_checkpoint
from support.refusals import refusal
from support.toy_training import OnResume, assert_same, classifier, everything, toy, trainer


def made():
    """Random numbers everywhere: views drawn for two of four steps at once, mixup inside the
    steps, dropout from torch's own."""
    model = classifier(nn.Sequential(nn.Linear(2, 8), nn.Dropout(0.2)))
    return trainer("corr", REBALANCERS["records"](), [EXTRAS["mixup"]()], model=model, chunk=64)


@pytest.fixture
def handled():
    """Handlers for signals that last as long as a test."""
    before = {}

    def handle(number, handler):
        before[number] = signal.signal(number, handler)

    yield handle
    for number, handler in before.items():
        signal.signal(number, handler)


def signal_in_step(one, number, step=None):
    """Send this process a signal in the given step, or in every one."""
    taken, original = 0, one.step

    def watched(*given):
        nonlocal taken
        taken += 1
        if step in (None, taken):
            signal.raise_signal(number)
        return original(*given)

    one.step = watched


@pytest.mark.parametrize("step", range(1, 13))
def test_a_signal_is_heard_after_any_step_and_training_goes_on_to_the_same_end(
    tmp_path, handled, step
):
    x, _, candidates = toy()
    whole, first = made().fit(x, candidates), made()
    signal_in_step(first, signal.SIGINT, step)
    handled(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt):
        first.fit(x, candidates, [Checkpoint(tmp_path / "checkpoint", 100)])
    values = read_checkpoint(tmp_path / "checkpoint")[1]
    assert 4 * values["epoch"] + values["step"] == step
    told = []
    second = made().fit(
        x,
        candidates,
        [OnResume(told), Checkpoint(tmp_path / "checkpoint")],
    )
    assert told == [values["epoch"]]
    assert second.history == whole.history
    assert_same(everything(second), everything(whole))


def test_a_handler_that_returns_lets_training_go_on_as_if_nobody_had_asked(tmp_path, handled):
    x, _, candidates = toy()
    written = []
    handled(
        signal.SIGTERM,
        lambda number, frame: written.append(has_checkpoint(tmp_path / "checkpoint")),
    )
    one = made()
    signal_in_step(one, signal.SIGTERM)
    one.fit(x, candidates, [Checkpoint(tmp_path / "checkpoint")])
    assert written == [True] * 12
    assert one.history == made().fit(x, candidates).history


def test_without_a_checkpoint_a_signal_does_not_wait(handled):
    x, _, candidates = toy()
    one = made()
    signal_in_step(one, signal.SIGINT, 6)
    handled(signal.SIGINT, signal.default_int_handler)
    with pytest.raises(KeyboardInterrupt):
        one.fit(x, candidates)
    assert (one.epoch, len(one.history)) == (1, 1)


def test_a_network_that_starts_anew_does_so_from_the_beginning_in_the_checkpoint(
    tmp_path,
):
    """SoLar's second stage begins with the first network, though the trainer that gets there was
    given another."""
    x, _, candidates = toy()

    def solar(seed):
        model = build_model("mlp", seed, n_inputs=2, n_classes=4, hidden=(8,))
        return trainer(METHODS["solar"](estimation_epochs=2), model=model, epochs=4)

    whole, first = solar(0).fit(x, candidates), solar(0)
    first.prepare(x, candidates)
    first.history.append(first.train_epoch())
    first.save(tmp_path / "checkpoint")
    second = solar(1).fit(x, candidates, [Checkpoint(tmp_path / "checkpoint")])
    assert second.history == whole.history
    kept = read_checkpoint(tmp_path / "checkpoint")[0]
    assert not any(name.startswith("initial.") for name in kept)  # which nobody needs any more


# ---- refusing what is not this training's --------------------------------------------------------


def test_a_checkpoint_of_other_parts_data_or_networks_is_refused(tmp_path):
    x, y, candidates = toy()
    path = tmp_path / "checkpoint"
    trainer().fit(x, candidates, [Checkpoint(path)])
    others = {
        "was made with other parts ({'extras': []": (trainer("cavl"), x, candidates),
        "other training data (": (
            trainer(),
            x[:-5],
            candidates.select(range(len(x) - 5)),
        ),
        "was made with other training data": (
            trainer(),
            x,
            uniform_candidates(np.roll(y, 1), 4, 0.5, seed=0),
        ),
        "differ in model.": (
            trainer(model=build_model("mlp", 0, n_inputs=2, n_classes=4, hidden=(9,))),
            x,
            candidates,
        ),
        "differ in optimizer.0.momentum_buffer": (trainer(momentum=0.0), x, candidates),
    }
    for reason, (one, rows, sets) in others.items():
        one.prepare(rows, sets)
        before = everything(one)
        assert reason in refusal(
            lambda one=one, rows=rows, sets=sets: one.fit(rows, sets, [Checkpoint(path)])
        )
        assert one.epoch == 0
        assert_same(everything(one), before)


def test_a_checkpoint_of_a_training_with_other_weights_is_refused(tmp_path):
    x, _, candidates = toy()
    weights = np.random.default_rng(0).random(len(candidates.labels)) + 0.1
    trainer().fit(x, candidates.with_weights(weights), [Checkpoint(tmp_path / "checkpoint")])
    for other in (candidates, candidates.with_weights(weights**2)):
        message = refusal(
            lambda other=other: trainer(epochs=4).fit(
                x, other, [Checkpoint(tmp_path / "checkpoint")]
            )
        )
        assert "other training data" in message
    assert (
        trainer(epochs=4)
        .fit(x, candidates.with_weights(weights), [Checkpoint(tmp_path / "checkpoint")])
        .epoch
        == 4
    )


def test_a_checkpoint_of_another_kind_of_device_is_refused(tmp_path):
    x, _, candidates = toy()
    one = trainer()
    one.prepare(x, candidates)
    tensors = one.state.tensors()
    values = {
        "epoch": 0,
        "step": 0,
        "history": [],
        "parts": one.state.parts,
        "device": "cuda",
        "data": one.state.fingerprint,
    }
    assert (
        one.state.mismatch(tensors, values)
        == "was made with another device, whose random numbers differ ('cuda', not cpu)"
    )
    assert one.state.mismatch(tensors, values | {"device": "cpu"}) == ""


def test_a_checkpoint_from_the_middle_of_an_epoch_is_refused_where_batches_are_others(tmp_path):
    x, _, candidates = toy()
    one = trainer()
    one.prepare(x, candidates)
    one.train_epoch(interrupted=lambda: True)
    one.save(tmp_path / "checkpoint")
    assert "in the middle of an epoch" in refusal(
        lambda: trainer(batch_size=16).fit(x, candidates, [Checkpoint(tmp_path / "checkpoint")])
    )


def test_a_place_for_checkpoints_that_takes_none_is_refused_before_the_first_step(tmp_path):
    x, _, candidates = toy()
    (tmp_path / "taken").write_text("precious")
    one = trainer()
    one.step = None  # which would fail otherwise
    with pytest.raises(
        InputError, match=r"taken cannot be written .*: free some space or choose another place"
    ):
        one.fit(x, candidates, [Checkpoint(tmp_path / "taken" / "checkpoint")])
