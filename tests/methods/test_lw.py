import math

import pytest
import torch

from ltpll.errors import InputError
from ltpll.methods import METHODS
from support.problems import inside, naive_softmax, outside, problem


def sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value))


@pytest.mark.parametrize("beta", [0.0, 1.0, 2.0])
def test_sigmoid_form_equals_the_published_formula(beta):
    method = METHODS["lw"](form="sigmoid", beta=beta)
    p = problem(method)
    z, w = p.outputs.logits[0].tolist(), p.targets.tolist()
    total = 0.0
    for i in range(len(z)):
        total += sum(w[i][j] * sigmoid(-z[i][j]) for j in inside(p.candidates, i))
        total += beta * sum(w[i][j] * sigmoid(z[i][j]) for j in outside(p.candidates, i))
    assert float(method.loss(p.outputs, p.targets, p.candidates)) == pytest.approx(
        total / len(z), abs=1e-5
    )


@pytest.mark.parametrize("beta", [1.0, 2.0])
def test_cross_entropy_form_equals_the_published_formula(beta):
    method = METHODS["lw"](form="cross-entropy", beta=beta)
    p = problem(method)
    z, w = p.outputs.logits[0].tolist(), p.targets.tolist()
    total = 0.0
    for i in range(len(z)):
        probability = naive_softmax(z[i])
        total += sum(-w[i][j] * math.log(probability[j] + 1e-8) for j in inside(p.candidates, i))
        total += beta * sum(
            -w[i][j] * math.log(1 - probability[j] + 1e-8) for j in outside(p.candidates, i)
        )
    assert float(method.loss(p.outputs, p.targets, p.candidates)) == pytest.approx(
        total / len(z), abs=1e-5
    )


def test_targets_sum_to_one_inside_the_set_and_again_outside_it():
    method = METHODS["lw"]()
    p = problem(method)
    z = p.outputs.logits[0].tolist()
    expected = []
    for i in range(len(z)):
        row = naive_softmax(z[i], inside(p.candidates, i))
        if outside(p.candidates, i):
            row = [
                a + b
                for a, b in zip(row, naive_softmax(z[i], outside(p.candidates, i)), strict=True)
            ]
        expected.append(row)
    torch.testing.assert_close(
        method.disambiguate(p.outputs, p.targets, p.candidates),
        torch.tensor(expected),
        atol=1e-5,
        rtol=0,
    )


@pytest.mark.parametrize("options", [{"form": "hinge"}, {"beta": -1.0}, {"beta": float("nan")}])
def test_an_impossible_option_is_refused(options):
    with pytest.raises(InputError, match="LW"):
        METHODS["lw"](**options)
