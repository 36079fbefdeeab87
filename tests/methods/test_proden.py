import math

import pytest
import torch

from ltpll.methods import METHODS
from support.problems import inside, naive_softmax, problem


def test_loss_equals_the_published_formula():
    method = METHODS["proden"]()
    p = problem(method)
    z, w = p.outputs.logits[0].tolist(), p.targets.tolist()
    total = 0.0
    for i in range(len(z)):
        probability = naive_softmax(z[i])
        total += sum(-w[i][j] * math.log(probability[j]) for j in range(len(z[i])))
    assert float(method.loss(p.outputs, p.targets, p.candidates)) == pytest.approx(
        total / len(z), abs=1e-5
    )


def test_targets_equal_the_published_formula():
    method = METHODS["proden"]()
    p = problem(method)
    z = p.outputs.logits[0].tolist()
    expected = [naive_softmax(z[i], inside(p.candidates, i)) for i in range(len(z))]
    torch.testing.assert_close(
        method.disambiguate(p.outputs, p.targets, p.candidates),
        torch.tensor(expected),
        atol=1e-5,
        rtol=0,
    )


def test_a_known_label_makes_it_ordinary_cross_entropy():
    method = METHODS["proden"]()
    p = problem(method)
    known = torch.nn.functional.one_hot(p.targets.argmax(1), p.targets.shape[1]).float()
    expected = torch.nn.functional.cross_entropy(p.outputs.logits[0], known.argmax(1))
    torch.testing.assert_close(method.loss(p.outputs, known, known.bool()), expected)
