"""Plain loops that do what the authors' code does, beside whole training runs, with batch norm.

The loops get the trainer's batches and views, and a generator in the same state.
"""

import math
from contextlib import contextmanager
from copy import deepcopy

import torch
from torch import nn

from ltpll.blocks.selection import mixup_partners, mixup_weights
from support.toy_training import classifier, toy, trainer

EPOCHS = 4


class Loop:
    """What all loops share: own weights, targets and SGD.

    `compared` names what both the loop and the method have.
    """

    compared = ()

    def __init__(self, training):
        self.training, self.method = training, deepcopy(training.method)
        self.model = deepcopy(training.model).train()
        self.candidates = training.candidates[torch.arange(len(training.x))]
        sets = self.candidates.to(torch.get_default_dtype())
        self.targets = sets / sets.sum(1, keepdim=True)
        self.epoch = 0
        parameters = [*self.model.parameters(), *self.method.parameters()]
        self.optimizer = torch.optim.SGD(
            [one for one in parameters if one.requires_grad], 0.1, momentum=0.9, weight_decay=1e-3
        )

    def train_on(self, loss):
        self.optimizer.param_groups[0]["lr"] = self.training.optimizer.param_groups[0]["lr"]
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def restricted(self, logits, rows):
        shown = torch.softmax(logits.detach(), 1) * self.candidates[rows]
        return shown / shown.sum(1, keepdim=True)

    def end_epoch(self):
        self.epoch += 1

    def lowest(self, losses, labels, quotas):
        """The rows with the lowest losses of each class."""
        chosen = torch.zeros(len(losses), dtype=torch.bool)
        for k, quota in enumerate(quotas.tolist()):
            members = sorted((labels == k).nonzero().flatten(), key=lambda i: float(losses[i]))
            for i in members[: max(1, math.ceil(quota))]:
                chosen[i] = True
        return chosen

    def blends(self, view, labels, chosen, generator):
        """Blends of the chosen rows only."""
        share, partner = mixup_weights(4, generator), mixup_partners(chosen, generator)
        return tuple(
            (share * values + (1 - share) * values[partner])[chosen] for values in (view, labels)
        )


@contextmanager
def double_precision():
    """Rounding would otherwise grow from step to step to 1e-5 and more."""
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


def differences(training, make_loop):
    """The largest difference of targets, weights and running statistics after each epoch, and the
    mean difference of the targets after the last."""
    x, _, sets = toy()
    training.prepare(x, sets)
    loop, step, found = make_loop(training), training.step, []

    def both(index, views):
        generator = torch.Generator()
        generator.set_state(training.generator.get_state())
        loop.step(index, [view.to(loop.targets.dtype) for view in views], generator)
        return step(index, views)

    training._runner.step = both
    for _ in range(training.epochs):
        training.train_epoch()
        loop.end_epoch()
        targets = training.targets[torch.arange(len(x))]
        ours = [targets, *training.model.state_dict().values()]
        theirs = [loop.targets, *loop.model.state_dict().values()]
        for name in loop.compared:
            ours.append(getattr(training.method, name).float())
            theirs.append(getattr(loop, name).float())
        pairs = zip(ours, theirs, strict=True)
        found.append(max(float((a - b).abs().max()) for a, b in pairs))
    return found, float((targets - loop.targets).abs().mean())


def training_of(method, batch_size=32, epochs=EPOCHS):
    encoder = nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.ReLU())
    return trainer(
        method,
        model=classifier(encoder).to(torch.get_default_dtype()),
        epochs=epochs,
        batch_size=batch_size,
    )
