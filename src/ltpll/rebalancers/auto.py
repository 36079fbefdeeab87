"""Auto (ours): the default, which chooses by the candidate sets how class shares are fixed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from ltpll.candidates import Candidates
from ltpll.interfaces import Training
from ltpll.priors import PriorEstimate
from ltpll.priors.joining import FadingEvidence, can_weigh
from ltpll.rebalancers.anchor import Anchor

# Chosen on tables with real features and simulated sets (docs/beyond.md).
# The share of rows with one candidate above which plain training recovers as many labels.
MANY_SINGLETONS = 0.3
PRECISE = 0.06  # expected L1 error of the estimate below which it is held exactly

PLAIN, AVERAGE = "plain", "average"


class Choice(NamedTuple):
    """What fixes class shares, whether targets weigh which labels share sets, and why."""

    bounds: tuple[Any, Any] | None
    because: str
    weighs: bool = False


class Auto(Anchor):
    """Fixes class shares where the candidate sets say enough, and explains its choice (`because`).

    - Rows share their sets in groups (the objects of a picture): the shares are fixed at the
      average uniform target.
    - Wrong labels join independently, and fewer than 30 % of the sets have a single label: the
      shares are fixed at the most likely estimate or, if its expected L1 error is 0.06 or more,
      kept between the bounds of `anchor` around it.
    - How the sets arose is unclear: the shares are fixed at the average if a comparison on held-out
      rows (`scores`) favours it. Otherwise they are left alone, and if a test rejects that wrong
      labels join independently, targets weigh which labels share sets, as in `set-evidence`.
    - Otherwise targets are left alone.

    RECORDS lifts the rare classes during the warm-up only. Predictions for balanced classes always
    subtract the log of the mean target.

    Formula:
        as `anchor` with lift "warm-up" and the bounds that `prior` asks for or, with prior "auto",
        those of the list above; without bounds, b = 0 and s = 0

    References:
        Ours; it builds on `anchor`, and so on RECORDS.

    Args:
        prior: As for `Anchor`; given shares are used whatever the sets say.
        warmup: As for `Anchor`.

    Examples:
        >>> X, y = four_squares([50, 20, 10, 5], seed=0)
        >>> sets = uniform_candidates(y, n_classes=4, ambiguity=0.3, seed=0)
        >>> classifier = PartialLabelClassifier(rebalancer=Auto(prior="average"), epochs=1)
        >>> classifier.fit(X, sets).choice_
        'Class shares are fixed at the average of the sets, as requested.'
    """

    name = "auto"
    scores: Mapping[str, float] | None = None
    """What free and fixed shares know about held-out sets, in nats (`ltpll.before_training`)."""

    def __init__(self, prior: Any = "auto", warmup: float = 0.1) -> None:
        super().__init__(prior, warmup=warmup)

    def start_training(self, training: Training) -> None:
        super().start_training(training)
        interval, weighable = self.bounds_of(self.prior_), can_weigh(training.candidates)
        choice = choose(self.prior_, interval, self.scores, weighable)
        self.because = choice.because
        self._evidence = FadingEvidence(training.candidates) if choice.weighs else None
        self.lift = "none" if choice.bounds is None else "warm-up"
        n = len(training.targets)
        free = np.zeros_like(self.prior_.lower), np.ones_like(self.prior_.upper)
        lower, upper = free if choice.bounds is None else choice.bounds
        self.set_bounds(lower, upper, n)

    def is_undecided(self, candidates: Candidates) -> bool:
        """Whether the sets alone do not say how to hold the class shares."""
        left_open = isinstance(self.prior, str) and self.prior == "auto"
        return left_open and self.estimate(candidates).regime == "unclear"


def rejects_independence(prior: PriorEstimate) -> bool:
    """Whether a test rejects independent wrong labels, while the origin is unclear."""
    against = any(one.speaks_for == "not independent" for one in prior.evidence)
    return prior.regime == "unclear" and against


def choose(
    prior: PriorEstimate,
    interval: tuple[Any, Any],
    scores: Mapping[str, float] | None = None,
    weighable: bool = False,
) -> Choice:
    """Choose what fixes the class shares of the targets.

    Args:
        prior: What the candidate sets say, or the user.
        interval: The bounds of an anchor around it.
        scores: What shares left alone and shares fixed at the average know about held-out sets, if
            that was measured.
        weighable: Whether targets can weigh which labels share sets.
    """
    centre = (prior.centre, prior.centre)
    at_average = "Class shares are fixed at the average of the sets"
    weighs = weighable and rejects_independence(prior)
    alone = "Targets are not rebalanced"
    if weighs:
        alone = "Class shares are left alone, and labels that often share sets support each other"
    if prior.how == "given":
        return Choice(interval, "Class shares are fixed at the ones that were given.")
    if prior.how == "average":
        return Choice(centre, f"{at_average}, as requested.")
    if prior.how == "sets":
        bounds = "the bounds that the sets' likelihood gives"
        return Choice(interval, f"Class shares are kept between {bounds}, as requested.")
    if prior.regime == "known":
        return Choice(None, "Every row has a single label, so targets need no rebalancing.")
    if prior.regime == "unclear" and scores is not None:
        better = AVERAGE if scores[AVERAGE] > scores[PLAIN] else PLAIN
        other = "shares left alone" if weighs else "plain training"
        known = f"{scores[AVERAGE]:.3f} nats about held-out sets"
        figures = f"{known}, and {other} {scores[PLAIN]:.3f}"
        if better == AVERAGE:
            # Not the estimate, which lies between the average and EM where the regime is unclear.
            return Choice((prior.average,) * 2, f"{at_average}, because that gave {figures}.")
        found = f"fixing shares at the average of the sets gave {figures}"
        return Choice(None, f"{alone}: {found}.", weighs)
    if prior.regime == "unclear":
        why = f"because it is unclear how the sets arose: {prior.because}"
        return Choice(None, f"{alone}, {why}.", weighs)
    if prior.regime == "co-occurrence":
        return Choice(centre, f"{at_average}, because {prior.because}.")
    if prior.singletons >= MANY_SINGLETONS:
        why = f"because {prior.singletons:.0%} of the rows have a single label"
        return Choice(None, f"Targets are not rebalanced, {why}.")
    if prior.expected_error < PRECISE:
        where = "fixed at the most likely ones"
        return Choice(centre, f"Class shares are {where}, because {prior.because}.")
    where = "kept between bounds around the most likely ones"
    return Choice(interval, f"Class shares are {where}, because {prior.because}.")
