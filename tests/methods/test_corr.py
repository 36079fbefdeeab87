import math

import pytest
import torch

from ltpll.errors import InputError
from ltpll.interfaces import Batch, Outputs
from ltpll.methods import CORR, METHODS
from support.problems import inside, naive_softmax, outside, problem


def kl(target: list[float], probability: list[float]) -> float:
    return sum(
        w * (math.log(w) - math.log(p)) for w, p in zip(target, probability, strict=True) if w > 0
    )


def push(probability: list[float], ruled_out: list[int]) -> float:
    return sum(-math.log(abs(1 - probability[j]) + 1e-9) for j in ruled_out)


def test_loss_equals_the_published_formula():
    method = METHODS["corr"]()
    p = problem(method)
    w = p.targets.tolist()
    total = 0.0
    for i in range(len(w)):
        for view in p.outputs.logits:
            probability = naive_softmax(view[i].tolist())
            total += push(probability, [j for j, weight in enumerate(w[i]) if weight == 0]) + kl(
                w[i], probability
            )
    assert float(method.loss(p.outputs, p.targets, p.candidates)) == pytest.approx(
        total / len(w), rel=1e-5
    )


def test_targets_are_the_normalised_geometric_mean_of_the_views():
    method = METHODS["corr"]()
    p = problem(method)
    expected = []
    for i in range(len(p.targets)):
        weak, strong = (naive_softmax(view[i].tolist()) for view in p.outputs.logits)
        product = [
            math.sqrt(a * b) if j in inside(p.candidates, i) else 0.0
            for j, (a, b) in enumerate(zip(weak, strong, strict=True))
        ]
        expected.append([value / sum(product) for value in product])
    torch.testing.assert_close(
        method.disambiguate(p.outputs, p.targets, p.candidates),
        torch.tensor(expected),
        atol=1e-5,
        rtol=0,
    )


@pytest.mark.parametrize(("epoch", "ramp"), [(0, 0.0), (25, 0.25), (100, 1.0), (700, 1.0)])
def test_original_form_has_three_views_a_ramp_and_pushes_on_the_first_view_only(epoch, ramp):
    method = METHODS["corr"](form="original")
    method.start_epoch(epoch, 800)
    assert method.views == ("weak", "strong", "strong")
    p = problem(method)
    w = p.targets.tolist()
    total = 0.0
    for i in range(len(w)):
        probabilities = [naive_softmax(view[i].tolist()) for view in p.outputs.logits]
        total += push(probabilities[0], outside(p.candidates, i)) + ramp * sum(
            kl(w[i], probability) for probability in probabilities
        )
    assert float(method.loss(p.outputs, p.targets, p.candidates)) == pytest.approx(
        total / len(w), rel=1e-5
    )


def test_the_gradient_stays_finite_where_a_probability_rounds_to_one():
    method = METHODS["corr"]()
    logits = torch.tensor([[40.0, 0.0, -40.0]], requires_grad=True)
    targets = torch.tensor([[0.0, 0.5, 0.5]])
    method.loss(Outputs((logits, logits), (logits, logits)), targets, targets > 0).backward()
    assert torch.isfinite(logits.grad).all()


def test_a_candidate_whose_target_is_zero_is_pushed_down_like_a_non_candidate():
    method = METHODS["corr"]()
    logits = torch.tensor([[1.0, 0.5, 0.0]])
    outputs = Outputs((logits, logits), (logits, logits))
    targets = torch.tensor([[1.0, 0.0, 0.0]])
    probability = naive_softmax(logits[0].tolist())
    expected = 2 * (push(probability, [1, 2]) + kl([1.0, 0.0, 0.0], probability))
    candidates = torch.tensor([[True, True, False]])
    assert float(method.loss(outputs, targets, candidates)) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("options", [{"form": "dpll"}, {"ramp_epochs": -1}])
def test_an_impossible_option_is_refused(options):
    with pytest.raises(InputError, match="CORR"):
        METHODS["corr"](**options)


def test_a_class_outside_the_set_is_pushed_down_as_far_as_it_is_not_taken_for_the_label():
    z = torch.tensor([[1.0, 0.5, -0.2]], dtype=torch.float64)
    targets, given = (
        torch.tensor([[0.7, 0.3, 0.0]], dtype=torch.float64),
        torch.tensor([[True, False, False]]),
    )
    p = torch.softmax(z, 1)[0]
    agreement = sum(
        w * math.log(w / q) for w, q in zip(targets[0].tolist(), p.tolist(), strict=True) if w
    )
    push = -((1 - 0.3) ** 4 * math.log(1 - p[1]) + math.log(1 - p[2]))
    loss = CORR().loss(Outputs((z, z), (z, z)), targets, given)
    assert loss.item() == pytest.approx(2 * (agreement + push), abs=1e-6)


def test_the_loss_gets_the_sets_as_they_were_given():
    candidates, given = torch.tensor([[True, True]]), torch.tensor([[True, False]])
    batch = Batch((), torch.zeros(1, 2), candidates)
    assert CORR().loss_mask(batch) is candidates
    assert CORR().loss_mask(batch._replace(given=given)) is given
