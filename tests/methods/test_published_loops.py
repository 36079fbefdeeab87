"""Whole training runs beside plain loops that do what the authors' code does, with batch norm.

The loops get the trainer's batches and views, and a generator in the same state.
"""

import pytest
import torch
from torch.nn.functional import cross_entropy, leaky_relu, log_softmax, normalize

from ltpll.blocks.sinkhorn import sinkhorn
from ltpll.methods import METHODS
from support.published_loops import EPOCHS, Loop, differences, training_of


class SoLarLoop(Loop):
    compared = ("prior",)

    def __init__(self, training):
        super().__init__(training)
        self.prior = torch.full((4,), 0.25)
        self.queue = torch.zeros(0, 4)

    def step(self, rows, views, generator):
        weak, strong = (self.model(view)[0] for view in views)
        matrix = torch.softmax(weak.detach(), 1) * self.candidates[rows]
        earlier = len(self.queue)
        labels = sinkhorn(3 * torch.cat([self.queue, matrix]).log(), self.prior)[earlier:]
        self.queue = torch.cat([self.queue, matrix])[-len(self.targets) :]
        losses = cross_entropy(weak, self.targets[rows], reduction="none")
        if self.epoch == 0:
            loss = losses.mean()
        else:
            share = min(self.epoch / self.method.ramp_epochs, 1)
            on_labels = cross_entropy(weak, labels, reduction="none")
            quotas = len(rows) * self.prior * (0.2 + 0.4 * share)
            chosen = self.lowest(on_labels.detach(), labels.argmax(1), quotas)
            chosen |= (labels * torch.softmax(weak.detach(), 1)).sum(1) > 0.99
            blended, mixed = self.blends(views[0], labels, chosen, generator)
            loss = on_labels[chosen].mean() + cross_entropy(strong[chosen], labels[chosen])
            loss = 0.9 * share * (loss + cross_entropy(self.model(blended)[0], mixed))
            if not chosen.all():
                loss = loss + (1 - 0.9 * share) * losses[~chosen].mean()
        self.targets[rows] = matrix / matrix.sum(1, keepdim=True)
        self.train_on(loss)

    @torch.no_grad()
    def end_epoch(self):
        logits = self.model.eval()(self.training.x)[0]
        self.model.train()
        counts = self.restricted(logits, slice(None)).argmax(1).bincount(minlength=4)
        self.prior = 0.9 * self.prior + 0.1 * counts / counts.sum()
        super().end_epoch()


class HTCLoop(Loop):
    compared = ("prior",)

    def __init__(self, training):
        super().__init__(training)
        self.prior = torch.full((4,), 0.25)

    def step(self, rows, views, generator):
        targets = self.targets[rows]
        (weak, weak_features), (strong, strong_features) = (self.model(view) for view in views)
        tail_weak, tail_strong = self.method.tail(weak_features), self.method.tail(strong_features)
        log_prior = (self.prior + 1e-5).log()
        both = (
            torch.softmax(weak.detach() - log_prior, 1),
            torch.softmax(tail_weak.detach(), 1),
        )
        weights = torch.softmax(leaky_relu(self.method.weighing(torch.cat(both, 1))), 1)
        weights = normalize(weights, dim=1)
        fused = weights[:, :1] * both[0] + weights[:, 1:] * both[1]
        loss = 0.5 * self.epoch / EPOCHS * cross_entropy(fused, targets)
        ramp = min(self.epoch / self.method.ramp_epochs, 1)
        balanced = torch.softmax(weak.detach() - 2 * log_prior, 1)
        uniform = torch.full((4,), 0.25)
        for logits, of_strong, labels, prior in (
            (weak, strong, targets, self.prior),
            (tail_weak, tail_strong, balanced, uniform),
        ):
            loss = loss + cross_entropy(logits, targets)
            if self.epoch == 0:
                continue
            losses = cross_entropy(logits.detach(), labels, reduction="none")
            quotas = len(rows) * prior * (0.2 + 0.4 * ramp)
            chosen = self.lowest(losses, labels.argmax(1), quotas)
            blended, mixed = self.blends(views[0], labels, chosen, generator)
            said, features = self.model(blended)
            said = said if prior is self.prior else self.method.tail(features)
            on_reliable = cross_entropy(of_strong[chosen], labels[chosen])
            loss = loss + 0.9 * ramp * (on_reliable + cross_entropy(said, mixed))
        self.targets[rows] = 0.4 * targets + 0.6 * self.restricted(tail_weak, rows)
        self.train_on(loss)

    def end_epoch(self):
        self.prior = self.targets.mean(0)
        super().end_epoch()


class PiCOLoop(Loop):
    """MoCo's loss and targets that stay until `first_epoch`; only then labels count."""

    def __init__(self, training):
        super().__init__(training)
        self.prototypes = torch.zeros(4, 8)
        self.queue, self.queued = torch.zeros(0, 8), torch.zeros(0, dtype=torch.int64)
        memory = self.method.memory
        self.projector = memory.projector
        self.followers = memory.model_follower.network, memory.projector_follower.network
        self.phi = 0.95

    def step(self, rows, views, generator):
        logits, features = self.model(views[0])
        query, labels = self.projector(features), self.restricted(logits, rows).argmax(1)
        nearest = (query.detach() @ self.prototypes.T).masked_fill(
            ~self.candidates[rows], -torch.inf
        )
        for vector, label in zip(query.detach(), labels, strict=True):
            self.prototypes[label] = 0.99 * self.prototypes[label] + 0.01 * vector
        self.prototypes = normalize(self.prototypes, dim=1)
        with torch.no_grad():
            for follower, leader in zip(self.followers, (self.model, self.projector), strict=True):
                for mine, theirs in zip(follower.parameters(), leader.parameters(), strict=True):
                    mine.copy_(0.9 * mine + 0.1 * theirs)
            key = self.followers[1](self.followers[0](views[1])[1])
        if self.epoch < self.method.first_epoch:
            own = (query * key).sum(1, keepdim=True)
            compared = torch.cat([own, query @ self.queue.T], 1) / 0.07
            contrast = cross_entropy(compared, torch.zeros(len(rows), dtype=torch.int64))
        else:
            onehot = torch.eye(4)[nearest.argmax(1)]
            self.targets[rows] = self.phi * self.targets[rows] + (1 - self.phi) * onehot
            others = torch.cat([query, key, self.queue])
            names = torch.cat([labels, labels, self.queued])
            itself = torch.eye(len(rows), len(names), dtype=torch.bool)
            log_p = log_softmax((query @ others.T / 0.07).masked_fill(itself, -torch.inf), 1)
            same = (names == labels[:, None]) & ~itself
            contrast = -torch.stack([log_p[i][same[i]].mean() for i in range(len(rows))]).mean()
        self.queue, self.queued = torch.cat([self.queue, key]), torch.cat([self.queued, labels])
        self.queue, self.queued = self.queue[-64:], self.queued[-64:]
        self.train_on(cross_entropy(logits, self.targets[rows]) + 0.5 * contrast)

    def end_epoch(self):
        self.phi = 0.95 + (0.8 - 0.95) * self.epoch / EPOCHS
        super().end_epoch()


class CORRLoop(Loop):
    def step(self, rows, views, generator):
        targets = self.targets[rows]
        # These views pass through the network together.
        logits = self.model(torch.cat(views))[0].chunk(3)
        p = torch.softmax(logits[0], 1)
        push = -(1 - p).abs().add(1e-9).log()
        loss = (push * ~self.candidates[rows]).sum() / len(rows)
        for z in logits:
            agreement = torch.xlogy(targets, targets) - targets * log_softmax(z, 1)
            loss = loss + self.epoch / 100 * agreement.sum() / len(rows)
        self.targets[rows] = self.restricted(sum(logits) / 3, rows)
        self.train_on(loss)


@pytest.mark.parametrize(
    ("name", "options", "loop"),
    [("solar", {"estimation_epochs": 0, "queue": 150}, SoLarLoop), ("htc", {}, HTCLoop)],
)
def test_views_and_blends_of_reliable_examples_pass_by_themselves(name, options, loop):
    """Equal in the first epoch. Later, batch norm counts some reliable examples once more than
    others; were all examples blended, the mean difference would be 2e-3."""
    method = METHODS[name](ramp_epochs=4, **options)
    found, apart = differences(training_of(method, batch_size=64), loop)
    assert found[0] < 1e-6
    assert apart < 5e-4


@pytest.mark.parametrize("first_epoch", [0, 1, 2])
def test_pico_starts_as_published(first_epoch):
    method = METHODS["pico"](queue=64, width=8, momentum=0.9, first_epoch=first_epoch)
    found, _ = differences(training_of(method), PiCOLoop)
    assert max(found) < 1e-5


def test_corr_as_published_in_2022_refines_from_the_first_epoch_on():
    found, _ = differences(training_of(METHODS["corr"](form="original")), CORRLoop)
    assert max(found) < 1e-5
