"""Testing: the checks that all methods, rebalancers and extras of the package pass, for plug-ins.

They train a small network on forty random rows, so they take seconds and need no data.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Callable
from functools import partial
from inspect import Parameter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from ltpll.candidates import Candidates
from ltpll.interfaces import Extra, Method, Outputs, Part, Rebalancer
from ltpll.methods import PRODEN
from ltpll.models import Classifier
from ltpll.parts import Parts
from ltpll.rebalancers import RECORDS, NoRebalancing
from ltpll.registry import named_parameters
from ltpll.training.callbacks import Checkpoint
from ltpll.training.trainer import PartialLabelTrainer
from ltpll.views import Jitter, Views

N_ROWS, N_INPUTS, N_FEATURES, N_CLASSES = 40, 6, 5, 7  # all different
FREQUENCIES = (600, 300, 150, 80, 40, 20, 10)  # for parts that know the class sizes
EXTREME = 1e4  # by which inputs are multiplied
PACKAGE = str(Path(__file__).parent)

# What cannot be part of a CUDA graph: reading a value, shapes that depend on values, copies from
# the host, and selecting by a mask.
UNRECORDABLE = (
    *("_local_scalar_dense", "item", "is_nonzero", "equal"),
    *("nonzero", "masked_select", "_unique", "_unique2", "unique_dim", "unique_consecutive"),
    *("bincount", "repeat_interleave", "lift_fresh"),
)
INDEXING = ("index", "index_put", "index_put_", "_index_put_impl_")


def check_part(part: type[Part] | Part) -> None:
    """Check that a method, rebalancer or extra keeps the promises of its interface.

    Args:
        part: A class, which is constructed without options, or an object with options.

    Raises:
        AssertionError: If a promise is broken.
        NotFiniteError: If numbers become infinite or NaN where logits are extreme.

    Examples:
        >>> check_part(PRODEN)
        >>> check_part(CORR(form="original"))
    """
    for check in checks_of(part).values():
        check()


def checks_of(part: type[Part] | Part) -> dict[str, Callable[[], None]]:
    """The checks of `check_part` by name, for example to run each as a test of its own.

    Examples:
        >>> list(checks_of(PRODEN))[:2]
        ['options_can_be_read_and_copied', 'targets_are_distributions_and_numbers_finite']
    """
    if isinstance(part, type):
        knows = "class_frequencies" in named_parameters(part)
        part = part(**{"class_frequencies": FREQUENCIES} if knows else {})
    checks: dict[str, Callable[[], None]] = {}
    checks["options_can_be_read_and_copied"] = partial(check_options, part)
    for check in (check_targets, check_renaming, check_resuming, check_recording):
        name = (check.__doc__ or "").split(".")[0]
        checks[name.lower().replace(" ", "_")] = partial(check, parts_with(part))
    if isinstance(part, Method):
        checks["the_loss_is_a_mean_over_examples"] = partial(check_mean, part)
        checks["the_loss_moves_probability_onto_candidates"] = partial(check_direction, part)
    return checks


def parts_with(part: Part) -> Parts:
    """The part among those with which it is checked."""
    if isinstance(part, Method):
        return Parts(part, NoRebalancing() if part.why_no_rebalancer else RECORDS(), [])
    if isinstance(part, Rebalancer):
        return Parts(PRODEN(), part, [])
    assert isinstance(part, Extra)
    return Parts(PRODEN(), RECORDS(), [part])


# ---- training ------------------------------------------------------------------------------------


def training_data() -> tuple[Tensor, Tensor]:
    """Inputs and the candidates of each row, (rows, classes)."""
    g = torch.Generator().manual_seed(1)
    x = torch.randn(N_ROWS, N_INPUTS, generator=g)
    certain = torch.eye(N_CLASSES, dtype=torch.bool)[torch.arange(N_ROWS) % N_CLASSES]
    return x, certain | (torch.rand(N_ROWS, N_CLASSES, generator=g) < 0.3)


def small_trainer(parts: Parts, **options: Any) -> PartialLabelTrainer:
    """Four epochs of two steps with new parts of the same options."""
    g = torch.Generator().manual_seed(2)
    with torch.random.fork_rng(devices=[]):
        encoder = nn.Sequential(nn.Linear(N_INPUTS, N_FEATURES), nn.Dropout(0.2))
        model = Classifier(encoder, nn.Linear(N_FEATURES, N_CLASSES))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=g) / 2)
    method, rebalancer, extras = parts
    made = method.fresh(), rebalancer.fresh(), [extra.fresh() for extra in extras]
    how = {"epochs": 4, "batch_size": 20, "device": "cpu", "views": Views(strong=(Jitter(0.2),))}
    return PartialLabelTrainer(model, *made, **{**how, **options})


def check_targets(parts: Parts) -> None:
    """Targets are distributions and numbers finite."""
    x, candidates = training_data()
    for scale, lr in ((1.0, 0.01), (EXTREME, 1e-9)):
        trainer = small_trainer(parts, lr=lr).fit(scale * x, candidates)
        assert_are_targets(parts.method, trainer.targets[torch.arange(N_ROWS)], candidates)
        log_prior = trainer.rebalancer.log_prior(trainer.head)
        assert log_prior.shape == (N_CLASSES,), "log_prior is not one number per class"
        assert torch.isfinite(log_prior).all(), f"the log-prior is {log_prior}"


def assert_are_targets(method: Method, targets: Tensor, candidates: Tensor) -> None:
    """Check that rows sum to one on the candidates, and are zero elsewhere or, for targets on all
    classes, sum to one there as well.
    """
    assert targets.shape == candidates.shape
    assert (targets >= 0).all(), "targets are negative"
    torch.testing.assert_close((targets * candidates).sum(1), torch.ones_like(targets[:, 0]))
    elsewhere = (~candidates).any(1) & (method.targets_on == "classes")
    torch.testing.assert_close((targets * ~candidates).sum(1), elsewhere.to(targets.dtype))


def check_renaming(parts: Parts) -> None:
    """Renaming the classes renames the targets."""
    x, candidates = training_data()
    order = torch.tensor([3, 0, 6, 1, 5, 2, 4])
    plain, renamed = small_trainer(parts), small_trainer(parts)
    modules = renamed.state.modules.values()
    states = [module.state_dict() for module in modules] + [renamed.state.initial]
    for tensor in (tensor for state in states for tensor in state.values()):
        for dimension, size in enumerate(tensor.shape):
            if size in (N_CLASSES, 2 * N_CLASSES):  # a layer may take two numbers per class
                places = torch.cat([order, order + N_CLASSES])[:size]
                tensor.copy_(tensor.index_select(dimension, places))
    plain.fit(x, candidates)
    renamed.fit(x, candidates[:, order])
    rows = torch.arange(N_ROWS)
    torch.testing.assert_close(
        renamed.targets[rows], plain.targets[rows][:, order], atol=1e-4, rtol=1e-3
    )


def check_resuming(parts: Parts) -> None:
    """A resumed training ends like an undisturbed one."""
    data, trainer = training_data(), partial(small_trainer, parts)
    with TemporaryDirectory() as folder:
        whole, first = trainer().fit(*data), trainer()
        first.prepare(*data)
        first.history.append(first.train_epoch() or {})
        first.train_epoch(interrupted=lambda: True)  # after one of two steps
        first.save(Path(folder, "within an epoch"))
        between = trainer()
        between.prepare(*data)
        between.load(Path(folder, "within an epoch"))
        between.history.append(between.train_epoch() or {})
        between.save(Path(folder, "after an epoch"))
        second = trainer().fit(*data, [Checkpoint(Path(folder, "after an epoch"))])
    assert second.history == whole.history, "other losses"
    expected, found = whole.state.tensors(), second.state.tensors()
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), f"{name} differs"
    assert torch.equal(second.logits(data[0]), whole.logits(data[0])), "other predictions"


# ---- CUDA graphs ---------------------------------------------------------------------------------


class Recordable(TorchDispatchMode):
    """Fails on an operation that a CUDA graph cannot record, also on a machine without a GPU."""

    def __torch_dispatch__(
        self, function: Any, types: Any, arguments: Any = (), named: Any = None
    ) -> Any:
        name = function.overloadpacket.__name__
        masks = name in INDEXING and any(
            one is not None and one.dtype in (torch.bool, torch.uint8) for one in arguments[1]
        )
        if name in UNRECORDABLE or masks:
            assert differs_on_a_gpu(), f"a CUDA graph cannot record {name}"
        return function(*arguments, **(named or {}))


def differs_on_a_gpu() -> bool:
    """Whether the line of the package that is executed does something else on a GPU; there,
    `one_hot` does not look at the values.
    """
    frame = sys._getframe()
    while frame.f_back is not None and (
        PACKAGE not in frame.f_code.co_filename or frame.f_code.co_filename == __file__
    ):
        frame = frame.f_back
    line = linecache.getline(frame.f_code.co_filename, frame.f_lineno)
    return "is_cuda" in line or "one_hot(" in line


def check_recording(parts: Parts) -> None:
    """Steps can be recorded as CUDA graphs."""

    def rows_as_on_a_gpu(self: Candidates, index: Tensor) -> Any:
        return self._find_rows(torch.where(index < 0, index + len(self), index))

    for missing in (0.0, 0.2):
        trainer = small_trainer(parts, truth_missing=missing)
        step = trainer.step

        def recorded(index: Tensor, views: Any, step: Any = step) -> Tensor:
            with Recordable():
                loss: Tensor = step(index, views)
                return loss

        trainer.step = recorded  # type: ignore[method-assign]
        with (
            patch.object(Candidates, "rows", rows_as_on_a_gpu),
            patch.object(Candidates, "_table", None),
        ):
            trainer.fit(*training_data())


# ---- one call ------------------------------------------------------------------------------------


def check_options(part: Part) -> None:
    """Options are what the constructor was given, and a new part with the same is equal."""
    cls, options = type(part), part.get_params()
    given = {name: parameter.default for name, parameter in named_parameters(cls).items()}
    given = {name: options[name] if one is Parameter.empty else one for name, one in given.items()}
    assert cls(**given).get_params() == given, f"{cls.__name__} changes its options"
    assert part.fresh().get_params() == options, f"{cls.__name__} changes its options"
    assert isinstance(vars(cls).get("name"), str), "the class does not set its own name"


def first_outputs(method: Method) -> tuple[Outputs, Tensor, Tensor]:
    """What a network says at first, with the targets and candidates of its training."""
    trainer = small_trainer(parts_with(method))
    trainer.prepare(*training_data())
    outputs = trainer.outputs(trainer.x)
    views = range(method.n_forward_views)
    each = [(outputs.logits[0] / (20 + v), outputs.features[0]) for v in views]  # all uncertain
    rows = torch.arange(N_ROWS)
    return Outputs.from_views(each), trainer.targets[rows], trainer.candidates[rows]


def check_mean(method: Method) -> None:
    """The loss is a mean over examples, so it does not grow with the batch."""
    outputs, targets, candidates = first_outputs(method)
    double = Outputs(*(tuple(torch.cat([view, view]) for view in part) for part in outputs))
    torch.testing.assert_close(
        method.fresh().loss(double, targets.repeat(2, 1), candidates.repeat(2, 1)),
        method.fresh().loss(outputs, targets, candidates),
    )


def check_direction(method: Method) -> None:
    """Following the gradient of the loss moves probability onto the candidates."""
    outputs, targets, candidates = first_outputs(method)
    method = method.fresh()
    method.start_epoch(10, 20)
    logits = [z.requires_grad_() for z in outputs.logits]
    method.loss(outputs, targets, candidates).backward()
    slopes = [torch.zeros_like(z) if z.grad is None else z.grad for z in logits]
    gained = torch.zeros(N_ROWS)
    for z, slope in zip(logits, slopes, strict=True):
        moved = torch.softmax(z.detach() - slope, 1) - torch.softmax(z.detach(), 1)
        gained += (moved * candidates).sum(1)
    assert (gained[~candidates.all(1)] > 0).all(), "the loss lowers candidates"
