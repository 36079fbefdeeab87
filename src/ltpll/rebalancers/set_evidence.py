"""Set evidence (ours): targets that also weigh which labels share sets, in the first half of the
training.
"""

from __future__ import annotations

import torch

from ltpll.interfaces import Training
from ltpll.priors.joining import POWER, UNTIL, FadingEvidence, can_weigh
from ltpll.rebalancers.anchor import Anchor
from ltpll.settings import Fraction
from ltpll.targets import floored


class SetEvidence(Anchor):
    """Targets that also weigh which labels share sets, in the first half of training.

    Class shares are not fixed.

    If similar classes join each other's sets, if annotators confuse some classes, or if sets are
    the top answers of a model, then a candidate that often shares its set with the others of the
    set is more probable than one that rarely does. The rates q_yj, with which label j joins a set
    whose true label is y, are read off the sets (`ltpll.priors.joining`). The evidence fades out,
    because a network that fits the targets absorbs it, and a constant one would add up. If wrong
    labels join independently it is noise, so `auto` uses it only where a test rejects that.
    Candidates that have weights of their own, such as votes, are left unchanged.

    Formula:
        targets    from ẑ = z − s log(π̂ + 10⁻⁹) + f · a · log P(S | y)
        log P(S|y) = Σ_{j∈S, j≠y} log q_yj + Σ_{j∉S} log(1 − q_yj)
        s          = 1 in the epochs e < warmup · E, else 0
        f          = max(0, 1 − e / (until · E)), a = power
        prediction = z − log m

    References:
        Ours. That targets should be proportional to P(y | x) P(S | y) is Bayes' rule; consistent
        losses for rates that depend on the classes are in:

        Hongwei Wen, Jingyi Cui, Hanyuan Hang, Jiabin Liu, Yisen Wang and Zhouchen Lin: Leveraged
        Weighted Loss for Partial Label Learning, ICML 2021.
        https://proceedings.mlr.press/v139/wen21a.html

    Args:
        power: The power of the likelihood of a set; 0 for no evidence.
        until: The share of the epochs after which the evidence no longer counts.
        warmup: The share of the epochs in which RECORDS lifts the rare classes. 0.1 helps if sets
            are the answers of a weak model, where nearly all ambiguous rows may go to frequent
            classes, and costs labels elsewhere (docs/beyond.md).

    Examples:
        >>> classifier = PartialLabelClassifier(rebalancer=SetEvidence())
    """

    name = "set-evidence"

    def __init__(
        self, power: Fraction = POWER, until: Fraction = UNTIL, warmup: Fraction = 0.0
    ) -> None:
        super().__init__(warmup=warmup, lift="warm-up")
        self.power, self.until = power, until

    def start_training(self, training: Training) -> None:
        n, candidates = len(training.targets), training.candidates
        self.mean_target.copy_(floored(training.targets.mean(), n))
        self.set_bounds(torch.zeros_like(self.lower), torch.ones_like(self.upper), n)
        self._evidence = None
        if can_weigh(candidates):
            self._evidence = FadingEvidence(candidates, self.power, self.until)
