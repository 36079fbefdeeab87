"""Low copies of weights give the gradients that autocast gives."""

import pytest
import torch
from torch import nn

from ltpll.models import FineTune, build_model
from ltpll.network.forward import BFloat16Weights
from support.tiny_backbones import tiny_backbone


def run(model, network, x):
    model.zero_grad(set_to_none=True)
    with torch.autocast("cpu", torch.bfloat16):
        logits, features = network(x)
    (logits.float().sin().sum() + features.float().mean()).backward()
    if isinstance(network, BFloat16Weights):
        network.transfer_gradients()
    return logits, {name: parameter.grad.clone() for name, parameter in model.named_parameters()}


def test_results_and_gradients_are_those_of_autocast():
    model = build_model("small-cnn", 0, n_classes=5, width=4)
    x = torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))
    theirs, their_gradients = run(model, model, x)
    ours, our_gradients = run(model, BFloat16Weights(model), x)
    torch.testing.assert_close(ours, theirs, atol=0, rtol=0)
    assert our_gradients.keys() == their_gradients.keys()
    for name, gradient in our_gradients.items():
        assert gradient.dtype == torch.float32
        torch.testing.assert_close(gradient, their_gradients[name], atol=1e-6, rtol=1e-5, msg=name)


def test_changed_weights_are_seen_by_the_first_call_after_the_gradients_were_handed_over():
    model = build_model("mlp", 0, n_inputs=3, n_classes=2, hidden=(4,))
    network = BFloat16Weights(model)
    x = torch.ones(1, 3)
    with torch.autocast("cpu", torch.bfloat16):
        before = network(x)[0]
        with torch.no_grad():
            model.head.weight.add_(1.0)
        network.transfer_gradients()
        after = network(x)[0]
        expected = model(x)[0]
    assert not torch.equal(before, after)
    torch.testing.assert_close(after, expected, atol=0, rtol=0)


def test_two_passes_of_one_step_give_the_sum_of_their_gradients():
    model = build_model("mlp", 0, n_inputs=3, n_classes=2, hidden=(4,))
    network = BFloat16Weights(model)
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    with torch.autocast("cpu", torch.bfloat16):
        (network(x)[0].square().sum() + network(2 * x)[0].square().sum()).backward()
        network.transfer_gradients()
        handed = [parameter.grad.clone() for parameter in model.parameters()]
        model.zero_grad()
        (model(x)[0].square().sum() + model(2 * x)[0].square().sum()).backward()
    for got, parameter in zip(handed, model.parameters(), strict=True):
        torch.testing.assert_close(got, parameter.grad, atol=1e-2, rtol=2e-2)


def test_a_gradient_from_elsewhere_is_added_to():
    model = nn.Linear(3, 2, bias=False)
    network = BFloat16Weights(model)
    (network(torch.ones(1, 3, dtype=torch.bfloat16)).sum() + model.weight.sum()).backward()
    network.transfer_gradients()
    torch.testing.assert_close(model.weight.grad, torch.full((2, 3), 2.0))


def test_frozen_weights_stay_as_they_are():
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 2)).requires_grad_(False)
    model[1].requires_grad_(True)
    network = BFloat16Weights(model)
    assert set(network._weights) == {"1.weight"}
    with torch.autocast("cpu", torch.bfloat16):
        network(torch.ones(1, 3)).float().sum().backward()
    network.transfer_gradients()
    assert model[0].weight.grad is None
    assert model[1].weight.grad is not None


def test_a_weight_that_two_layers_share_gets_both_gradients():
    model = nn.Sequential(nn.Linear(3, 3, bias=False), nn.Linear(3, 3, bias=False))
    model[1].weight = model[0].weight
    x = torch.ones(2, 3)
    with torch.autocast("cpu", torch.bfloat16):
        model(x).float().sum().backward()
    expected = model[0].weight.grad.clone()
    model.zero_grad(set_to_none=True)
    network = BFloat16Weights(model)
    with torch.autocast("cpu", torch.bfloat16):
        network(x).float().sum().backward()
    network.transfer_gradients()
    torch.testing.assert_close(model[0].weight.grad, expected, atol=0.02, rtol=0.02)


def test_a_weight_that_is_computed_from_others_is_left_to_autocast():
    model = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
    network = BFloat16Weights(model)
    with torch.autocast("cpu", torch.bfloat16):
        network(torch.ones(1, 3)).float().sum().backward()
    network.transfer_gradients()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize("frozen", [0, 3])
def test_a_fine_tuned_network_with_frozen_layers_and_norms_gives_what_autocast_gives(frozen):
    model = FineTune(tiny_backbone())((3, 16, 16), 4)
    model.encoder.encoder[:frozen].requires_grad_(False)
    x = torch.randn(6, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    results = []
    for network in (model, BFloat16Weights(model)):
        model.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16):
            logits, _ = network(x)
        logits.float().sin().sum().backward()
        if network is not model:
            network.transfer_gradients()
        results.append(
            (logits, {name: p.grad for name, p in model.named_parameters() if p.grad is not None})
        )
    (theirs, their_gradients), (ours, our_gradients) = results
    assert torch.equal(ours, theirs)
    assert (
        our_gradients.keys()
        == their_gradients.keys()
        == {name for name, p in model.named_parameters() if p.requires_grad}
    )
    for name, gradient in our_gradients.items():
        torch.testing.assert_close(gradient, their_gradients[name], atol=1e-5, rtol=1e-4, msg=name)
