"""DIRK: labels of a moving average, in which candidates come first."""

import math
from copy import deepcopy

import pytest
import torch
from torch.nn.functional import cross_entropy

from ltpll.errors import InputError
from ltpll.methods import METHODS
from ltpll.methods.dirk import rectified
from ltpll.rebalancers import REBALANCERS
from support.problems import N_CLASSES, attached, inside, naive_softmax, outside, problem, step_of
from support.published_loops import Loop, differences, double_precision, training_of


def naive_labels(logits, among):
    """As published: by the sum of the candidates' probabilities."""
    p = naive_softmax(logits)
    others = [j for j in range(len(p)) if j not in among]
    total = sum(p[j] for j in among)
    if not others:
        return p
    highest = max(p[j] for j in others) / (1 - total) / total
    share = highest / (highest + min(p[j] for j in among) / total)
    return [
        share * p[j] / total if j in among else (1 - share) * p[j] / (1 - total)
        for j in range(len(p))
    ]


def test_every_candidate_is_above_every_other_class_and_their_order_stays():
    p = problem(METHODS["dirk"]())
    logits = p.outputs.logits[0].double()
    labels = rectified(logits, p.candidates)
    for i, row in enumerate(labels.tolist()):
        assert row == pytest.approx(naive_labels(logits[i].tolist(), inside(p.candidates, i)))
        assert sum(row) == pytest.approx(1)
        among, others = inside(p.candidates, i), outside(p.candidates, i)
        for group in (among, others):
            order = sorted(group, key=lambda j: float(logits[i, j]))
            assert order == sorted(group, key=lambda j: row[j])
        if others:
            ratio = min(row[j] for j in among) / max(row[j] for j in others)
            total = sum(naive_softmax(logits[i].tolist())[j] for j in among)
            assert ratio == pytest.approx(1 / total)
            assert ratio >= 1


@pytest.mark.parametrize("scale", [1e3, 1e8])
def test_labels_stay_finite_where_probabilities_are_zero(scale):
    p = problem(METHODS["dirk"](), scale=scale)
    labels = rectified(p.outputs.logits[0], p.candidates)
    torch.testing.assert_close(labels.sum(1), torch.ones(len(labels)))


class DIRKLoop(Loop):
    """A teacher that follows after each step, and for DIRK-REF a list of all earlier vectors."""

    def __init__(self, training):
        super().__init__(training)
        self.teacher = deepcopy(self.model)
        self.followed = [(self.teacher, self.model)]
        if self.method.contrast:
            self.projector = self.method.memory.projector
            self.key = deepcopy(self.projector)
            self.followed.append((self.key, self.projector))
        self.vectors, self.labels, self.sets = [], [], []

    def step(self, rows, views, generator):
        (logits, features), contrast = self.model(views[0]), 0.0
        with torch.no_grad():
            keys = self.key(self.teacher(views[1])[1]) if self.method.contrast else []
            of_teacher = self.teacher(views[0])[0].tolist()
        labels, n = [], len(rows)
        for i, row in enumerate(rows.tolist()):
            among = inside(self.candidates, row)
            labels.append(naive_labels(of_teacher[i], among))
            shown = naive_softmax(logits[i].tolist(), among)
            self.targets[row] = torch.tensor(shown)
        loss = -(torch.tensor(labels) * torch.log_softmax(logits, 1)).sum(1).mean()
        if self.method.contrast:
            query, sets = self.projector(features), self.candidates[rows].tolist()
            vectors = [*query, *keys, *self.vectors]
            names = [*labels, *labels, *self.labels]
            known = [*sets, *sets, *self.sets]
            for i in range(n):
                contrast = contrast + self.of_anchor(i, n, vectors, names, known) / n
            self.vectors, self.labels = [*self.vectors, *keys], [*self.labels, *labels]
            self.sets = [*self.sets, *sets]
        self.train_on(loss + self.method.contrast * contrast)
        with torch.no_grad():
            for follower, leader in self.followed:
                for mine, theirs in zip(follower.parameters(), leader.parameters(), strict=True):
                    mine.copy_(0.99 * mine + 0.01 * theirs)

    def of_anchor(self, i, n, vectors, labels, sets):
        started = self.epoch >= self.method.first_epoch
        compared = [u for u in range(len(vectors)) if u != i]
        if not started:
            compared = [i + n, *range(2 * n, len(vectors))]
        similar = torch.stack([vectors[i] @ vectors[u] for u in compared]) / 0.07
        log_p = torch.log_softmax(similar, 0)
        if not started:
            return -log_p[0]
        weights = [weight_of(labels[i], labels[u], sets[i], sets[u]) for u in compared]
        return -(torch.tensor(weights) * log_p).sum() / sum(weights)


def weight_of(label, other, candidates, candidates_of_other):
    overlap = any(a and b for a, b in zip(candidates, candidates_of_other, strict=True))
    if not overlap or label.index(max(label)) != other.index(max(other)):
        return 0.0
    product = sum(a * b for a, b in zip(label, other, strict=True))
    cosine = product / math.sqrt(sum(a * a for a in label) * sum(b * b for b in other))
    return math.exp(cosine / 0.4)


@pytest.mark.parametrize("contrast", [0.0, 1.0], ids=["DIRK", "DIRK-REF"])
def test_every_epoch_is_that_of_a_plain_loop_over_rows(contrast):
    """The queue is longer than what is seen in these epochs."""
    with double_precision():
        method = METHODS["dirk"](contrast=contrast, width=8, queue=512)
        method.end_epoch = lambda training: None
        found, _ = differences(training_of(method), DIRKLoop)
    assert max(found) < 1e-9


def test_a_rebalancer_acts_on_the_labels_of_the_teacher():
    frequencies = torch.logspace(4, 0, N_CLASSES)
    oracle = REBALANCERS["oracle-la"](frequencies)
    method = attached(METHODS["dirk"]())
    p = problem(method)
    step = step_of(p, oracle)
    loss = method.step_loss(step)
    said = method.teacher.network(p.outputs.features[0])[0].detach()
    adjusted = said - (frequencies / frequencies.sum()).log()
    expected = cross_entropy(p.outputs.logits[0], rectified(adjusted, p.candidates))
    torch.testing.assert_close(loss, expected)


def test_the_queues_of_vectors_and_of_their_labels_are_equally_long_and_no_longer_than_the_data():
    method = METHODS["dirk"](contrast=1.0, width=8, queue=512)
    made = training_of(method)
    differences(made, Loop_without_steps)
    assert torch.equal(method.memory.queue.labels, method.described.labels)
    assert int((method.described.labels >= 0).sum()) == len(made.x)


class Loop_without_steps(Loop):  # noqa: N801
    def step(self, rows, views, generator):
        pass


@pytest.mark.parametrize("options", [{"momentum": 2}, {"queue": 0}, {"sharpness": 0}])
def test_an_impossible_option_is_refused(options):
    with pytest.raises(InputError, match="DIRK"):
        METHODS["dirk"](**options)
