"""Training steps use no operation that a CUDA graph cannot record; checked on a CPU, so that a
machine without a GPU finds such a step.

Only a GPU can prove that a step is recorded (tests/test_cuda.py). What is known to fail is a value
that Python reads from the device, a shape that depends on values, and a tensor that Python makes
from numbers, which would be copied from the host. tests/test_interfaces.py checks the parts.
"""

import pytest
import torch

from ltpll.testing import Recordable, check_part
from support.purifying import Purifying


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
    with pytest.raises(AssertionError, match="cannot record"), Recordable():
        operation(x)


def test_a_method_with_state_per_example_can_be_recorded_resumed_and_renamed():
    check_part(Purifying)
