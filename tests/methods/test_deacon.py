"""DEACON: two encoders, consistency, contrasts for head and tail, selection among all examples."""

import math
from copy import deepcopy

import numpy as np
import pytest
import torch
from scipy.special import ive
from torch import nn
from torch.nn.functional import leaky_relu

from ltpll.blocks.selection import mixup_partners, mixup_weights
from ltpll.errors import InputError
from ltpll.interfaces import linear_head
from ltpll.methods import METHODS
from ltpll.methods.deacon import TwoEncoders, class_logits, scaled_log_bessel
from ltpll.models import FineTune, build_model
from ltpll.testing import checks_of
from support.published_loops import EPOCHS, Loop, differences, double_precision
from support.tiny_backbones import tiny_backbone
from support.toy_training import classifier, trainer

EVERYTHING = METHODS["deacon"](contrast_from=(1, 2), ramp_epochs=3)


@pytest.mark.parametrize("name", checks_of(EVERYTHING))
def test_promises_hold_where_all_its_losses_are_used(name):
    checks_of(EVERYTHING)[name]()


@pytest.mark.parametrize(("order", "error"), [(63.0, 1e-9), (31.0, 1e-7), (7.0, 1e-5)])
def test_the_bessel_term_is_scipys(order, error):
    x = np.array([0.5, 3.0, 20.0, 63.0, 200.0, 2e3, 1e4, 1e5])
    found = scaled_log_bessel(torch.from_numpy(x) ** 2, order)
    assert found.numpy() == pytest.approx(np.log(ive(order, x)) + x - order * np.log(x), abs=error)


def test_the_bessel_term_and_its_slope_have_the_limits_of_the_power_series_at_zero():
    squares = torch.zeros((), dtype=torch.float64, requires_grad=True)
    found = scaled_log_bessel(squares, 63.0)
    assert float(found.detach()) == pytest.approx(-63 * math.log(2) - math.lgamma(64), abs=1e-9)
    found.backward()
    assert float(squares.grad) == pytest.approx(1 / 4 / 64, rel=1e-7)


def naive_class_logits(vector, means):
    """By scipy, and by adding vectors."""
    width, found = len(vector), []
    order = width / 2 - 1

    def scaled(x):
        return math.log(ive(order, x)) + x - order * math.log(x)

    for mean in means:
        length = math.sqrt(sum(m * m for m in mean))
        kappa = min(width * length / (1 - length**2), 1e5)
        moved = [kappa * m / length + v / 0.1 for m, v in zip(mean, vector, strict=True)]
        found.append(scaled(math.sqrt(sum(x * x for x in moved))) - scaled(kappa))
    return found


@pytest.mark.parametrize("length", [0.05, 0.5, 0.97, 0.99999])
def test_class_logits_are_the_published_formula_with_scipys_bessel_function(length):
    g = torch.Generator().manual_seed(0)
    vectors, means = (
        nn.functional.normalize(torch.randn(n, 128, generator=g, dtype=torch.float64), dim=1)
        for n in (4, 3)
    )
    found = class_logits(vectors, length * means).tolist()
    for i, row in enumerate(found):
        expected = naive_class_logits(vectors[i].tolist(), (length * means).tolist())
        assert row == pytest.approx(expected, abs=1e-5)


def test_classes_without_examples_and_means_of_unit_length_have_finite_logits_and_gradients():
    vectors = torch.eye(3, 16).requires_grad_()
    means = torch.stack([torch.zeros(16), torch.eye(16)[0], -torch.eye(16)[0]])
    logits = class_logits(vectors, means)
    logits.logsumexp(1).sum().backward()
    assert torch.isfinite(logits).all()
    assert torch.isfinite(vectors.grad).all()
    assert int(logits[0].argmax()) == 1


class DEACONLoop(Loop):
    """Each encoder by itself, each loss row by row, and a look at all rows after each epoch."""

    compared = ("prior", "means", "reliable")

    def __init__(self, training):
        super().__init__(training)
        self.prior = torch.full((4,), 0.25)
        self.means = torch.zeros(4, self.method.width)
        self.seen = [[] for _ in range(4)]
        self.reliable = torch.zeros(len(self.targets), dtype=torch.bool)

    def encoded(self, view):
        (head, features), (_, others) = self.model.first(view), self.model.second(view)
        tail = others @ self.method.tail.weight.T + self.method.tail.bias
        return head, tail, features, others

    @property
    def log_prior(self):
        return (self.prior + 1e-5).log()

    @property
    def ramp(self):
        return min(self.epoch / self.method.ramp_epochs, 1)

    def step(self, rows, views, generator):
        n, targets = len(rows), self.targets[rows]
        seen = [self.encoded(view) for view in views]
        weak, strong = seen[0][:2], seen[1][:2]
        balanced = torch.softmax(weak[0].detach() - 2 * self.log_prior, 1)
        loss = self.of_fusion([z.detach() for z in weak], targets)
        for k, labels in enumerate((targets, balanced)):
            loss = loss + ce(weak[k], targets, range(n))
            if self.epoch == 0:
                continue
            if k == 1 and self.epoch >= self.method.contrast_from[0]:
                chosen = self.reliable[rows]
            else:
                losses = [float(ce(weak[k].detach(), labels, [i])) for i in range(n)]
                prior = self.prior if k == 0 else torch.full((4,), 0.25)
                quotas = n * prior * (0.2 + 0.4 * self.ramp)
                chosen = self.lowest(losses, labels.argmax(1), quotas)
            share, partner = mixup_weights(4, generator), mixup_partners(chosen, generator)
            blended = share * views[0] + (1 - share) * views[0][partner]
            mixed = share * labels + (1 - share) * labels[partner]
            among = chosen.nonzero().flatten().tolist()
            on_reliable = ce(strong[k], labels, among) + ce(self.encoded(blended)[k], mixed, among)
            loss = loss + 0.9 * self.ramp * on_reliable
        for k in (0, 1):
            loss = loss + 10 * self.dissimilarity(k, seen[0][2 + k], seen[2][2 + k])
        names, tail_names = targets.argmax(1).tolist() * 2, balanced.argmax(1).tolist() * 2
        vectors = [
            projector(torch.cat([seen[0][2 + k], seen[2][2 + k]]))
            for k, projector in enumerate(self.method.projectors)
        ]
        for vector, name in zip(vectors[1].detach(), tail_names, strict=True):
            self.seen[name].append(vector)
        for j, each in enumerate(self.seen):
            if each:
                self.means[j] = torch.stack(each).mean(0)
        if self.epoch >= self.method.contrast_from[0]:
            for i, vector in enumerate(vectors[0]):
                others = [u for u in range(2 * n) if u != i]
                log_p = torch.log_softmax(vectors[0][others] @ vector / 0.1, 0)
                same = [at for at, u in enumerate(others) if names[u] == names[i]]
                loss = loss - 0.1 / 0.07 * log_p[same].mean() / (2 * n)
        if self.epoch >= self.method.contrast_from[1]:
            loss = loss + self.of_classes(vectors[1], tail_names)
        shown = self.restricted(weak[1], rows)
        self.targets[rows] = 0.4 * targets + 0.6 * shown
        self.train_on(loss)

    def of_fusion(self, logits, targets):
        both = torch.softmax(logits[0] - self.log_prior, 1), torch.softmax(logits[1], 1)
        weights = torch.softmax(leaky_relu(self.method.weighing(torch.cat(both, 1))), 1)
        weights = weights / weights.norm(dim=1, keepdim=True)
        fused = weights[:, :1] * both[0] + weights[:, 1:] * both[1]
        return 0.5 * self.epoch / EPOCHS * ce(fused, targets, range(len(targets)))

    def dissimilarity(self, k, one, other):
        similar, predicting, total = self.method.similar[k], self.method.predicting[k], 0.0
        for a, b in ((one, other), (other, one)):
            p, z = predicting(similar(a)), similar(b).detach()
            total = total - ((p * z).sum(1) / (p * p).sum(1).sqrt() / (z * z).sum(1).sqrt()).mean()
        return total / 2

    def of_classes(self, vectors, names):
        """With the tested term, of which scipy has no slopes."""
        total, order, width = 0.0, self.method.width / 2 - 1, self.method.width
        lengths = (self.means * self.means).sum(1).sqrt()
        kappas = (width * lengths / (1 - lengths**2)).clamp(max=1e5)
        centres = (kappas / lengths.clamp(min=1e-12))[:, None] * self.means
        own = scaled_log_bessel(kappas**2, order)
        for vector, name in zip(vectors, names, strict=True):
            moved = centres + vector / 0.1
            logits = scaled_log_bessel((moved * moved).sum(1), order) - own
            total = total - torch.log_softmax(logits, 0)[name]
        return total / len(vectors)

    @torch.no_grad()
    def end_epoch(self):
        self.prior = self.targets.mean(0)
        if self.epoch + 1 >= self.method.contrast_from[0]:
            head, tail = self.encoded(self.training.x.to(self.targets.dtype))[:2]
            labels = torch.softmax(head - 2 * self.log_prior, 1)
            losses = [float(ce(tail, labels, [i])) for i in range(len(labels))]
            quotas = torch.full((4,), len(labels) / 4 * (0.2 + 0.4 * self.ramp))
            self.reliable = self.lowest(losses, labels.argmax(1), quotas)
        super().end_epoch()


def ce(logits, labels, who):
    each = -(labels * torch.log_softmax(logits, 1)).sum(1)
    return each[list(who)].sum() / max(len(who), 1)


def test_every_epoch_is_that_of_a_plain_loop_over_rows():
    """The first epoch without reliable examples, then each part that is added later."""
    with double_precision():
        encoder = nn.Sequential(nn.Linear(2, 8), nn.Tanh())
        method = METHODS["deacon"](contrast_from=(2, 3), ramp_epochs=3, width=16)
        made = trainer(method, model=classifier(encoder).double(), epochs=EPOCHS)
        found, _ = differences(made, DEACONLoop)
    assert method.phase == (True, True, True)
    assert method.reliable.any()
    assert max(found) < 1e-7  # the prior is kept in single precision


def test_the_head_is_that_of_the_first_encoder_also_in_a_copy():
    model = build_model("mlp", 0, n_inputs=2, n_classes=4, hidden=(8,))
    for network in (TwoEncoders(model), deepcopy(TwoEncoders(model)).double()):
        x = torch.randn(5, 2, dtype=network.head.weight.dtype)
        logits, features = network(x)
        head = linear_head(network)
        assert features.shape == (5, head.in_features)
        assert head.weight is network.first.head.weight
        torch.testing.assert_close(head(features), logits)


def test_a_backbone_is_refused():
    model = FineTune(tiny_backbone())((3, 8, 8), 4)
    with pytest.raises(InputError, match="cannot be fine-tuned"):
        trainer("deacon", model=model)


@pytest.mark.parametrize(
    "options", [{"tau": -1}, {"contrast_from": (5,)}, {"consistency": -1}, {"width": 4}]
)
def test_an_impossible_option_is_refused(options):
    with pytest.raises(InputError, match="DEACON"):
        METHODS["deacon"](**options)
