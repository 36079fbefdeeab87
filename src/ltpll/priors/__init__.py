"""Priors: what the candidate sets alone say about the class prior."""

from ltpll.priors.estimate import PriorEstimate, estimate_prior
from ltpll.priors.known import known_prior

__all__ = ["PriorEstimate", "estimate_prior", "known_prior"]
