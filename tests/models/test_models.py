"""Models return logits and features; builders are reproducible and leave the random state alone."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from ltpll.errors import InputError, UnknownNameError
from ltpll.models import MODELS, build_model, mlp, resnet18, small_cnn, split_head
from support.refusals import refusal

SMALL = {
    "mlp": ({"n_inputs": 12, "n_classes": 5, "hidden": (7,)}, (12,), 7),
    "linear": ({"n_inputs": 12, "n_classes": 5}, (12,), 12),
    "small-cnn": ({"n_classes": 5, "width": 4}, (1, 8, 8), 16),
    "resnet18": ({"n_classes": 5, "width": 4}, (3, 32, 32), 32),
}


def test_there_is_a_small_case_for_every_model():
    assert set(SMALL) == set(MODELS)


@pytest.mark.parametrize("name", SMALL)
@pytest.mark.parametrize("training", [True, False])
def test_logits_are_the_linear_head_of_the_features(name, training):
    options, shape, dim = SMALL[name]
    model = build_model(name, 0, **options).train(training)
    x = torch.randn(6, *shape, generator=torch.Generator().manual_seed(1))
    logits, features = model(x)
    assert isinstance(model.head, nn.Linear)
    assert logits.shape == (6, 5)
    assert features.shape == (6, dim)
    torch.testing.assert_close(logits, features @ model.head.weight.T + model.head.bias)
    logits.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())


@pytest.mark.parametrize(("hidden", "dim"), [((), 6), ((4,), 4), ((8, 3), 3)])
def test_mlp_equals_matrix_products_with_relu_between(hidden, dim):
    model = mlp(6, 3, hidden=hidden)
    x = torch.randn(5, 2, 3)
    logits, features = model(x)
    assert features.shape == (5, dim)
    expected = x.reshape(5, 6)
    for layer in [module for module in model.encoder if isinstance(module, nn.Linear)]:
        expected = (expected @ layer.weight.T + layer.bias).clamp(min=0)
    torch.testing.assert_close(features, expected)
    torch.testing.assert_close(logits, expected @ model.head.weight.T + model.head.bias)


@pytest.mark.parametrize("size", [8, 16, 28])
@pytest.mark.parametrize(("channels", "width"), [(1, 32), (3, 8)])
def test_small_cnn_takes_images_of_every_size_it_names(size, channels, width):
    model = small_cnn(10, n_channels=channels, width=width).eval()
    x = torch.randn(2, channels, size, size)
    logits, features = model(x)
    assert logits.shape == (2, 10)
    assert features.shape == (2, 4 * width)
    out = x
    convolutions = [module for module in model.encoder if isinstance(module, nn.Conv2d)]
    for convolution, stride in zip(convolutions, (1, 2, 2), strict=True):
        out = (
            F.conv2d(out, convolution.weight, stride=stride, padding=1) / (1 + 1e-5) ** 0.5
        ).clamp(min=0)
    assert out.shape[2:] == (size // 4, size // 4)
    torch.testing.assert_close(features, out.mean((2, 3)), atol=1e-5, rtol=1e-4)


# ---- ResNet-18 -----------------------------------------------------------------------------------


def n_parameters(model):
    return sum(parameter.numel() for parameter in model.parameters())


def test_resnet18_has_the_well_known_number_of_parameters():
    model = resnet18(10)
    assert n_parameters(model) == 11_173_962
    logits, features = model.eval()(torch.randn(1, 3, 32, 32))
    assert logits.shape == (1, 10)
    assert features.shape == (1, 512)


@pytest.mark.parametrize(("n_classes", "channels", "width"), [(10, 3, 64), (100, 3, 16), (4, 1, 8)])
def test_resnet18_has_the_parameters_of_its_layers_added_up(n_classes, channels, width):
    total = 9 * channels * width + 2 * width
    inputs = width
    for stage in range(4):
        outputs = width * 2**stage
        total += 9 * inputs * outputs + 3 * 9 * outputs * outputs + 4 * 2 * outputs
        if stage:
            total += inputs * outputs + 2 * outputs  # the shortcut's 1×1 convolution
        inputs = outputs
    assert (
        n_parameters(resnet18(n_classes, n_channels=channels, width=width))
        == total + (inputs + 1) * n_classes
    )


@pytest.mark.parametrize(("size", "width"), [(32, 4), (32, 8), (16, 4)])
def test_resnet18_equals_the_paper_written_out_by_hand(size, width):
    torch.manual_seed(0)
    model = resnet18(7, width=width).eval()
    for name, tensor in model.state_dict().items():
        if "running_mean" in name or "bias" in name:
            tensor.normal_()
        if "running_var" in name:
            tensor.uniform_(0.5, 2)
    layers = list(
        model.encoder.state_dict().values()
    )  # in the order of the network: stem, then block by block
    place = 0

    def take(n):
        nonlocal place
        place += n
        return layers[place - n : place]

    def conv_norm(x, stride, padding):
        kernel, weight, bias, mean, variance, _ = take(6)
        return F.batch_norm(
            F.conv2d(x, kernel, stride=stride, padding=padding), mean, variance, weight, bias
        )

    x = torch.randn(2, 3, size, size)
    out = conv_norm(x, 1, 1).relu()
    for stage in range(4):
        for block in range(2):
            stride = 2 if stage and not block else 1
            shortcut = out
            inner = conv_norm(out, stride, 1).relu()
            inner = conv_norm(inner, 1, 1)
            if stride == 2:
                shortcut = conv_norm(shortcut, 2, 0)
            out = (inner + shortcut).relu()
        assert out.shape == (2, width * 2**stage, size >> stage, size >> stage)
    assert place == len(layers)
    torch.testing.assert_close(model(x)[1], out.mean((2, 3)), atol=1e-4, rtol=1e-4)


def test_a_strided_stem_is_that_of_imagenet_and_the_rest_is_the_same():
    small, strided = (resnet18(7, width=4, stem=stem).eval() for stem in ("small", "strided"))
    kept = {
        name: tensor for name, tensor in small.state_dict().items() if name != "encoder.stem.weight"
    }
    assert set(strided.load_state_dict(kept, strict=False).missing_keys) == {"encoder.stem.weight"}
    encoder = strided.encoder
    assert n_parameters(encoder) - n_parameters(small.encoder) == 3 * 4 * (49 - 9)
    x = torch.randn(2, 3, 96, 80)
    hidden = F.conv2d(x, encoder.stem.weight, stride=2, padding=3) / (1 + 1e-5) ** 0.5
    hidden = F.max_pool2d(hidden.relu(), 3, stride=2, padding=1)
    assert hidden.shape[2:] == (24, 20)
    skip = hidden
    for block in encoder.blocks:
        hidden, skip = block(hidden, skip)
    torch.testing.assert_close(strided(x)[1], hidden.mean((2, 3)), atol=1e-5, rtol=1e-4)
    assert "choose 'small' or 'strided'" in refusal(lambda: resnet18(7, stem="wide"))


# ---- builders by name ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", SMALL)
def test_the_same_seed_gives_the_same_weights_and_another_seed_others(name):
    options = SMALL[name][0]
    first, again, other = (build_model(name, seed, **options).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[key], again[key]) for key in first)
    assert not torch.equal(first["head.weight"], other["head.weight"])


@pytest.mark.parametrize("name", SMALL)
def test_the_weights_do_not_depend_on_the_random_state_and_leave_it_alone(name):
    options = SMALL[name][0]
    torch.manual_seed(5)
    before = torch.get_rng_state()
    first = build_model(name, 1, **options)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(3)
    again = build_model(name, 1, **options)
    assert torch.equal(first.head.weight, again.head.weight)


def test_building_leaves_the_random_state_of_accelerators_alone(monkeypatch):
    seeded = []
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeded.append)
    build_model("mlp", 1, n_inputs=2, n_classes=2)
    assert seeded == []


def test_a_refused_model_leaves_the_random_state_alone():
    before = torch.get_rng_state()
    with pytest.raises(InputError):
        build_model("mlp", 1, n_inputs=3)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("resnet-18", " Did you mean 'resnet18'?"),
        ("small_cnn", " Did you mean 'small-cnn'?"),
        ("xyz", ""),
    ],
)
def test_an_unknown_model_is_answered_with_the_known_ones(name, hint):
    message = refusal(lambda: build_model(name, 0), UnknownNameError)
    assert (
        message == f"There is no model {name!r}.{hint} Available: linear, mlp, resnet18, small-cnn."
    )


@pytest.mark.parametrize(
    ("name", "options", "word"),
    [
        ("mlp", {"n_inputs": 3}, "n_classes"),
        ("mlp", {"n_inputs": 3, "n_classes": 2, "depth": 4}, "depth"),
        ("small-cnn", {}, "n_classes"),
        ("mlp", {"n_inputs": "3", "n_classes": 2}, "n_inputs"),
    ],
)
def test_options_that_do_not_build_a_model_are_refused_in_one_sentence(name, options, word):
    message = refusal(lambda: build_model(name, 0, **options))
    assert repr(name) in message
    assert word in message


# ---- any other network ---------------------------------------------------------------------------


class Branching(nn.Module):
    """A third-party network: two layers, then a linear one called fc."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Linear(4, 6)
        self.fc = nn.Linear(6, 3)

    def forward(self, x):
        return self.fc(torch.tanh(self.stem(x)))


class Nested(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Linear(4, 6)
        self.classifier = nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 3))

    def forward(self, x):
        return self.classifier(self.features(x).relu())


class Headed(nn.Module):
    """A nested head: every part of the path matters."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.ModuleList([Nested()])

    def forward(self, x):
        return self.body[0](x)


HEADS = [
    ("fc", Branching, 6),
    ("2", lambda: nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 3)), 6),
    ("classifier.1", Nested, 6),
    ("body.0.classifier.1", Headed, 6),
]


@pytest.mark.parametrize(("head", "build", "dim"), HEADS, ids=[head for head, _, _ in HEADS])
def test_splitting_off_the_head_keeps_the_function_of_the_network(head, build, dim):
    network = build().eval()
    original = copy.deepcopy(network)
    x = torch.randn(5, 4)
    model = split_head(network, head)
    logits, features = model(x)
    assert torch.equal(logits, original(x))
    assert features.shape == (5, dim)
    assert torch.equal(model.head.weight, original.get_submodule(head).weight)
    assert n_parameters(model) == n_parameters(original)


@pytest.mark.parametrize(
    "head",
    ["head", "stem.weight", "stem.0", "fc.bias", "", "forward", "features.classifier", "fc.fc"],
)
def test_a_head_that_is_not_a_linear_layer_is_refused_with_the_linear_ones(head):
    network = Branching()
    before = copy.deepcopy(network)
    message = refusal(lambda: split_head(network, head))
    assert repr(head) in message
    assert message.endswith("its linear layers: stem, fc.")
    x = torch.randn(2, 4)
    assert torch.equal(network(x), before(x))


def test_a_network_without_linear_layers_says_so():
    assert refusal(lambda: split_head(nn.Sequential(nn.Conv2d(1, 1, 1)), "fc")).endswith(
        "its linear layers: none."
    )
