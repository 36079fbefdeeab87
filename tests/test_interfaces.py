"""What every method, rebalancer and extra promises, checked on all of them."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch

from ltpll.candidates import Candidates
from ltpll.extras import EXTRAS
from ltpll.interfaces import Outputs
from ltpll.methods import METHODS
from ltpll.models import Classifier
from ltpll.rebalancers import REBALANCERS
from ltpll.training.callbacks import Checkpoint
from ltpll.training.trainer import PartialLabelTrainer
from ltpll.views import Jitter, Views
from support.problems import (
    N_CLASSES,
    N_FEATURES,
    between_epochs,
    every_method,
    label,
    make_rebalancer,
    problem,
    step_of,
)

ALL_METHODS = pytest.mark.parametrize("method", every_method(), ids=label)
ALL_REBALANCERS = pytest.mark.parametrize("rebalancer", list(REBALANCERS))


def assert_are_targets(method, targets, candidates):
    assert targets.shape == candidates.shape
    assert (targets >= 0).all()
    assert torch.isfinite(targets).all()
    torch.testing.assert_close((targets * candidates).sum(1), torch.ones(len(targets)))
    off = (targets * ~candidates).sum(1)
    expected = (
        (~candidates).any(1).float()
        if method.targets_on == "classes"
        else torch.zeros(len(targets))
    )
    torch.testing.assert_close(off, expected)


@ALL_METHODS
@ALL_REBALANCERS
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
@pytest.mark.parametrize("rebalancer", ["none", "records"])
@pytest.mark.parametrize("scale", [1.0, 1e4])
@pytest.mark.parametrize("extra", [None, *EXTRAS])
def test_what_a_step_minimises_has_finite_gradients_whatever_the_logits(
    method, rebalancer, scale, extra
):
    method = deepcopy(method)
    part = make_rebalancer(rebalancer)
    p = problem(method, scale=scale)
    views = (*p.outputs.features, torch.flip(p.outputs.features[0], [0]))[: max(2, method.n_views)]
    logits = tuple((view @ p.head.weight.T * scale).requires_grad_() for view in views)
    outputs = Outputs(logits[: method.n_forward_views], views[: method.n_forward_views])
    part.observe(outputs.detach(), p.head)
    step = step_of(p._replace(outputs=outputs), part, views)
    method.start_epoch(3, 5)
    loss = method.step_loss(step)
    if extra:
        added = EXTRAS[extra]()
        added.attach(Classifier(torch.nn.Identity(), p.head))
        own = added.inputs(
            step.batch._replace(views=views[: method.n_forward_views]), step.generator
        )
        said = step.forward(own.views) if own else None
        loss = loss + added.loss(method, replace(step, outputs=Outputs(logits, views)), own, said)
    assert loss.shape == ()
    assert torch.isfinite(loss)
    gradients = torch.autograd.grad(loss, [*logits, p.head.weight], allow_unused=True)
    assert scale > 1 or any(
        g is not None and g.any() for g in gradients
    )  # LW's are zero where a sigmoid is one
    assert all(torch.isfinite(g).all() for g in gradients if g is not None)


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


def renamed_copy(method, order):
    """The method with what it keeps for each class in another order.

    A layer may take two numbers for each class.
    """
    copy = deepcopy(method)
    state = {}
    for name, value in method.state_dict().items():
        for dimension, size in enumerate(value.shape):
            if size in (N_CLASSES, 2 * N_CLASSES):
                value = value.index_select(dimension, torch.cat([order, order + N_CLASSES])[:size])
        state[name] = value
    copy.load_state_dict(state)
    return copy


@ALL_METHODS
@ALL_REBALANCERS
def test_renaming_the_classes_renames_the_targets_and_leaves_the_loss(method, rebalancer):
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    p = problem(method)
    part = make_rebalancer(rebalancer)
    renamed_part = make_rebalancer(rebalancer)
    for name, value in renamed_part.state_dict().items():
        if value.shape == (N_CLASSES,):
            renamed_part.state_dict()[name].copy_(value[order])
    renamed_head = torch.nn.Linear(N_FEATURES, N_CLASSES)
    with torch.no_grad():
        renamed_head.weight.copy_(p.head.weight[order])
        renamed_head.bias.copy_(p.head.bias[order])
    renamed = Outputs(tuple(z[:, order] for z in p.outputs.logits), p.outputs.features)
    renamed_problem = type(p)(renamed, p.targets[:, order], p.candidates[:, order], renamed_head)
    for one, problem_ in ((part, p), (renamed_part, renamed_problem)):
        training = between_epochs(problem_, method)
        one.start_training(training)
        one.start_epoch(3, 5)
        one.observe(problem_.outputs, problem_.head)
        one.end_epoch(training)
    new = method.disambiguate(part.adjust(p.outputs, "targets", p.head), p.targets, p.candidates)
    new_renamed = renamed_copy(method, order).disambiguate(
        renamed_part.adjust(renamed, "targets", renamed_head),
        p.targets[:, order],
        p.candidates[:, order],
    )
    torch.testing.assert_close(new_renamed, new[:, order])
    torch.testing.assert_close(
        method.loss(renamed, p.targets[:, order], p.candidates[:, order]),
        method.loss(p.outputs, p.targets, p.candidates),
    )


@ALL_METHODS
def test_the_loss_is_a_mean_over_examples_so_it_does_not_grow_with_the_batch(method):
    p = problem(method)
    double = Outputs(
        tuple(torch.cat([z, z]) for z in p.outputs.logits),
        tuple(torch.cat([f, f]) for f in p.outputs.features),
    )
    torch.testing.assert_close(
        method.loss(double, torch.cat([p.targets] * 2), torch.cat([p.candidates] * 2)),
        method.loss(p.outputs, p.targets, p.candidates),
    )


@ALL_METHODS
def test_following_the_gradient_moves_probability_onto_the_candidates(method):
    method.start_epoch(10, 20)
    p = problem(method, scale=0.1)
    logits = tuple(z.clone().requires_grad_() for z in p.outputs.logits)
    method.loss(Outputs(logits, p.outputs.features), p.targets, p.candidates).backward()
    used = [z for z in logits if z.grad is not None]
    before = torch.stack([(torch.softmax(z, 1) * p.candidates).sum(1) for z in used]).mean(0)
    moved = [z - 1.0 * z.grad for z in used]
    after = torch.stack([(torch.softmax(z, 1) * p.candidates).sum(1) for z in moved]).mean(0)
    partly = ~p.candidates.all(1)
    assert (after[partly] > before[partly]).all()


@ALL_REBALANCERS
def test_a_rebalancers_state_round_trip_keeps_its_prior(rebalancer):
    part, other = make_rebalancer(rebalancer), make_rebalancer(rebalancer)
    for seed in range(3):
        method = METHODS["corr"]()
        p = problem(method, seed=seed)
        training = between_epochs(p, method)
        part.start_training(training)
        part.start_epoch(seed, 4)
        part.observe(p.outputs, p.head)
        part.end_epoch(training)
    other.load_state_dict(part.state_dict())
    assert torch.equal(part.log_prior(p.head), other.log_prior(p.head))
    assert part.log_prior(p.head).shape == (N_CLASSES,)


def combinations():
    """Every method with every rebalancer that it accepts, in turn with all extras and none."""
    for i, method in enumerate(every_method()):
        # "auto" is an anchor whose bounds are chosen at the start, so it has nothing else to
        # checkpoint.
        for j, rebalancer in enumerate(
            ["none"] if method.why_no_rebalancer else sorted(REBALANCERS.keys() - {"auto"})
        ):
            for extras in (
                [(), tuple(EXTRAS)]
                if method.why_no_rebalancer
                else [((), tuple(EXTRAS))[(i + j) % 2]]
            ):
                yield pytest.param(
                    method,
                    rebalancer,
                    extras,
                    id=f"{label(method)}-{rebalancer}-{'all-extras' if extras else 'plain'}",
                )


@pytest.mark.parametrize(("method", "rebalancer", "extras"), list(combinations()))
def test_every_combination_trains_checkpoints_and_resumes_identically(
    method, rebalancer, extras, tmp_path
):
    """Training stops in the middle of an epoch and at its end; a new trainer resumes it.

    For SoLar it is the first epoch after its restart.
    """
    g = torch.Generator().manual_seed(1)
    x = torch.randn(40, 6, generator=g)
    candidates = Candidates.from_matrix(
        (torch.rand(40, N_CLASSES, generator=g) < 0.3)
        | (torch.arange(40) % N_CLASSES)[:, None].eq(torch.arange(N_CLASSES))
    )

    def trainer():
        g = torch.Generator().manual_seed(2)
        model = Classifier(
            torch.nn.Sequential(torch.nn.Linear(6, N_FEATURES), torch.nn.Dropout(0.2)),
            torch.nn.Linear(N_FEATURES, N_CLASSES),
        )
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=g) / 2)
        kept = {"corr": ("form", "ramp_epochs"), "lw": ("form", "beta")}.get(method.name, ())
        fresh = type(method)(**{key: getattr(method, key) for key in kept})
        views = Views(strong=(Jitter(0.2),))
        return PartialLabelTrainer(
            model,
            fresh,
            make_rebalancer(rebalancer),
            [EXTRAS[name]() for name in extras],
            views=views,
            epochs=4,
            batch_size=16,
            device="cpu",
        )

    whole = trainer().fit(x, candidates)
    first = trainer()
    first.prepare(x, candidates)
    first.history.append(first.train_epoch())
    assert first.train_epoch(interrupted=lambda: True) is None  # after one of two steps
    first.save(tmp_path / "in the middle")
    between = trainer()
    between.prepare(x, candidates)
    between.load(tmp_path / "in the middle")
    between.history.append(between.train_epoch())
    between.save(tmp_path / "at the end")
    second = trainer().fit(x, candidates, [Checkpoint(tmp_path / "at the end")])

    assert second.history == whole.history
    assert torch.equal(second.targets.values, whole.targets.values)
    for name, value in whole.model.state_dict().items():
        assert torch.equal(second.model.state_dict()[name], value)
    assert torch.equal(
        second.rebalancer.log_prior(second.head), whole.rebalancer.log_prior(whole.head)
    )
    for part in ("method", "extras"):
        for name, value in whole.state.modules[part].state_dict().items():
            assert torch.equal(second.state.modules[part].state_dict()[name], value), name
    assert torch.equal(second.logits(x), whole.logits(x))
    everything = torch.arange(40)
    assert_are_targets(method, whole.targets[everything], candidates[everything])
