"""Training steps use no operation that a CUDA graph cannot record; checked on a CPU, so that a
machine without a GPU finds such a step.

Only a GPU can prove that a step is recorded (tests/test_cuda.py). What is known to fail is a value
that Python reads from the device, a shape that depends on values, and a tensor that Python makes
from numbers, which would be copied from the host.
"""

import linecache
import sys
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import ltpll
from ltpll.candidates import Candidates
from ltpll.extras import EXTRAS
from ltpll.methods import METHODS
from ltpll.rebalancers import REBALANCERS
from ltpll_research.set_origins import remove_labels
from support.purifying import Purifying
from support.toy_training import toy, trainer

SOURCE = str(Path(ltpll.__file__).parent)
READS = {"_local_scalar_dense", "item", "is_nonzero", "equal"}
SHAPES = {
    "nonzero",
    "masked_select",
    "_unique",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "bincount",
    "repeat_interleave",
}
COPIES = {"lift_fresh"}  # torch.tensor of numbers
INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_"}


def problem_of(name, arguments):
    """Why an operation cannot be recorded; None if it can."""
    if name in READS:
        return "reads a value"
    if name in SHAPES:
        return "makes a shape that depends on values"
    if name in COPIES:
        return "makes a tensor on the host"
    if name in INDEXING and any(
        one is not None and one.dtype in (torch.bool, torch.uint8) for one in arguments[1]
    ):
        return "selects by a mask"
    return None


def differs_on_a_gpu():
    """Whether the line of the package that is executed does something else on a GPU; there,
    `one_hot` does not look at the values."""
    frame = sys._getframe()
    while frame is not None and SOURCE not in frame.f_code.co_filename:
        frame = frame.f_back
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno) if frame else ""
    return "is_cuda" in line or "one_hot(" in line


class Recordable(TorchDispatchMode):
    """Fails on an operation that cannot be recorded."""

    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        name = function.overloadpacket.__name__
        problem = problem_of(name, arguments)
        assert problem is None or differs_on_a_gpu(), f"{name} {problem}"
        return function(*arguments, **(named or {}))


@pytest.fixture(autouse=True)
def sets_as_on_a_gpu(monkeypatch):
    """Look rows up as on a GPU: on a CPU, the last rows are remembered and compared."""
    monkeypatch.setattr(
        Candidates,
        "rows",
        lambda self, index: self._find_rows(torch.where(index < 0, index + len(self), index)),
    )
    monkeypatch.setattr(Candidates, "_table", None)


def assert_recordable(made):
    """Train, and check every step."""
    step, checked = made.step, []

    def checked_step(index, views):
        with Recordable():
            checked.append(index)
            return step(index, views)

    made.step = checked_step
    x, y, sets = toy()
    made.fit(x, remove_labels(sets, y, 0.2, seed=0) if made.truth_missing else sets)
    assert len(checked) == made.epoch * (len(x) // 32)
    assert made._opens == bool(made.truth_missing)  # in the last epoch


@pytest.mark.parametrize("operation", [
    lambda x: x.sum().item(),
    lambda x: x[x > 0],
    lambda x: x.nonzero(),
    lambda x: x + torch.tensor([1.0, 2.0]),
    lambda x: x.masked_select(x > 0),
    lambda x: x if x.sum() > 0 else -x,
    lambda x: x.index_put_((x > 0,), torch.zeros(())),
])  # fmt: skip
def test_operations_that_cannot_be_recorded_are_found(operation):
    x = torch.tensor([1.0, -1.0])
    with pytest.raises(AssertionError), Recordable():
        operation(x)


@pytest.mark.parametrize("method", [*METHODS, Purifying])
@pytest.mark.parametrize("missing", [0.0, 0.2])
def test_the_steps_of_a_method_can_be_recorded_also_with_open_sets(method, missing):
    made = method if isinstance(method, str) else method()
    assert_recordable(trainer(made, epochs=4, truth_missing=missing))


@pytest.mark.parametrize("rebalancer", REBALANCERS)
def test_the_steps_of_a_rebalancer_can_be_recorded_with_open_sets(rebalancer):
    frequencies = {"class_frequencies": (10, 20, 40, 80)} if "oracle" in rebalancer else {}
    assert_recordable(
        trainer("corr", REBALANCERS.create(rebalancer, frequencies), epochs=4, truth_missing=0.2)
    )


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_steps_of_an_extra_can_be_recorded_with_open_sets(extra):
    frequencies = {"class_frequencies": (10, 20, 40, 80)}
    assert_recordable(
        trainer("corr", extras=[EXTRAS.create(extra, frequencies)], epochs=4, truth_missing=0.2)
    )
