"""The public checks find parts that break a promise, and say which."""

import pytest
import torch
from torch.nn.functional import cross_entropy

from ltpll.errors import InputError
from ltpll.interfaces import Extra, Rebalancer
from ltpll.methods import PRODEN
from ltpll.rebalancers import OracleLA
from ltpll.testing import check_part, checks_of


class Unnormalised(PRODEN):
    name = "unnormalised"

    def disambiguate(self, outputs, targets, candidates):
        return super().disambiguate(outputs, targets, candidates) / 2


class Overflowing(PRODEN):
    name = "overflowing"

    def disambiguate(self, outputs, targets, candidates):
        shown = torch.exp(outputs.logits[0]) * candidates
        return shown / shown.sum(1, keepdim=True)


class FirstClass(PRODEN):
    name = "first-class"

    def disambiguate(self, outputs, targets, candidates):
        first = torch.nn.functional.one_hot(candidates.float().argmax(1), candidates.shape[1])
        return first.float()


class Forgetful(PRODEN):
    name = "forgetful"

    def __init__(self):
        super().__init__()
        self.steps = 0  # not in a buffer

    def loss(self, outputs, targets, candidates):
        self.steps += 1
        return super().loss(outputs, targets, candidates) * (1 + self.steps)


class Reading(PRODEN):
    name = "reading"

    def loss(self, outputs, targets, candidates):
        loss = super().loss(outputs, targets, candidates)
        return loss if float(loss.detach()) < 100 else loss / 2


class Summed(PRODEN):
    name = "summed"

    def loss(self, outputs, targets, candidates):
        return cross_entropy(outputs.logits[0], targets, reduction="sum")


class Upward(PRODEN):
    name = "upward"

    def loss(self, outputs, targets, candidates):
        return -cross_entropy(outputs.logits[0], targets)


class Rounded(PRODEN):
    name = "rounded"

    def __init__(self, digits=2.5):
        super().__init__()
        self.digits = int(digits)


class Infinite(Rebalancer):
    name = "infinite"
    places = frozenset({"prediction"})

    def log_prior(self, head):
        return torch.zeros(head.out_features).log()


class Masked(Extra):
    name = "masked"

    def loss(self, method, step, added, added_outputs):
        logits = step.outputs.logits[0]
        return logits[logits > 0].mean()


@pytest.mark.parametrize(
    ("part", "check", "says"),
    [
        (Unnormalised, "targets_are_distributions_and_numbers_finite", "not close"),
        (Overflowing, "targets_are_distributions_and_numbers_finite", "not finite"),
        (FirstClass, "renaming_the_classes_renames_the_targets", "not close"),
        (Forgetful, "a_resumed_training_ends_like_an_undisturbed_one", "other losses"),
        (Reading, "steps_can_be_recorded_as_cuda_graphs", "cannot record _local_scalar_dense"),
        (Masked, "steps_can_be_recorded_as_cuda_graphs", "cannot record index"),
        (Summed, "the_loss_is_a_mean_over_examples", "not close"),
        (Upward, "the_loss_moves_probability_onto_candidates", "lowers candidates"),
        (Rounded, "options_can_be_read_and_copied", "changes its options"),
        (Infinite, "targets_are_distributions_and_numbers_finite", "the log-prior is"),
    ],
)
def test_a_broken_promise_is_found(part, check, says):
    with pytest.raises((AssertionError, InputError)) as caught:
        checks_of(part)[check]()
    assert says in str(caught.value)
    with pytest.raises((AssertionError, InputError)):
        check_part(part)


def test_a_part_that_knows_the_class_sizes_is_given_some():
    check_part(OracleLA)


def test_an_object_is_checked_with_its_options_and_stays_as_it_is():
    part = PRODEN()
    check_part(part)
    assert not part.state_dict()
