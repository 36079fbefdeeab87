"""Sinkhorn's algorithm in the log domain: labels such that each class gets its share."""

from __future__ import annotations

import torch
from torch import Tensor

# Stands for −inf as a log-score: small enough that no potential compensates for it, but finite.
LEAST = -1e5


def sinkhorn(
    log_scores: Tensor,
    prior: Tensor,
    weights: Tensor | None = None,
    *,
    iterations: int = 50,
    tolerance: float = 1e-6,
) -> Tensor:
    """Find the distributions over classes closest to the scores whose mean is `prior`.

    The last update normalises the rows, which therefore sum to one exactly. The class shares are
    right within `tolerance`, unless they are infeasible (a class may be a candidate of too few
    rows) or `iterations` are not enough.

    Args:
        log_scores: (rows, classes), −inf where a class is ruled out; each row needs a finite score.
        prior: (classes,), the share of each class.
        weights: (rows,), the weight of each row in the class shares, by default equal; a row with
            weight 0 is labelled all the same.
        iterations: The largest number of iterations.
        tolerance: Iterations stop when every class share is within this distance of the prior (on a
            CPU only).

    Returns:
        (rows, classes), the labels.
    """
    log_scores = log_scores.to(torch.promote_types(log_scores.dtype, torch.float32))
    allowed = log_scores > -torch.inf
    highest = log_scores.max(1, keepdim=True).values
    log_scores = torch.where(allowed, log_scores - highest, -torch.inf)
    log_scores = torch.where(allowed, log_scores.clamp_min(LEAST), -torch.inf)
    if weights is None:
        weights = torch.ones(len(log_scores), device=log_scores.device)
    log_weights = (weights / weights.sum()).log()
    # A class that is ruled out for every weighted row cannot get a share: its column stays as it
    # is.
    possible = (allowed & (weights > 0)[:, None]).any(0)
    prior = torch.where(possible, prior.clamp_min(1e-12), 0)
    prior = prior / prior.sum()
    potentials = torch.zeros_like(prior)
    for _ in range(iterations):
        labels = torch.log_softmax(log_scores + potentials, dim=1)
        log_shares = torch.logsumexp(labels + log_weights[:, None], dim=0)
        # Checking on a GPU would force a synchronisation, and further iterations do no harm.
        if not log_scores.is_cuda and float((log_shares.exp() - prior).abs().max()) <= tolerance:
            break
        potentials = torch.where(possible, potentials + prior.log() - log_shares, 0.0)
        # With infeasible shares, potentials would diverge.
        potentials = (potentials - potentials.max()).clamp_min(LEAST)
    return torch.softmax(log_scores + potentials, dim=1)
