"""POP: PRODEN whose sets lose labels for good."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from ltpll.errors import InputError
from ltpll.methods import METHODS
from support.published_loops import Loop, differences, training_of
from support.toy_training import toy, trainer


class POPLoop(Loop):
    """One row after the other, with a window of whole epochs."""

    compared = ("remaining",)

    def __init__(self, training):
        super().__init__(training)
        self.remaining = torch.ones_like(self.candidates)
        self.windows = [torch.zeros_like(self.targets) for _ in range(self.method.window)]
        self.threshold, self.dropped = self.method.threshold, []

    def step(self, rows, views, generator):
        logits = [self.model(view)[0] for view in views]
        loss = sum(cross_entropy(z, self.targets[rows]) for z in logits) / len(views)
        for i, row in enumerate(rows.tolist()):
            kept = [j for j in range(4) if self.candidates[row, j] and self.remaining[row, j]]
            self.targets[row] = 0.0
            self.targets[row, kept] = torch.softmax(logits[0][i, kept].detach(), 0)
        self.train_on(loss)

    def end_epoch(self):
        self.windows[self.epoch % self.method.window] = self.targets.clone()
        if self.epoch >= self.method.first_epoch and self.epoch % self.method.window == 0:
            dropped = 0
            for row in range(len(self.targets)):
                mean = sum(window[row] for window in self.windows) / len(self.windows)
                for j in range(4):
                    if mean[j] > 0 and mean[j] / mean.max() < self.threshold:
                        self.remaining[row, j] = False
                        dropped += 1
                left = [float(mean[j]) if self.remaining[row, j] else 0.0 for j in range(4)]
                self.targets[row] = torch.tensor(left) / sum(left)
            if self.threshold < 0.4 and dropped < 1e-4 * self.targets.numel():
                self.threshold *= 1 + self.method.growth
            self.dropped.append(dropped)
        super().end_epoch()


def test_every_epoch_is_that_of_a_plain_loop_over_rows_and_windows():
    """In eleven epochs, two purifications of which drop labels."""
    loops = []
    method = METHODS["pop"](window=3, first_epoch=5, threshold=0.2, growth=0.5, strong_views=1)

    def made(training):
        loops.append(POPLoop(training))
        return loops[0]

    found, _ = differences(training_of(method, epochs=11), made)
    assert max(found) < 1e-5
    assert len(loops[0].dropped) == 2  # after epochs 6 and 9; 3 is too early
    assert all(loops[0].dropped)


def test_the_threshold_grows_only_after_a_purification_that_drops_few_labels():
    x, _, sets = toy()
    method = METHODS["pop"](window=1, first_epoch=1, threshold=1e-30, growth=0.5)
    trainer(method, epochs=4).fit(x, sets)
    assert float(method.current_threshold) == pytest.approx(1e-30 * 1.5**3)
    assert bool(method.remaining.all())
    method = METHODS["pop"](window=1, first_epoch=0, threshold=0.9, growth=0.5)
    trainer(method, epochs=1).fit(x, sets)
    assert float(method.current_threshold) == pytest.approx(0.9)
    assert not method.remaining.all()


def test_without_strong_views_and_purification_it_is_proden_from_the_first_epoch_on():
    x, _, sets = toy()
    plain = trainer("proden", warmup_epochs=0).fit(x, sets)
    same = trainer(METHODS["pop"](strong_views=0)).fit(x, sets)
    assert torch.equal(plain.targets.values, same.targets.values)
    assert plain.history == same.history


def test_a_set_never_loses_its_likeliest_candidate_and_final_targets_respect_the_sets_that_remain():
    x, _, sets = toy()
    method = METHODS["pop"](window=1, first_epoch=0, threshold=1.0)
    made = trainer(method, epochs=2, drop_last=False).fit(x, sets)
    rows = torch.arange(len(x))
    left = (method.remaining & sets[rows]).sum(1)
    assert left.tolist() == [1] * len(x)
    assert bool(method.remaining[~sets[rows]].all())  # of other classes nothing is said
    final = made.final_targets()[rows]
    torch.testing.assert_close(final.max(1).values, torch.ones(len(x)))


@pytest.mark.parametrize(
    "options", [{"window": 0}, {"threshold": 2}, {"strong_views": -1}, {"first_epoch": 1.5}]
)
def test_an_impossible_option_is_refused(options):
    with pytest.raises(InputError, match="POP"):
        METHODS["pop"](**options)
