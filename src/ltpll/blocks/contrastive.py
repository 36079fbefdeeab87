"""Pieces of contrastive methods: a projector, a queue, a momentum encoder, prototypes, the loss."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize, one_hot

from ltpll.interfaces import Step, linear_head


class Projector(nn.Sequential):
    """Two linear layers that map features to vectors of unit length."""

    def __init__(self, n_features: int, n_outputs: int) -> None:
        layers = nn.Linear(n_features, n_features), nn.ReLU(), nn.Linear(n_features, n_outputs)
        super().__init__(*layers)

    def forward(self, features: Tensor) -> Tensor:
        return normalize(super().forward(features), dim=1)


class Queue(nn.Module):
    """The last `size` vectors with their labels; an empty place has the label −1."""

    vectors: Tensor
    labels: Tensor
    next: Tensor
    limit: Tensor

    def __init__(self, size: int, width: int) -> None:
        super().__init__()
        self.register_buffer("vectors", torch.zeros(size, width))
        self.register_buffer("labels", torch.full((size,), -1))
        self.register_buffer("next", torch.zeros((), dtype=torch.int64))
        self.register_buffer("limit", torch.tensor(size))

    @torch.no_grad()
    def replace_oldest(self, vectors: Tensor, labels: Tensor) -> None:
        """Replace the oldest vectors by new ones."""
        size = len(self.labels)
        vectors, labels = vectors[-size:], labels[-size:]
        places = (self.next + torch.arange(len(labels), device=labels.device)) % self.limit
        self.vectors[places] = vectors.to(self.vectors.dtype)
        self.labels[places] = labels
        self.next.copy_((self.next + len(labels)) % self.limit)

    def stored_vectors(self) -> tuple[Tensor, Tensor]:
        """Vectors and labels.

        On a GPU with the empty places, since leaving them out would force a synchronisation.
        """
        n = len(self.labels) if self.labels.is_cuda else int((self.labels >= 0).sum())
        return self.vectors[:n], self.labels[:n]

    def shorten_to(self, n: int) -> None:
        """Hold at most `n` vectors from now on: a queue longer than the data set would hold
        outdated copies of the same examples.
        """
        self.limit.clamp_(max=n)
        self.labels[self.limit :] = -1
        self.next %= self.limit

    def forget_all(self) -> None:
        self.labels.fill_(-1)
        self.next.zero_()


class MomentumEncoder(nn.Module):
    """A copy of a network whose weights are an exponential moving average of the network's, without
    gradients.
    """

    def __init__(self, network: nn.Module, momentum: float) -> None:
        super().__init__()
        self.network = deepcopy(network).requires_grad_(False)
        self.momentum = momentum

    @torch.no_grad()
    def follow_network(self, network: nn.Module) -> None:
        followers, followed = tuple(self.network.parameters()), tuple(network.parameters())
        torch._foreach_lerp_(followers, followed, 1 - self.momentum)


class Memory(nn.Module):
    """A projector, and a momentum encoder and queue that provide the vectors to compare its
    projections with.
    """

    def __init__(self, model: nn.Module, width: int, size: int, momentum: float) -> None:
        super().__init__()
        head = linear_head(model)
        self.projector = Projector(head.in_features, width)
        # These two names are part of the checkpoint format.
        self.model_follower = MomentumEncoder(model, momentum)
        self.projector_follower = MomentumEncoder(self.projector, momentum)
        self.queue = Queue(size, width)
        # In a list, so that the model does not become a submodule.
        self._model = [model]

    @torch.no_grad()
    def project_second_view(self, step: Step) -> Tensor:
        """Projections of the second view by the momentum encoder, which is updated first."""
        self.model_follower.follow_network(self._model[0])
        self.projector_follower.follow_network(self.projector)
        features = step.forward((step.batch.views[1],), self.model_follower.network).features[0]
        projected: Tensor = self.projector_follower.network(features)
        return projected

    def compare_and_store(
        self, query: Tensor, key: Tensor, labels: Tensor, temperature: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Compare a batch with itself, its second views and the queue, and add the second views to
        the queue.

        Returns:
            Similarities divided by the temperature, whether both have the same label, and whether
            the pair may be compared at all; each is (batch, batch + batch + queue).
        """
        n = len(labels)
        vectors, earlier = self.queue.stored_vectors()
        others = torch.cat([labels, labels, earlier])
        allowed = (others >= 0).repeat(n, 1)
        allowed[:, :n] &= ~torch.eye(n, dtype=torch.bool, device=labels.device)
        same = (labels[:, None] == others[None, :]) & allowed
        # torch.cat copies, which matters: the queue changes before the backward pass.
        similarities = query @ torch.cat([query, key, vectors]).T / temperature
        self.queue.replace_oldest(key, labels)
        return similarities, same, allowed


def labels_or_own_view(
    by_label: Tensor, positives: Tensor, allowed: Tensor
) -> tuple[Tensor, Tensor]:
    """Positives and comparisons as they are or, where `by_label` is false, those of MoCo.

    The only positive of an example is then its own second view, and all others are those of the
    queue. Both are (batch, batch + batch + queue), as `Memory.compare_and_store` returns them.
    """
    n = len(positives)
    own = torch.eye(n, positives.shape[1] - n, dtype=torch.bool, device=positives.device)
    own = torch.cat([torch.zeros_like(own[:, :n]), own], dim=1)
    in_queue = allowed & (torch.arange(allowed.shape[1], device=allowed.device) >= 2 * n)
    return (
        torch.where(by_label, positives, own.to(positives.dtype)),
        torch.where(by_label, allowed, in_queue | own),
    )


@torch.no_grad()
def move_prototypes(
    prototypes: Tensor, vectors: Tensor, labels: Tensor, momentum: float | Tensor
) -> None:
    """Move the running mean of each class, (classes, width), as if vectors came one by one.

    The means are then scaled to unit length.
    """
    members = one_hot(labels, len(prototypes)).to(vectors.dtype)
    # The vectors of each class that come after this one.
    later = members.flip(0).cumsum(0).flip(0) - members
    weights = members * (1 - momentum) * momentum**later
    kept = momentum ** members.sum(0)
    moved = kept[:, None] * prototypes + weights.T @ vectors
    prototypes.copy_(normalize(moved, dim=1))


def contrastive_loss(similarities: Tensor, positives: Tensor, allowed: Tensor) -> Tensor:
    """The negative mean log-probability of an anchor's positives among all its comparisons,
    averaged over anchors with positives.

    Args:
        similarities: (anchors, others), divided by the temperature.
        positives: (anchors, others), the weight of each positive, 0 elsewhere.
        allowed: (anchors, others), which of the others an anchor is compared with.
    """
    log_p = torch.log_softmax(similarities.masked_fill(~allowed, -torch.inf), dim=1)
    # Without `where`, 0 · −inf would give NaN.
    total = torch.where(positives > 0, positives * log_p.masked_fill(~allowed, 0.0), 0.0).sum(1)
    weight = positives.sum(1)
    found = weight > 0
    means = torch.where(found, total / weight.clamp_min(torch.finfo(weight.dtype).tiny), 0.0)
    return -means.sum() / found.sum().clamp_min(1)
