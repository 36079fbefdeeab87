"""Anchor (ours): RECORDS lifts the rare classes, then class shares follow the candidate sets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn

from ltpll.candidates import Candidates
from ltpll.errors import InputError
from ltpll.interfaces import Place, Training, linear_head
from ltpll.priors import PriorEstimate, estimate_prior, known_prior
from ltpll.priors.estimate import HOW, How
from ltpll.priors.joining import FadingEvidence
from ltpll.rebalancers.records import RECORDS
from ltpll.settings import Fraction, NotNegative
from ltpll.targets import floored

# Of the logarithmic distance to the bounds that an epoch makes up for; the targets of the next
# epoch follow at once.
STEP = 0.5
DECAY = 0.5  # of the bias of a class between its bounds, per epoch
MOST = 1.0  # the largest distance that counts


def checked_prior(prior: Any) -> Any:
    """The prior that an anchor was given.

    The shares of classes are checked when the classes are known.
    """
    if isinstance(prior, str) and prior not in HOW:
        which = f"The anchor's prior is {prior!r}"
        raise InputError(f"{which}: choose {', '.join(HOW)}, or give the share of each class.")
    return prior


class Anchor(RECORDS):
    """Targets whose class shares stay between bounds that the candidate sets imply.

    A network that fits debiased targets absorbs the class prior again, so RECORDS alone keeps
    pushing the targets towards equal class shares, and unlearns the frequent classes. The candidate
    sets themselves say how frequent the classes can be: `ltpll.estimate_prior` reads bounds off
    them before training. A bias b per class holds the mean target between the bounds: after each
    epoch it moves by half of the logarithmic distance that is missing, and is halved where nothing
    is. RECORDS' prior π̂ is subtracted as `lift` says.

    Formula:
        targets    from ẑ = z − s log(π̂ + 10⁻⁹) + b
        s          = 1 in the epochs in which RECORDS lifts, else 0
        d          = log clamp(m, lower, upper) − log m
        b          ← (½ b where d = 0, else b) + ½ clip(d, −1, 1), then centred;
                     after each epoch with e + 1 ≥ warmup · E
        prediction = z − log m

    References:
        Ours; it builds on RECORDS.

    The defaults are those that `auto` uses. The figures for images were measured with
    bounds="point", warmup=0.5 and lift="records" (`ltpll-research benchmark --recipe best`).

    Args:
        prior: "auto" chooses by how the sets arose; "sets" is their likelihood, for wrong labels
            that join independently; "average" is the mean of uniform targets, for sets that rows of
            a picture or scene share; or the known share of each class, or bounds of it (see
            `ltpll.priors.known_prior`).
        bounds: "interval" lets shares move between the bounds; "point" holds them at the centre of
            the estimate.
        width: The width of the interval in standard deviations, to both sides.
        warmup: The share of the epochs before the bounds hold.
        lift: When RECORDS' prior is subtracted: "warm-up" only before the bounds hold, "records"
            always, "none" never.
        momentum: RECORDS' momentum.

    Examples:
        >>> classifier = PartialLabelClassifier(rebalancer=Anchor(prior="average", bounds="point"))
    """

    name = "anchor"
    bias: Tensor
    lower: Tensor
    upper: Tensor
    mean_target: Tensor
    strength: Tensor

    def __init__(
        self,
        prior: Any = "auto",
        bounds: Literal["interval", "point"] = "interval",
        width: NotNegative = 2.0,
        warmup: Fraction = 0.1,
        lift: Literal["records", "warm-up", "none"] = "warm-up",
        momentum: Fraction = 0.9,
    ) -> None:
        super().__init__(momentum)
        self.prior, self.bounds, self.width = checked_prior(prior), bounds, width
        self.warmup, self.lift = warmup, lift
        self._evidence: FadingEvidence | None = None  # of subclasses
        self._holds = False

    def attach(self, model: nn.Module) -> None:
        super().attach(model)
        n_classes, device = linear_head(model).out_features, self.mean_feature.device
        self.register_buffer("bias", torch.zeros(n_classes, device=device))
        self.register_buffer("lower", torch.zeros(n_classes, device=device))
        self.register_buffer("upper", torch.ones(n_classes, device=device))
        self.register_buffer("strength", torch.zeros((), device=device))
        self.register_buffer("mean_target", torch.full((n_classes,), 1 / n_classes, device=device))

    def start_training(self, training: Training) -> None:
        n = len(training.targets)
        self.mean_target.copy_(floored(training.targets.mean(), n))
        self.prior_ = self.estimate(training.candidates, training.truth_missing)
        self.set_bounds(*self.bounds_of(self.prior_), n)

    def set_bounds(self, lower: Any, upper: Any, n: int) -> None:
        """Set the bounds.

        Each class counts as at least half an example of n, since its logarithm is taken.
        """
        self.lower.copy_(floored(torch.as_tensor(lower, device=self.lower.device), n))
        self.upper.copy_(floored(torch.as_tensor(upper, device=self.upper.device), n))

    def estimate(
        self, candidates: Candidates, missing: float | Sequence[float] = 0.0
    ) -> PriorEstimate:
        """The class prior that the candidate sets imply, or the one that was given."""
        if not isinstance(self.prior, str):
            return known_prior(candidates, self.prior)
        how = cast(How, self.prior)
        return estimate_prior(candidates, how=how, width=self.width, missing=missing)

    def bounds_of(self, prior: PriorEstimate) -> tuple[Any, Any]:
        """The bounds that hold the class shares of the targets."""
        if self.bounds == "point":
            return prior.centre, prior.centre
        if prior.how == "given" or prior.regime == "unclear":
            return prior.lower, prior.upper
        # A class whose bound is zero would be free to vanish: it keeps what a share that is
        # estimated as zero is on average.
        usual = math.sqrt(2 / math.pi) * prior.deviation
        return np.maximum(prior.lower, np.minimum(usual, prior.upper)), prior.upper

    def start_epoch(self, epoch: int, n_epochs: int) -> None:
        self._holds = epoch + 1 >= self.warmup * n_epochs
        warming_up = self.lift == "warm-up" and epoch < self.warmup * n_epochs
        self.strength.fill_(float(self.lift == "records" or warming_up))
        if self._evidence is not None:
            self._evidence.start_epoch(epoch, n_epochs)

    def evidence(self, index: Tensor) -> Tensor | None:
        return None if self._evidence is None else self._evidence[index]

    def end_epoch(self, training: Training) -> None:
        self.mean_target.copy_(floored(training.targets.mean(), len(training.targets)))
        if self._holds:
            missing = self.mean_target.clamp(self.lower, self.upper).log() - self.mean_target.log()
            # Between the bounds the bias decays: a constant one would be absorbed again and again,
            # and push the share to the other bound.
            step = STEP * missing.clamp(-MOST, MOST)
            self.bias.mul_(torch.where(missing == 0, DECAY, 1.0)).add_(step)
            self.bias -= self.bias.mean()

    def log_prior(self, head: nn.Linear) -> Tensor:
        return self.mean_target.log()

    @torch.no_grad()
    def subtracted(self, place: Place, head: nn.Linear) -> Tensor:
        if place == "prediction":
            return self.log_prior(head)
        return self.strength * super().log_prior(head) - self.bias
