"""ALIM: PiCO whose labels can leave sets that lack the true label."""

import math
import statistics
from copy import deepcopy

import pytest
import torch

from ltpll.errors import InputError
from ltpll.methods import METHODS
from support.problems import naive_softmax
from support.published_loops import EPOCHS, Loop, differences, double_precision, training_of
from support.toy_training import toy, trainer


class ALIMLoop(Loop):
    """One row after the other; the partner of a blend is from the same batch."""

    compared = ("labels", "prototypes", "outside")

    def __init__(self, training):
        super().__init__(training)
        self.labels = self.targets.clone()
        self.prototypes = torch.zeros(4, 8)
        self.outside, self.margins, self.phi = torch.zeros(()), {}, 0.95
        self.projector = self.method.memory.projector
        self.followers = deepcopy(self.model), deepcopy(self.projector)
        self.vectors, self.names, self.lambdas = [], [], []

    def weights(self, row):
        weight = float(self.outside)
        return [1.0 if self.candidates[row, j] else weight for j in range(4)]

    def step(self, rows, views, generator):
        n, before = len(rows), self.prototypes.clone()
        logits, features = self.model(views[0])
        query, likely = self.projector(features), []
        for i, row in enumerate(rows.tolist()):
            weights = self.weights(row)
            p = naive_softmax(logits[i].tolist())
            likely.append(max(range(4), key=lambda j, p=p, m=weights: p[j] * m[j]))
            near = naive_softmax((query[i].detach() @ before.T / 0.07).tolist())
            within = [near[j] for j in range(4) if self.candidates[row, j]]
            without = [near[j] for j in range(4) if not self.candidates[row, j]]
            self.margins[row] = max(within) / (1e-9 + max([0.0, *without]))
            shares = [r * m for r, m in zip(near, weights, strict=True)]
            if self.method.form == "onehot":
                shares = [float(j == shares.index(max(shares))) for j in range(4)]
            if self.epoch >= self.method.first_epoch:
                found = torch.tensor(shares) / sum(shares)
                self.labels[row] = self.phi * self.labels[row] + (1 - self.phi) * found
                kept = self.labels[row] * self.candidates[row]
                self.targets[row] = kept / kept.sum()
            old = self.prototypes[likely[i]]
            self.prototypes[likely[i]] = 0.99 * old + 0.01 * query[i].detach()
        lengths = self.prototypes.norm(dim=1, keepdim=True).clamp_min(1e-12)
        self.prototypes = self.prototypes / lengths
        with torch.no_grad():
            leaders = self.model, self.projector
            for follower, leader in zip(self.followers, leaders, strict=True):
                for mine, theirs in zip(follower.parameters(), leader.parameters(), strict=True):
                    mine.copy_(0.9 * mine + 0.1 * theirs)
            keys = self.followers[1](self.followers[0](views[1])[1])
        vectors, names = [*query, *keys, *self.vectors], [*likely, *likely, *self.names]
        contrast = sum(self.of_anchor(i, vectors, names) for i in range(n)) / n
        self.vectors = [*self.vectors, *keys][-64:]
        self.names = [*self.names, *likely][-64:]
        draw = statistics.median(torch.rand(7, generator=generator).tolist())
        share, partner = max(draw, 1 - draw), torch.randperm(n, generator=generator)
        labels = self.labels[rows]
        blended = self.model(share * views[0] + (1 - share) * views[0][partner])[0]
        mixed = share * labels + (1 - share) * labels[partner]
        loss = -(labels * torch.log_softmax(logits, 1)).sum(1).mean()
        loss = loss - (mixed * torch.log_softmax(blended, 1)).sum(1).mean()
        self.train_on(loss + 0.5 * contrast)

    def of_anchor(self, i, vectors, names):
        others = [u for u in range(len(vectors)) if u != i]
        similar = torch.stack([vectors[i] @ vectors[u] for u in others]) / 0.07
        log_p = torch.log_softmax(similar, 0)
        same = [place for place, u in enumerate(others) if names[u] == names[i]]
        return -log_p[same].mean()

    def end_epoch(self):
        self.phi = 0.95 + (0.8 - 0.95) * self.epoch / EPOCHS
        if self.epoch >= self.method.estimate_from:
            margins = sorted(self.margins.get(row, 1.0) for row in range(len(self.targets)))
            found = margins[int(len(margins) * self.method.missing)]
            self.outside = torch.tensor(min(1.0, found))
            self.lambdas.append(float(self.outside))
        super().end_epoch()


@pytest.mark.parametrize("form", ["onehot", "scale"])
def test_every_epoch_is_that_of_a_plain_loop_over_rows(form):
    loops = []

    def made(training):
        loops.append(ALIMLoop(training))
        return loops[0]

    with double_precision():
        method = METHODS["alim"](
            missing=0.05, form=form, estimate_from=1, queue=64, width=8, momentum=0.9
        )
        found, _ = differences(training_of(method), made)
    assert max(found) < 1e-6  # views are float32
    assert len(loops[0].lambdas) == 3
    assert all(0 < weight < 1 for weight in loops[0].lambdas), loops[0].lambdas


def test_lambda_stays_zero_and_labels_in_their_sets_if_no_set_lacks_the_true_label():
    x, _, sets = toy()
    method = METHODS["alim"](estimate_from=0, queue=64)
    trainer(method, epochs=3).fit(x, sets)
    assert float(method.outside) == 0
    assert not (method.labels * ~sets[torch.arange(len(x))]).any()


def test_labels_leave_sets_that_lack_the_true_label_and_targets_do_not():
    x, y, sets = toy()
    matrix = sets[torch.arange(len(x))].clone()
    lacking = torch.arange(len(x)) % 4 == 0
    matrix[lacking, torch.from_numpy(y)[lacking]] = False
    matrix[lacking, (torch.from_numpy(y)[lacking] + 1) % 4] = True
    method = METHODS["alim"](missing=0.25, estimate_from=5, queue=64)
    made = trainer(method, epochs=30, lr=0.2, drop_last=False).fit(x, matrix)
    assert 0 < float(method.outside) <= 1
    found = method.labels.argmax(1).numpy() == y
    assert found[lacking.numpy()].mean() > 0.5
    targets = made.targets[torch.arange(len(x))]
    assert not (targets * ~matrix).any()


def test_a_label_that_has_left_its_set_altogether_counts_the_candidates_equally():
    labels = torch.tensor([[0.0, 0.0, 1.0], [0.2, 0.3, 0.5]])
    candidates = torch.tensor([[True, True, False], [True, True, False]])
    inside = METHODS["alim"]._inside(labels, candidates)
    torch.testing.assert_close(inside, torch.tensor([[0.5, 0.5, 0.0], [0.4, 0.6, 0.0]]))
    assert math.isclose(float(inside.sum()), 2.0, rel_tol=1e-6)


@pytest.mark.parametrize("options", [{"missing": 1.5}, {"form": "mean"}, {"alpha": 0}])
def test_an_impossible_option_is_refused(options):
    with pytest.raises(InputError, match="ALIM"):
        METHODS["alim"](**options)
