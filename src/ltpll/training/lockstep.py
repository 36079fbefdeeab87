"""Lockstep: networks of one shape, such as those of all folds, trained at once as one network.

A step of a small network takes longer in Python than in arithmetic. Here one step trains several
networks: layers multiply stacked weights, and a batch has as many rows of each network's own data.
Row r of a batch belongs to network r modulo their number. Losses and targets go row by row, so the
trainer and the method do not notice; class priors are each network's own. A network becomes what it
would have become alone, but for rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ltpll.candidates import Candidates
from ltpll.interfaces import Outputs, Place, Rebalancer, Training, ViewKind
from ltpll.parts import build_parts
from ltpll.training.batches import BatchSampler
from ltpll.training.callbacks import Callback
from ltpll.training.cpu_products import fast_products
from ltpll.training.distributed import current_world
from ltpll.training.trainer import PartialLabelTrainer
from ltpll.validation import chosen_device
from ltpll.views import FeatureViews, ViewSource

MODELS = ("auto", "linear", "mlp")  # whose layers can be stacked


class StackedLinear(nn.Linear):
    """Several linear layers of one shape: maps (layers, rows, in) to (layers, rows, out).

    From now on, the weights of the single layers are views of the stacked ones, (layers, in, out),
    an order in which products are faster.
    """

    def __init__(self, layers: Sequence[nn.Linear]) -> None:
        nn.Module.__init__(self)
        self.in_features, self.out_features = layers[0].in_features, layers[0].out_features
        self.weight = nn.Parameter(torch.stack([layer.weight.detach().T for layer in layers]))
        self.bias = nn.Parameter(torch.stack([layer.bias.detach() for layer in layers]))
        for layer, weight, bias in zip(layers, self.weight.data, self.bias.data, strict=True):
            layer.weight.data, layer.bias.data = weight.T, bias

    def forward(self, x: Tensor) -> Tensor:
        return torch.baddbmm(self.bias[:, None], x, self.weight)


class StackedNetworks(nn.Module):
    """Several multi-layer perceptrons of one shape, as one that trains in lockstep.

    It returns logits alone; `features` are those of the last pass, (networks, rows, dim), which
    would otherwise have to be copied to another order.
    """

    def __init__(self, networks: Sequence[Any]) -> None:
        super().__init__()
        self.n = len(networks)
        layers = zip(*(list(network.encoder) for network in networks), strict=True)
        self.encoder = nn.Sequential(
            *(
                StackedLinear(same) if isinstance(same[0], nn.Linear) else same[0]
                for same in layers
                if not isinstance(same[0], nn.Flatten)
            )
        )
        self.head = StackedLinear([network.head for network in networks])

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        features = self.encoder(x.view(-1, self.n, x.shape[1]).transpose(0, 1))
        self.features = features.detach()
        logits = self.head(features)
        if logits.requires_grad:
            # The loss is the mean over the rows of all networks.
            logits.register_hook(lambda gradient: gradient * self.n)
        return logits.transpose(0, 1).flatten(0, 1), x.new_empty(len(x), 0)


class StackedRebalancers(Rebalancer):
    """The rebalancer of each network, for its own rows."""

    name = "lockstep"

    def __init__(self, trainers: Sequence[PartialLabelTrainer], networks: StackedNetworks) -> None:
        super().__init__()
        self.each = nn.ModuleList(trainer.rebalancer for trainer in trainers)
        self.trainers, self._networks = list(trainers), [networks]  # not modules of this one
        self._heads = [trainer.head for trainer in trainers]
        sizes = torch.tensor([len(trainer.candidates) for trainer in trainers])
        self.first_rows = sizes.cumsum(0) - sizes

    def _by_network(self, rows: Tensor) -> tuple[Tensor, ...]:
        """The rows of each network."""
        return rows.view(-1, len(self.each), *rows.shape[1:]).unbind(1)

    def observe(self, outputs: Outputs, head: nn.Linear) -> None:
        n_views = len(outputs.logits)
        logits = zip(*map(self._by_network, outputs.logits), strict=True)
        features = (one.chunk(n_views) for one in self._networks[0].features)
        parts = zip(self.trainers, self._heads, logits, features, strict=True)
        for trainer, own_head, *own in parts:
            trainer.rebalancer.observe(Outputs(*own), own_head)

    def log_prior(self, head: nn.Linear) -> Tensor:
        return self.trainers[0].rebalancer.log_prior(self._heads[0])

    def adjust(self, outputs: Outputs, place: Place, head: nn.Linear) -> Outputs:
        each = zip(self.trainers, self._heads, strict=True)
        subtracted = torch.stack([one.rebalancer.subtracted(place, own) for one, own in each])
        logits = (z.view(-1, *subtracted.shape) - subtracted for z in outputs.logits)
        return Outputs(tuple(z.flatten(0, 1) for z in logits), outputs.features)

    def evidence(self, index: Tensor) -> Tensor | None:
        own = zip(self.trainers, self._by_network(index), self.first_rows, strict=True)
        found = [one.rebalancer.evidence(rows - first) for one, rows, first in own]
        if all(one is None for one in found):
            return None
        some = next(one for one in found if one is not None)
        whole = [torch.zeros_like(some) if one is None else one for one in found]
        return torch.stack(whole, dim=1).flatten(0, 1)

    def start_epoch(self, epoch: int, n_epochs: int) -> None:
        for trainer in self.trainers:
            trainer.rebalancer.start_epoch(epoch, n_epochs)

    def end_epoch(self, training: Training) -> None:
        for trainer in self.trainers:
            trainer.rebalancer.end_epoch(trainer)


class StackedViews(ViewSource):
    """Views of rows that are standardised already; the networks share noise and dropped features.

    They have the same seed, so they would draw the same alone.
    """

    def __init__(self, views: FeatureViews, n: int) -> None:
        self.views, self.n = views, n

    def one_view(self, plain: Tensor, kind: ViewKind, generator: torch.Generator) -> Tensor:
        rows = plain.view(-1, self.n, plain.shape[1])
        shape, views = (len(rows), 1, plain.shape[1]), self.views
        noise = views.noise[0] if kind == "weak" else views.noise[1]
        if noise:
            rows = rows + torch.randn(shape, generator=generator).mul_(noise)
        if kind == "strong" and views.dropout:
            rows = rows * (torch.rand(shape, generator=generator) >= views.dropout)
        return rows.view(plain.shape)


class LockstepSampler(BatchSampler):
    """Batches with as many rows of each network, in the order in which it would see them alone.

    Networks with more rows than others leave out some in each epoch, not always the same.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        batch_size: int,
        drop_last: bool,
        chunk: int,
        generator: torch.Generator,
    ) -> None:
        super().__init__(min(sizes), batch_size, drop_last, chunk, generator)
        self.sizes = torch.tensor(sizes)
        self.first_rows = self.sizes.cumsum(0) - self.sizes
        self.size, self.rows = self.size * len(sizes), self.rows * len(sizes)

    def _draw_order(self) -> Tensor:
        places = torch.randperm(self.n, generator=self.generator)[: self.rows // len(self.sizes)]
        if self.n < int(self.sizes.max()):
            places = places + torch.randint(self.n, (1,), generator=self.generator)
        return (self.first_rows + places[:, None] % self.sizes).flatten()


class LockstepTrainer(PartialLabelTrainer):
    """Trains the networks of several trainers at once, as one network.

    The networks, targets and rebalancers of the trainers are parts of those of this one, so that
    they are trained when it is.

    Args:
        fittings: Trainers that have not started, those of classifiers with the same `lockstep_key`,
            and the inputs and candidate sets of each.
    """

    def __init__(self, fittings: Sequence[tuple[PartialLabelTrainer, Tensor, Candidates]]) -> None:
        self.each = [trainer for trainer, _, _ in fittings]
        for trainer, x, candidates in fittings:
            trainer.prepare(x, candidates)
        first, n = self.each[0], len(fittings)
        settings = first.optimizer.param_groups[0]
        assert isinstance(first.views, FeatureViews)
        networks = StackedNetworks([trainer.model for trainer in self.each])
        super().__init__(
            networks,
            first.method,
            StackedRebalancers(self.each, networks),
            views=StackedViews(first.views, n),
            epochs=first.epochs,
            batch_size=first.batch_size,
            lr=first.lr,
            final_lr_factor=first.final_lr_factor,
            milestones=first.milestones,
            momentum=settings["momentum"],
            weight_decay=settings["weight_decay"],
            max_step=first.max_step,
            warmup_epochs=first.warmup_epochs,
            drop_last=all(trainer.drop_last for trainer in self.each),
            seed=first.seed,
            device=first.device,
            chunk=first.chunk,
            threads=first.threads.wanted,
        )
        self._together = n

    def fit_all(self, callbacks: Sequence[Callback] = ()) -> None:
        """Train all networks."""
        x = torch.cat([one.views.plain(one.x) for one in self.each])
        with fast_products():
            self.fit(x, joined([one.candidates for one in self.each]), callbacks)
        for trainer in self.each:
            trainer.state.history, trainer.state.epoch = self.history, self.epoch

    def prepare(self, x: Any, candidates: Any) -> None:
        super().prepare(x, candidates)
        sizes = [len(one.targets.values) for one in self.each]
        for one, values in zip(self.each, self.targets.values.split(sizes), strict=True):
            one.targets.values = values.copy_(one.targets.values)

    def _sampler(self) -> BatchSampler:
        sizes = [len(one.candidates) for one in self.each]
        return LockstepSampler(sizes, self.batch_size, self.drop_last, self.chunk, self.generator)

    def _timed_pass(self) -> Callable[[int], object]:
        run, n = super()._timed_pass(), len(self.each)
        return lambda rows: run(rows * n)

    def _limit_norm(self, parameters: Sequence[nn.Parameter], most: float) -> None:
        """Each network has its own norm."""
        gradients = [one.grad for one in parameters if one.grad is not None]
        norms = [torch.linalg.vector_norm(one.flatten(1), dim=1) for one in gradients]
        factors = most / (torch.linalg.vector_norm(torch.stack(norms), dim=0) + 1e-6)
        factors.clamp_(max=1.0)
        for one in gradients:
            one.mul_(factors.view(-1, *(1,) * (one.ndim - 1)))


def lockstep_key(classifier: Any, n: int) -> str:
    """Equal for classifiers whose networks can be trained in lockstep, on n rows of features each.

    It is empty if this one cannot.
    """
    method, rebalancer, extras = build_parts(
        classifier.method, classifier.rebalancer, classifier.extras, classifier.options
    )
    missing = classifier.truth_missing
    able = (
        classifier.model in MODELS
        and isinstance(classifier.views, str)
        and vars(type(method)).get("row_by_row", False)
        and type(rebalancer).adjust is Rebalancer.adjust
        and not extras
        and (missing == "never" or not np.any(missing))
        and classifier.on_nan == "stop"
        and classifier.precision != "bfloat16"
        and chosen_device(classifier.device).type == "cpu"
        and current_world().alone
    )
    if not able:
        return ""
    params = classifier.get_params(deep=False)
    del params["rebalancer"], params["goal"]
    return repr((classifier.schedule(n), sorted(params.items())))


def joined(parts: Sequence[Candidates]) -> Candidates:
    """The rows of several candidate sets of the same classes, one after the other."""
    sizes = torch.cat([part.sizes for part in parts]).long()
    offsets = torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])
    weights = [part.weights for part in parts if part.weights is not None]
    return Candidates(
        offsets,
        torch.cat([part.labels for part in parts]),
        parts[0].n_classes,
        weights=torch.cat(weights) if weights else None,
    )
