import math

import pytest
import torch
from torch import nn

from ltpll.errors import NotFiniteError
from ltpll.finite import Guard, Watch, all_finite, rows_not_finite

BAD = [math.nan, math.inf, -math.inf]


@pytest.mark.parametrize("value", [*BAD, 3e38])
@pytest.mark.parametrize("part", [0, 1])
def test_rows_with_a_number_that_is_not_finite_are_found_and_large_ones_are_not(value, part):
    parts = [torch.full((5, 3), 3e38), torch.full((5, 4), -3e38)]
    parts[part][2, 1] = value
    expected = [not all(math.isfinite(v) for part in parts for v in part[row].tolist()) for row in range(5)]
    assert rows_not_finite(parts).tolist() == expected
    assert parts[part][2, 1] == torch.tensor(value) or math.isnan(value)  # they are only looked at


@pytest.mark.parametrize("value", BAD)
def test_tensors_are_finite_only_if_every_number_is(value):
    good = [torch.ones(3), torch.tensor(2.0), torch.zeros(0), torch.arange(3), torch.full((2, 2), 3e38)]
    assert all_finite(good)
    assert all_finite([])
    assert not all_finite([*good, torch.tensor([0.0, value])])


def test_a_watch_names_the_rows_of_the_step_or_of_the_epoch():
    watch = Watch(6, 0.25, torch.device("cpu"))
    index, one = torch.tensor([4, 1]), torch.tensor(1.0)
    watch.check_step(index, one, 3, 7)
    watch.check(one, 3)
    with pytest.raises(
        NotFiniteError, match=r"^The loss is not finite in epoch 3, step 7, for rows 4, 1: lower the learning rate \(now 0.25\)"
    ) as error:
        watch.check_step(index, torch.tensor(math.nan), 3, 7)
    assert (error.value.epoch, error.value.step, error.value.rows) == (3, 7, (4, 1))
    with pytest.raises(NotFiniteError, match=r"^The loss is not finite in epoch 3: lower .* extreme values in the features"):
        watch.check(torch.tensor(math.inf), 3)
    watch.rows[1] = True
    with pytest.raises(NotFiniteError, match=r"logits, or the targets .* epoch 3, step 7, for row 1: "):
        watch.check_step(index, one, 3, 7)
    with pytest.raises(NotFiniteError, match=r"epoch 3, for row 1: ") as error:
        watch.check(one, 3)
    assert (error.value.epoch, error.value.step, error.value.rows) == (3, None, (1,))


class Parts(nn.Module):
    """A weight that is trained, one that follows it, and a buffer."""

    def __init__(self):
        super().__init__()
        self.trained = nn.Parameter(torch.tensor([1.0, 2.0]))
        self.follows = nn.Parameter(torch.tensor([1.0, 2.0]), requires_grad=False)
        self.register_buffer("count", torch.tensor(3))

    def forward(self, factor):
        with torch.no_grad():
            self.follows += self.trained
            self.count += 1
        return (self.trained * factor).sum()


def guarded_step(parts, optimizer, guard, factor, rows=None, loss=None):
    before = guard.before()
    said = parts(factor)
    optimizer.zero_grad()
    said.backward()
    return guard.finish(before, said.detach() if loss is None else loss, torch.zeros(2, dtype=torch.bool) if rows is None else rows)


def guarded():
    parts = Parts()
    optimizer = torch.optim.SGD([parts.trained], lr=0.1, momentum=0.9, weight_decay=0.01)
    return parts, optimizer, Guard([parts], optimizer, torch.device("cpu"))


def everything(parts, optimizer):
    state = {**parts.state_dict(), **{str(key): value for state in optimizer.state.values() for key, value in state.items()}}
    return {name: value.clone() for name, value in state.items() if value is not None}


@pytest.mark.parametrize(
    "bad",
    [
        {"factor": torch.tensor([1.0, math.inf])},  # loss and gradients
        {"factor": torch.ones(2), "loss": torch.tensor(math.nan)},
        {"factor": torch.ones(2), "rows": torch.tensor([False, True])},
        {"factor": torch.tensor([1.0, math.nan]), "loss": torch.tensor(1.0)},  # gradients alone
    ],
    ids=["all", "loss", "rows", "gradients"],
)
def test_a_step_with_something_not_finite_changes_neither_weights_momenta_buffers_nor_what_follows(bad):
    parts, optimizer, guard = guarded()
    assert guarded_step(parts, optimizer, guard, torch.ones(2))
    before = everything(parts, optimizer)
    assert not guarded_step(parts, optimizer, guard, **bad)
    after = everything(parts, optimizer)
    assert before.keys() == after.keys()
    assert all(torch.equal(after[name], value) for name, value in before.items())
    assert guard.n_dropped() == 1


def test_a_finite_step_is_the_same_with_a_guard_and_without():
    parts, optimizer, guard = guarded()
    plain, plain_optimizer, _ = guarded()
    for factor in (torch.tensor([1.0, -2.0]), torch.tensor([0.5, 3.0])):
        guarded_step(parts, optimizer, guard, factor)
        plain_optimizer.zero_grad()
        plain(factor).backward()
        plain_optimizer.step()
    ours, theirs = everything(parts, optimizer), everything(plain, plain_optimizer)
    assert all(torch.equal(ours[name], value) for name, value in theirs.items())
    assert guard.n_dropped() == 0
