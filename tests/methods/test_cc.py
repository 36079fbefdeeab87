import math

import pytest
import torch

from ltpll.methods import METHODS
from support.problems import inside, naive_softmax, problem


def test_loss_is_minus_the_log_probability_of_the_whole_set():
    method = METHODS["cc"]()
    p = problem(method)
    z = p.outputs.logits[0].tolist()
    rows = [
        -math.log(sum(naive_softmax(z[i])[j] for j in inside(p.candidates, i)))
        for i in range(len(z))
    ]
    assert float(method.loss(p.outputs, p.targets, p.candidates)) == pytest.approx(
        sum(rows) / len(rows), abs=1e-5
    )


def test_loss_is_zero_when_every_label_is_a_candidate():
    method = METHODS["cc"]()
    p = problem(method)
    assert float(method.loss(p.outputs, p.targets, torch.ones_like(p.candidates))) == pytest.approx(
        0, abs=1e-6
    )


def test_loss_does_not_read_the_targets():
    method = METHODS["cc"]()
    p = problem(method)
    assert method.loss(p.outputs, p.targets, p.candidates) == method.loss(
        p.outputs, torch.zeros_like(p.targets), p.candidates
    )
