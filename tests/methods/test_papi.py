"""PaPi: similarities of blends to prototypes agree with the targets."""

import math
import statistics

import pytest
import torch

from ltpll.errors import InputError
from ltpll.methods import METHODS
from ltpll.rebalancers import REBALANCERS
from support.problems import N_CLASSES, attached, inside, naive_softmax, problem, step_of
from support.published_loops import EPOCHS, Loop, differences, double_precision, training_of


class PaPiLoop(Loop):
    """One row after the other; Beta draws as medians of uniform numbers."""

    compared = ("prototypes",)

    def __init__(self, training):
        super().__init__(training)
        self.projector = self.method.projector
        self.prototypes = torch.zeros(4, 8)
        self.kept, self.momentum = 0.99, 0.99

    def step(self, rows, views, generator):
        n = len(rows)
        draws = torch.rand(2 * self.method.alpha - 1, generator=generator).tolist()
        share = statistics.median(draws)
        partner = torch.randperm(n, generator=generator).tolist()
        (weak, weak_features), (strong, strong_features) = (self.model(view) for view in views)
        loss = 0.0
        for i, row in enumerate(rows.tolist()):
            shown = naive_softmax(weak[i].tolist(), inside(self.candidates, row))
            for j in range(4):
                old = float(self.targets[row, j])
                self.targets[row, j] = self.kept * old + (1 - self.kept) * shown[j]
        for i, row in enumerate(rows.tolist()):
            loss = loss - (self.targets[row] * torch.log_softmax(weak[i], 0)).sum() / n
        ramp = min(self.epoch / self.method.ramp_epochs, 1)
        for view in views:
            blends = torch.stack(
                [share * view[i] + (1 - share) * view[partner[i]] for i in range(n)]
            )
            projected = self.projector(self.model(blends)[1])
            log_s = torch.log_softmax(
                projected @ self.prototypes.T.clone() / self.method.temperature, 1
            )
            for i in range(n):
                for part, other in ((share, i), (1 - share, partner[i])):
                    target = self.targets[rows[other]]
                    for j in range(4):
                        w = float(target[j])
                        if w > 0:
                            loss = loss + ramp * part * w * (math.log(w) - log_s[i, j]) / n
        with torch.no_grad():
            for logits, features in ((weak, weak_features), (strong, strong_features)):
                for i, vector in enumerate(self.projector(features)):
                    among = inside(self.candidates, int(rows[i]))
                    label = max(among, key=lambda j, z=logits[i]: float(z[j]))
                    old = self.prototypes[label]
                    self.prototypes[label] = self.momentum * old + (1 - self.momentum) * vector
            lengths = self.prototypes.norm(dim=1, keepdim=True).clamp_min(1e-12)
            self.prototypes = self.prototypes / lengths
        self.train_on(loss)

    def end_epoch(self):
        self.kept = 0.95 + (0.8 - 0.95) * self.epoch / EPOCHS
        self.momentum = 0.9 + (0.5 - 0.9) * self.epoch / EPOCHS
        super().end_epoch()


def test_every_epoch_is_that_of_a_plain_loop_over_rows():
    with double_precision():
        method = METHODS["papi"](width=8, ramp_epochs=2)
        found, _ = differences(training_of(method), PaPiLoop)
    assert max(found) < 1e-6  # views are float32


def test_a_rebalancer_decides_which_prototype_moves_and_where_targets_go():
    frequencies = torch.logspace(4, 0, N_CLASSES)
    method, plain = attached(METHODS["papi"]()), attached(METHODS["papi"]())
    oracle = REBALANCERS["oracle-la"](frequencies)
    p = problem(method)
    before = method.prototypes.clone()
    for one, part in ((method, oracle), (plain, None)):
        one.start_epoch(0, 10)
        one.step_loss(step_of(p, part))
    moved = (method.prototypes - before).norm(dim=1) > 1e-3
    moved_plain = (plain.prototypes - before).norm(dim=1) > 1e-3
    prior = (frequencies / frequencies.sum()).log()
    labels = {
        max(inside(p.candidates, i), key=lambda j: float(z[i, j] - prior[j]))
        for z in p.outputs.logits
        for i in range(len(p.targets))
    }
    expected = torch.tensor([k in labels for k in range(N_CLASSES)])
    scaled = (before.norm(dim=1) - 1).abs() > 1e-3  # all are normalised, also those that stay
    assert torch.equal(moved, expected | scaled)
    assert not torch.allclose(method.prototypes, plain.prototypes)
    assert moved_plain.any()


@pytest.mark.parametrize(
    "options", [{"alpha": 0}, {"temperature": 0}, {"phi": (0.9,)}, {"prototype_momentum": (2, 1)}]
)
def test_an_impossible_option_is_refused(options):
    with pytest.raises(InputError, match="PaPi"):
        METHODS["papi"](**options)
