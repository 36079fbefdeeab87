"""Pruning: candidates that the nearest neighbours' sets vote against are removed."""

from __future__ import annotations

from ltpll.pruning.votes import Pruned as Pruned
from ltpll.pruning.votes import prune_candidates as prune_candidates
