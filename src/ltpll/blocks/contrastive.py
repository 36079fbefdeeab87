"""Contrast: what parts with a contrastive loss share: a projector, a queue, a network that follows another, and the loss itself."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from ltpll.interfaces import Step, linear_head


class Projector(nn.Sequential):
    """Two linear layers from features to vectors of length one."""

    def __init__(self, n_features: int, n_outputs: int) -> None:
        super().__init__(nn.Linear(n_features, n_features), nn.ReLU(), nn.Linear(n_features, n_outputs))

    def forward(self, features: Tensor) -> Tensor:
        return normalize(super().forward(features), dim=1)


class Queue(nn.Module):
    """The last `size` vectors with their labels; a place that is still empty has the label −1."""

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.vectors: Tensor
        self.labels: Tensor
        self.next: Tensor
        self.limit: Tensor
        self.register_buffer("vectors", torch.zeros(size, width))
        self.register_buffer("labels", torch.full((size,), -1))
        self.register_buffer("next", torch.zeros((), dtype=torch.int64))
        self.register_buffer("limit", torch.tensor(size))

    @torch.no_grad()
    def push(self, vectors: Tensor, labels: Tensor) -> None:
        """Put new ones in the place of the oldest."""
        size = len(self.labels)
        vectors, labels = vectors[-size:], labels[-size:]
        places = (self.next + torch.arange(len(labels), device=labels.device)) % self.limit
        self.vectors[places] = vectors.to(self.vectors.dtype)
        self.labels[places] = labels
        self.next.copy_((self.next + len(labels)) % self.limit)

    def held(self) -> tuple[Tensor, Tensor]:
        """Vectors and labels; on a GPU with the empty places, since leaving them out would mean to wait for it."""
        n = len(self.labels) if self.labels.is_cuda else int((self.labels >= 0).sum())
        return self.vectors[:n], self.labels[:n]

    def limit_to(self, n: int) -> None:
        """Hold no more than `n` from now on: with more places than examples, most of what it held would be out of date."""
        self.limit.clamp_(max=n)
        self.labels[self.limit :] = -1
        self.next %= self.limit

    def empty(self) -> None:
        self.labels.fill_(-1)
        self.next.zero_()


class Follower(nn.Module):
    """A copy of a network that moves towards it slowly and gets no gradients."""

    def __init__(self, network: nn.Module, momentum: float) -> None:
        super().__init__()
        self.network = deepcopy(network).requires_grad_(False)
        self.momentum = momentum

    @torch.no_grad()
    def follow(self, network: nn.Module) -> None:
        torch._foreach_lerp_(list(self.network.parameters()), list(network.parameters()), 1 - self.momentum)


class Memory(nn.Module):
    """Projections of examples, and others to compare them with: second views and earlier ones, by networks that follow the trained."""

    def __init__(self, model: nn.Module, width: int, size: int, momentum: float) -> None:
        super().__init__()
        head = linear_head(model)
        self.projector = Projector(head.in_features, width)
        self.model_follower = Follower(model, momentum)
        self.projector_follower = Follower(self.projector, momentum)
        self.queue = Queue(size, width)
        # In a list, since the model is no part of this: it is only whom to follow.
        self._model = [model]

    @torch.no_grad()
    def keys(self, step: Step) -> Tensor:
        """Projections of the second view."""
        self.model_follower.follow(self._model[0])
        self.projector_follower.follow(self.projector)
        features = step.forward((step.batch.views[1],), self.model_follower.network).features[0]
        projected: Tensor = self.projector_follower.network(features)
        return projected

    def compare(self, query: Tensor, key: Tensor, labels: Tensor, temperature: float) -> tuple[Tensor, Tensor, Tensor]:
        """Similarities of a batch with itself, its second views and the queue; who has the same label, and who counts at all.

        The keys join the queue for the batches to come.
        """
        n = len(labels)
        vectors, earlier = self.queue.held()
        others = torch.cat([labels, labels, earlier])
        allowed = (others >= 0).repeat(n, 1)
        allowed[:, :n] &= ~torch.eye(n, dtype=torch.bool, device=labels.device)
        same = (labels[:, None] == others[None, :]) & allowed
        # A copy, since the queue moves on before the backward pass.
        similarities = query @ torch.cat([query, key, vectors]).T / temperature
        self.queue.push(key, labels)
        return similarities, same, allowed


def contrastive_loss(similarities: Tensor, positives: Tensor, allowed: Tensor) -> Tensor:
    """Minus the mean log-probability of an anchor's positives among everything it is compared with; a mean over anchors that have any.

    `similarities` is (anchors, others), divided by the temperature; `positives` weighs each of the others, 0 for those that are none;
    `allowed` says which of the others an anchor is compared with at all.
    """
    log_p = torch.log_softmax(similarities.masked_fill(~allowed, -torch.inf), dim=1)
    # Not 0 · −inf, which is no number.
    total = torch.where(positives > 0, positives * log_p.masked_fill(~allowed, 0.0), 0.0).sum(1)
    weight = positives.sum(1)
    found = weight > 0
    means = torch.where(found, total / weight.clamp_min(torch.finfo(weight.dtype).tiny), 0.0)
    return -means.sum() / found.sum().clamp_min(1)
