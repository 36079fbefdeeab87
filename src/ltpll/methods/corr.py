"""CORR (Wu et al., "Revisiting Consistency Regularization for Deep Partial Label Learning", ICML
2022): make all views agree.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import log_softmax

from ltpll.interfaces import Batch, Method, Outputs
from ltpll.settings import Whole
from ltpll.targets import restricted_softmax

EPSILON = 1e-9


class CORR(Method):
    """CORR (Wu et al., ICML 2022): push non-candidates down and pull every view towards the target.

    Targets are the normalised geometric mean of the views' probabilities on the candidates. Where
    sets may lack the true label (`truth_missing`), classes outside S have the weight (1 − w_j)⁴ in
    the first term, so that they are pushed down only as far as they are not taken for the label.
    Differs from the RECORDS authors' code: without RECORDS, theirs restricts targets to the classes
    whose target is above zero, so a candidate whose target was once rounded to zero never returns.

    Formula:
        loss    = Σ_v Σ_{j: w_j=0} −log(|1 − p_vj| + 10⁻⁹)  +  λ Σ_v KL(w ‖ p_v)
                  for the form "records";
                  Σ_{j∉S} −log(|1 − p_1j| + 10⁻⁹)  +  λ · min(e / ramp_epochs, 1) · Σ_v KL(w ‖ p_v)
                  for the form "original"
        targets = softmax_S(mean of ẑ_v over the views v)

    References:
        Dong-Dong Wu, Deng-Bao Wang and Min-Ling Zhang: Revisiting Consistency Regularization for
        Deep Partial Label Learning, ICML 2022. https://proceedings.mlr.press/v162/wu22l.html

    Args:
        form: "records" is CORR as used in the RECORDS paper: a weak and a strong view, both terms
            on both views, λ = 1 from the start. "original" is the ICML 2022 publication: a third
            view, the negative term on the first view only, λ growing linearly, and targets that
            are refined from the first epoch on.
        weight: λ, the weight of the consistency term.
        ramp_epochs: The number of epochs in which λ grows from 0 to `weight`; used by the original
            form only.

    Examples:
        >>> classifier = PartialLabelClassifier(method=CORR(form="original", ramp_epochs=50))
    """

    name = "corr"
    row_by_row = True
    ramp: Tensor

    def __init__(
        self,
        form: Literal["records", "original"] = "records",
        weight: float = 1.0,
        ramp_epochs: Whole = 100,
    ) -> None:
        super().__init__()
        self.form = form
        self.views = ("weak", "strong") if form == "records" else ("weak", "strong", "strong")
        self.warmup_epochs = 1 if form == "records" else 0
        self.weight = weight
        self.ramp_epochs = ramp_epochs
        # A buffer, so that a captured step sees it change between epochs.
        self.register_buffer("ramp", torch.tensor(1.0 if form == "records" else 0.0))

    def start_epoch(self, epoch: int, n_epochs: int) -> None:
        if self.form == "original":
            self.ramp.fill_(min(epoch / self.ramp_epochs, 1.0) if self.ramp_epochs else 1.0)

    def loss(self, outputs: Outputs, targets: Tensor, candidates: Tensor) -> Tensor:
        log_p = log_softmax(torch.stack(outputs.logits), dim=2)  # (views, batch, classes)
        # KL as a difference of two sums, of which the first is that of one view.
        negentropy = (targets * targets.clamp_min(torch.finfo(targets.dtype).tiny).log()).sum()
        agreement = (len(log_p) * negentropy - (targets * log_p).sum()) / len(targets)
        # Zero targets rather than non-candidates: the two differ for blended examples, and the
        # RECORDS paper blends in this form.
        inside = torch.zeros_like(targets)
        if self.form == "records":
            inside = (targets == 0).to(targets.dtype)
        # A class outside a set that may lack the true label is pushed down by (1 − w)⁴. Without the
        # push, a class that is the likeliest one outside many sets spreads to every row; with a
        # full push, labels hardly leave their sets. Squaring twice is faster than a power.
        ruled_out = torch.where(candidates, inside, (1 - targets).square().square())
        pushed = log_p if self.form == "records" else log_p[:1]
        # abs, because rounding can lift p just above 1.
        push = -torch.log((1 - pushed.exp()).abs() + EPSILON)
        return (push * ruled_out).sum() / len(targets) + self.weight * self.ramp * agreement

    def loss_mask(self, batch: Batch) -> Tensor:
        return batch.candidates if batch.given is None else batch.given

    def disambiguate(self, outputs: Outputs, targets: Tensor, candidates: Tensor) -> Tensor:
        # The softmax of the mean logits is the normalised geometric mean of the views' softmaxes.
        return restricted_softmax(torch.stack(outputs.logits).mean(0), candidates)
