"""Small random problems that many tests share, and the truth in plain Python."""

import math
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from ltpll.candidates import Candidates
from ltpll.interfaces import Batch, Method, Outputs, Rebalancer, Step, linear_head
from ltpll.methods import METHODS
from ltpll.models import Classifier
from ltpll.rebalancers import REBALANCERS
from ltpll.targets import Targets, initial_targets

Part = TypeVar("Part", Method, Rebalancer)
N_CLASSES = 7
N_FEATURES = 5
FREQUENCIES = [600, 300, 150, 80, 40, 20, 10]


class Problem(NamedTuple):
    outputs: Outputs
    targets: Tensor
    candidates: Tensor
    head: nn.Linear


def problem(method: Method, *, batch: int = 12, scale: float = 3.0, seed: int = 0) -> Problem:
    """Random logits, features, candidate sets and targets of the layout that the method works
    on.
    """
    g = torch.Generator().manual_seed(seed)
    candidates = torch.rand(batch, N_CLASSES, generator=g) < 0.4
    candidates[torch.arange(batch), torch.randint(N_CLASSES, (batch,), generator=g)] = True
    candidates[0] = True  # nothing is known
    candidates[1] = torch.arange(N_CLASSES) == 2  # everything is known
    weights = torch.rand(batch, N_CLASSES, generator=g) + 0.1
    if method.targets_on == "candidates":
        weights = weights * candidates
    targets = weights / weights.sum(1, keepdim=True)
    views = method.n_forward_views
    logits = tuple(scale * torch.randn(batch, N_CLASSES, generator=g) for _ in range(views))
    head = linear_head(method.network_around(small_model()))
    features = tuple(torch.randn(batch, head.in_features, generator=g) for _ in range(views))
    with torch.no_grad():
        head.weight.copy_(torch.randn(N_CLASSES, N_FEATURES, generator=g))
        head.bias.copy_(torch.randn(N_CLASSES, generator=g))
    return Problem(Outputs(logits, features), targets, candidates, head)


def step_of(
    p: Problem, rebalancer: Rebalancer | None = None, views: tuple[Tensor, ...] = (), seed: int = 0
) -> Step:
    """A step of training the problem's head on features, which are the views."""
    model = Classifier(nn.Identity(), p.head)

    def forward(views: tuple[Tensor, ...], network: nn.Module | None = None) -> Outputs:
        said = [(network or model)(view) for view in views]
        return Outputs(tuple(z for z, _ in said), tuple(f for _, f in said))

    batch = Batch(views or p.outputs.features, p.targets, p.candidates)
    generator = torch.Generator().manual_seed(seed)
    rows, part = torch.arange(len(p.targets)), rebalancer or REBALANCERS["none"]()
    return Step(batch, p.outputs, p.head, part, forward, generator, rows)


class BetweenEpochs(NamedTuple):
    """What parts can access before and between epochs."""

    candidates: Candidates
    targets: Targets
    truth_missing: float = 0.0


def between_epochs(p: Problem, method: Method) -> BetweenEpochs:
    """A training whose rows have the problem's candidates and targets."""
    candidates = Candidates.from_matrix(p.candidates)
    targets = initial_targets(candidates, method.targets_on)
    targets[torch.arange(len(candidates))] = p.targets
    return BetweenEpochs(candidates, targets)


def small_model() -> Classifier:
    return Classifier(nn.Identity(), nn.Linear(N_FEATURES, N_CLASSES))


def attached(part: Part, seed: int = 0) -> Part:
    """The part with whatever it makes for a model of the problems' size."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = small_model()
        part.attach(part.network_around(model) if isinstance(part, Method) else model)
        if hasattr(part, "prototypes"):
            part.prototypes.normal_()  # as if they had moved: all are zero before, and equally near
    return part


def every_method() -> list[Method]:
    """Each method in each of its forms."""
    forms = {
        "lw": [{"form": "sigmoid"}, {"form": "cross-entropy", "beta": 2.0}],
        "corr": [{"form": "records"}, {"form": "original", "ramp_epochs": 4}],
    }
    return [
        attached(METHODS[name](**options)) for name in METHODS for options in forms.get(name, [{}])
    ]


def make_rebalancer(name: str) -> Rebalancer:
    return attached(REBALANCERS.create(name, {"class_frequencies": FREQUENCIES}))


def label(part: nn.Module) -> str:
    """A readable test id."""
    return "-".join([part.name, *([part.form] if hasattr(part, "form") else [])])


def naive_softmax(row: list[float], among: list[int] | None = None) -> list[float]:
    """Softmax over the given positions, zero elsewhere."""
    among = list(range(len(row))) if among is None else among
    top = max(row[j] for j in among)
    total = sum(math.exp(row[j] - top) for j in among)
    return [math.exp(row[j] - top) / total if j in among else 0.0 for j in range(len(row))]


def inside(candidates: Tensor, i: int) -> list[int]:
    return [j for j in range(candidates.shape[1]) if candidates[i, j]]


def outside(candidates: Tensor, i: int) -> list[int]:
    return [j for j in range(candidates.shape[1]) if not candidates[i, j]]
