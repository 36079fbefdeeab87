"""Sinkhorn's algorithm in the log domain: labels for many examples at once, so that each class gets its share of them."""

from __future__ import annotations

import torch
from torch import Tensor

LEAST = -1e5  # as a log-score: what no potential in single precision can lift, and yet a number that can be calculated with


def sinkhorn(log_scores: Tensor, prior: Tensor, weights: Tensor | None = None, *, iterations: int = 50, tolerance: float = 1e-6) -> Tensor:
    """The distributions over classes, one for each row, that are closest to the scores while their mean is `prior`.

    `log_scores` is (rows, classes), −inf where a class is ruled out; every row needs a finite one. `weights` is how much each row counts,
    (rows,), all the same without it; a row of weight 0 is labelled too, but the classes' shares do not depend on it.
    The last step is on the side of the rows, which therefore sum to one exactly; the classes' shares are right within `tolerance`, unless
    no labelling gives them (a class may be a candidate of too few rows) or `iterations` run out.
    """
    log_scores = log_scores.to(torch.promote_types(log_scores.dtype, torch.float32))
    allowed = log_scores > -torch.inf
    log_scores = torch.where(allowed, log_scores - log_scores.max(1, keepdim=True).values, -torch.inf)
    log_scores = torch.where(allowed, log_scores.clamp_min(LEAST), -torch.inf)
    if weights is None:
        weights = torch.ones(len(log_scores), device=log_scores.device)
    log_weights = (weights / weights.sum()).log()
    # A class that no weighted row may have cannot get a share: its column is left as it is.
    possible = (allowed & (weights > 0)[:, None]).any(0)
    prior = torch.where(possible, prior.clamp_min(1e-12), 0)
    prior = prior / prior.sum()
    potentials = torch.zeros_like(prior)
    for _ in range(iterations):
        labels = torch.log_softmax(log_scores + potentials, dim=1)
        log_shares = torch.logsumexp(labels + log_weights[:, None], dim=0)
        # Asking a GPU would mean to wait for it, and further iterations only come closer.
        if not log_scores.is_cuda and float((log_shares.exp() - prior).abs().max()) <= tolerance:
            break
        potentials = torch.where(possible, potentials + prior.log() - log_shares, 0.0)
        # Where no labelling gives the shares, potentials would drift apart without end.
        potentials = (potentials - potentials.max()).clamp_min(LEAST)
    return torch.softmax(log_scores + potentials, dim=1)
