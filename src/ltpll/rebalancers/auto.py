"""Auto (ours): the default, an anchor whose bounds and lift are chosen by what the candidate sets say about themselves."""

from __future__ import annotations

from typing import Any

from ltpll.interfaces import Training
from ltpll.rebalancers.anchor import Anchor

FEW_SINGLETONS = 0.2


class Auto(Anchor):
    """Chooses by the candidate sets how the targets' class shares are held, and says what it chose and why (`because`).

    Args:
        prior: As for `Anchor`.
        warmup: As for `Anchor`.

    Example:
        >>> PartialLabelClassifier(rebalancer=Auto(prior="average"))
    """

    name = "auto"

    def __init__(self, prior: Any = "auto", warmup: float = 0.1) -> None:
        super().__init__(prior, warmup=warmup, lift="none")

    def start_training(self, training: Training) -> None:
        super().start_training(training)
        regime = self.prior_.regime
        single = float((training.candidates.sizes == 1).double().mean())
        if regime == "co-occurrence":
            self.lift, self.because = "records", "Rows share their sets in groups, so the class shares are held at the average target."
        elif regime == "independent" and single < FEW_SINGLETONS:
            self.lift, self.because = "records", "Wrong labels join independently, so the class shares are held between bounds."
        else:
            self.lift, self.because = "none", "It is unclear how the sets arose, so only predictions are corrected."
