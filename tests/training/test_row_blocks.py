"""Row blocks: a step that computes losses for a few rows at a time is the same step."""

import math

import numpy as np
import pytest
import torch

from ltpll.candidates import Candidates
from ltpll.errors import NotFiniteError
from ltpll.extras import SFN
from ltpll.interfaces import Outputs
from ltpll.methods import CORR, LW, PRODEN
from ltpll.models import build_model
from ltpll.rebalancers import RECORDS, Anchor, EpochRECORDS, NoRebalancing
from ltpll.targets import initial_targets
from ltpll.training import row_blocks
from ltpll.training.lockstep import LockstepTrainer
from ltpll.training.row_blocks import backward_in_blocks, rows_of_block, views_of
from ltpll.training.trainer import PartialLabelTrainer
from ltpll.views import Jitter, Views
from training.test_lockstep import fittings, states

N, C = 60, 5


@pytest.fixture
def in_blocks(monkeypatch):
    """Blocks of three rows of five classes."""
    return lambda: monkeypatch.setattr(row_blocks, "VALUES", -(-3 * C // torch.get_num_threads()))


def problem(weighted=False, even=False):
    rng = np.random.default_rng(0)
    y = rng.integers(0, C, N)
    wrong = (y[:, None] + np.arange(C)) % C < 2 if even else rng.random((N, C)) < 0.4
    matrix = (np.arange(C) == y[:, None]) | (wrong & ~even)
    if even:
        matrix |= np.arange(C) == (y[:, None] + 1) % C
    sets = Candidates.from_matrix(matrix)
    if weighted:
        sets = sets.with_weights(rng.random(len(sets.labels)) + 0.1)
    return torch.from_numpy(rng.normal(size=(N, 4)) + y[:, None]), sets


def trainer(method, rebalancer, **how):
    model = build_model("mlp", 0, n_inputs=4, n_classes=C, hidden=(6,)).double()
    views = Views(weak=(Jitter(0.05),), strong=(Jitter(0.2, 0.1),))
    options = {"epochs": 3, "batch_size": 16, "lr": 0.2, "device": "cpu", "views": views, **how}
    return PartialLabelTrainer(model, method, rebalancer, **options)


@pytest.mark.parametrize("data", [{}, {"weighted": True}, {"even": True}])
@pytest.mark.parametrize("rebalancer", [NoRebalancing, RECORDS, EpochRECORDS, Anchor])
@pytest.mark.parametrize("method", [PRODEN, CORR, lambda: CORR("original")])
def test_a_training_in_blocks_is_the_training(method, rebalancer, data, in_blocks):
    found = []
    for is_in_blocks in (False, True):
        if is_in_blocks:
            in_blocks()
        one = trainer(method(), rebalancer()).fit(*problem(**data))
        assert one._steps_in_blocks(16) == is_in_blocks
        found.append((states(one), one.history[-1]["loss"]))
    for name, value in found[0][0].items():
        torch.testing.assert_close(found[1][0][name], value, rtol=1e-9, atol=1e-9, msg=name)
    assert found[1][1] == pytest.approx(found[0][1], rel=1e-9)


def test_networks_in_lockstep_train_in_blocks_of_all_networks(in_blocks):
    together, blocked = LockstepTrainer(fittings()), LockstepTrainer(fittings())
    together.fit_all()
    in_blocks()
    blocked.fit_all()
    assert blocked._steps_in_blocks(16)
    assert rows_of_block(4, blocked._together) == len(fittings())
    for name, value in states(together).items():
        torch.testing.assert_close(states(blocked)[name], value, rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.parametrize(
    "how",
    [
        {"method": LW()},
        {"extras": [SFN()]},
        {"truth_missing": 0.1},
    ],
)
def test_steps_whose_rows_depend_on_each_other_stay_whole(how, in_blocks):
    in_blocks()
    method = how.pop("method", CORR())
    one = trainer(method, RECORDS(), epochs=10, **how)
    one.prepare(*problem())
    assert not one._steps_in_blocks(16)


def test_the_rows_that_are_not_finite_are_named(in_blocks):
    def poison(x, generator):
        return torch.where(x[:, :1] == rows[7, 0], math.inf, x)

    in_blocks()
    x, sets = problem()
    rows = x.float()
    one = trainer(PRODEN(), RECORDS(), batch_size=N, views=Views(weak=(poison,)))
    with pytest.raises(NotFiniteError) as error:
        one.fit(x, sets)
    assert error.value.rows == (7,)


@pytest.mark.parametrize("size", [1, 4, 7, 50])
def test_gradients_are_those_of_the_whole_loss(size):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2 * N, 3, generator=generator, dtype=torch.float64)
    weight = torch.randn(3, C, generator=generator, dtype=torch.float64, requires_grad=True)
    target = torch.rand(N, C, generator=generator, dtype=torch.float64)

    def loss(outputs, rows):
        return sum(((z - target[rows]) ** 3).sum() for z in outputs.logits)

    loss(views_of(x @ weight, x, 2), slice(None)).backward()
    expected, weight.grad = weight.grad, None
    seen = []

    def loss_of(rows, outputs):
        assert isinstance(outputs, Outputs)
        assert len(outputs.features) == 2
        seen.extend(range(N)[rows])
        return loss(outputs, rows)

    backward_in_blocks((x @ weight, x), 2, size, loss_of)
    torch.testing.assert_close(weight.grad, expected)
    assert seen == list(range(N))


def test_a_block_holds_some_rows_of_every_network():
    assert rows_of_block(10**9) == 1
    assert rows_of_block(10**9, together=4) == 4
    assert rows_of_block(100, together=7) % 7 == 0


def test_targets_that_were_read_on_candidates_can_be_written():
    _, sets = problem()
    one, other = initial_targets(sets), initial_targets(sets)
    one.values.copy_(torch.rand(len(one.values), generator=torch.Generator().manual_seed(0)))
    index = torch.arange(N)
    other.set_on_candidates(index, one.on_candidates(index))
    assert torch.equal(one.values, other.values)
