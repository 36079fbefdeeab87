"""What every method, rebalancer and extra promises, checked on all of them."""

import pytest
import torch

from ltpll.extras import EXTRAS
from ltpll.interfaces import Outputs
from ltpll.methods import PRODEN
from ltpll.parts import Parts
from ltpll.rebalancers import REBALANCERS, RECORDS
from ltpll.testing import (
    assert_are_targets,
    check_renaming,
    check_resuming,
    check_targets,
    checks_of,
)
from support.problems import every_method, label, make_rebalancer, problem

ALL_METHODS = pytest.mark.parametrize("method", every_method(), ids=label)


def checks():
    parts = [*every_method(), *map(make_rebalancer, REBALANCERS)]
    for part in [*parts, *(EXTRAS[name]() for name in EXTRAS)]:
        for name, check in checks_of(part).items():
            yield pytest.param(check, id=f"{label(part)}-{name}")


@pytest.mark.parametrize("check", list(checks()))
def test_every_part_passes_the_public_checks(check):
    check()


@pytest.mark.parametrize(
    ("method", "rebalancer"),
    [
        pytest.param(method, each, id=f"{each}-{label(method)}")
        for method in every_method()
        for each in (["none"] if method.why_no_rebalancer else REBALANCERS)
    ],
)
@pytest.mark.parametrize("scale", [1.0, 30.0, 1e4])
def test_refined_targets_sum_to_one_and_loss_and_gradient_are_finite(method, rebalancer, scale):
    part = make_rebalancer(rebalancer)
    p = problem(method, scale=scale)
    logits = tuple(z.clone().requires_grad_() for z in p.outputs.logits)
    outputs = Outputs(logits, p.outputs.features)
    part.observe(outputs.detach(), p.head)
    new = method.disambiguate(
        part.adjust(outputs.detach(), "targets", p.head), p.targets, p.candidates
    )
    assert_are_targets(method, new, p.candidates)
    for targets in (p.targets, new):
        loss = method.loss(outputs, targets, p.candidates)
        assert loss.shape == ()
        assert torch.isfinite(loss)
        assert all(
            torch.isfinite(g).all()
            for g in torch.autograd.grad(loss, logits, allow_unused=True)
            if g is not None
        )


@ALL_METHODS
@pytest.mark.parametrize("value", [1e4, -1e4])
def test_equal_extreme_logits_give_uniform_or_single_targets(method, value):
    p = problem(method)
    outputs = Outputs(
        tuple(torch.full_like(z, value) for z in p.outputs.logits), p.outputs.features
    )
    new = method.disambiguate(outputs, p.targets, p.candidates)
    assert_are_targets(method, new, p.candidates)
    assert torch.isfinite(method.loss(outputs, new, p.candidates))


def combinations():
    """Every method with every rebalancer that it accepts, in turn with all extras and none."""
    for i, method in enumerate(every_method()):
        # "auto" is an anchor whose bounds are chosen at the start, so it has nothing else to
        # checkpoint.
        fit = ["none"] if method.why_no_rebalancer else sorted(REBALANCERS.keys() - {"auto"})
        for j, rebalancer in enumerate(fit):
            both = [(), tuple(EXTRAS)]
            for extras in both if method.why_no_rebalancer else [both[(i + j) % 2]]:
                yield pytest.param(
                    Parts(method, make_rebalancer(rebalancer), [EXTRAS[name]() for name in extras]),
                    id=f"{label(method)}-{rebalancer}-{'all-extras' if extras else 'plain'}",
                )


def is_checked_alone(parts):
    """Whether the public checks of one of the two have just these parts, without extras."""
    return type(parts.rebalancer) is RECORDS or label(parts.method) == label(PRODEN())


COMBINATIONS = list(combinations())
OTHERS = [one for one in COMBINATIONS if not is_checked_alone(one.values[0])]
ALL_COMBINATIONS = pytest.mark.parametrize(
    "parts", [one for one in COMBINATIONS if one.values[0].extras or one in OTHERS]
)


@ALL_COMBINATIONS
def test_every_combination_trains_checkpoints_and_resumes_identically(parts):
    """For SoLar, one stop is in the first epoch after its restart."""
    check_resuming(parts)


@pytest.mark.parametrize("parts", OTHERS)
def test_renaming_the_classes_renames_the_targets_of_every_combination(parts):
    """Without extras: their labels are those with the largest target, which is no label while
    targets are uniform, and those of PiCO and ALIM have to be uniform at first."""
    check_renaming(parts._replace(extras=[]))


@ALL_COMBINATIONS
def test_with_every_combination_numbers_stay_finite_where_logits_are_extreme(parts):
    check_targets(parts)
