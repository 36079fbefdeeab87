"""A method with state per example: PRODEN whose sets lose improbable labels for good."""

import torch
from torch.nn.functional import cross_entropy

from ltpll.interfaces import Method
from ltpll.targets import restricted_softmax

LEAST = 0.3  # of the largest target of a row; a label below it is ruled out after the epoch


class Purifying(Method):
    name = "purifying"
    warmup_epochs = 0
    per_example = ("remaining", "times_seen", "last_loss")

    def start_training(self, training):
        n, device = len(training.targets), training.targets.values.device
        allowed = torch.ones(n, training.candidates.n_classes, dtype=torch.bool, device=device)
        self.register_buffer("remaining", allowed)
        self.register_buffer("times_seen", torch.zeros(n, dtype=torch.int64, device=device))
        self.register_buffer("last_loss", training.targets.values.new_zeros(n))

    def remaining_classes(self, rows):
        return self.remaining[rows]

    def loss(self, outputs, targets, candidates):
        return cross_entropy(outputs.logits[0], targets)

    def disambiguate(self, outputs, targets, candidates):
        return restricted_softmax(outputs.logits[0], candidates)

    def step_loss(self, step):
        losses = cross_entropy(step.outputs.logits[0], step.batch.targets, reduction="none")
        self.times_seen[step.rows] += 1
        self.last_loss[step.rows] = losses.detach()
        return losses.mean()

    def end_epoch(self, training):
        rows = torch.arange(len(self.remaining), device=self.remaining.device)
        targets = training.targets[rows]
        self.remaining &= targets >= LEAST * targets.max(1, keepdim=True).values
        left = targets * self.remaining
        training.targets[rows] = left / left.sum(1, keepdim=True)
