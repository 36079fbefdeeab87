"""Transduction: what training came to believe of its own examples."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from ltpll.candidates import Candidates
from ltpll.targets import Targets


class Transduced(NamedTuple):
    """What training came to believe of its own examples, one entry a row."""

    labels: npt.NDArray[Any]
    confidence: npt.NDArray[np.float32]
    runner_up: npt.NDArray[Any]  # the label itself where it is the only candidate
    margin: npt.NDArray[np.float32]  # by how much the label is believed more than the runner-up


def believed(targets: Targets, candidates: Candidates) -> tuple[npt.NDArray[Any], ...]:
    """Class numbers and beliefs of the two most believed candidates of each row."""
    parts = []
    for rows in torch.arange(len(targets), device=candidates.device).split(1 << 14):
        inside = candidates[rows]
        beliefs, numbers = targets[rows].masked_fill(~inside, -1.0).topk(2, dim=1)
        alone = beliefs[:, 1] < 0
        total = (targets[rows] * inside).sum(1)  # one, except for methods that weigh the other classes too
        beliefs = beliefs.clamp_min(0) / total[:, None]
        second = torch.where(alone, numbers[:, 0], numbers[:, 1])
        parts.append((numbers[:, 0], beliefs[:, 0], second, beliefs[:, 0] - beliefs[:, 1]))
    return tuple(torch.cat(column).cpu().numpy() for column in zip(*parts, strict=True))
