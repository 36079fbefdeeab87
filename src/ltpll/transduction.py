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
    """Class numbers and beliefs of the two most believed candidates of each row; the lower number where both are believed as much."""
    parts = []
    places, sizes = torch.arange(candidates.max_size, device=candidates.device), candidates.sizes
    for index in candidates.parts(candidates.max_size):
        labels = candidates.rows(index).labels
        beliefs = targets.on_candidates(index).masked_fill(places >= sizes[index][:, None], -1.0)  # not the repeated ones
        total = beliefs.clamp_min(0).sum(1, keepdim=True)  # one, except for methods that weigh the other classes too
        first = beliefs.argmax(1, keepdim=True)
        most = beliefs.gather(1, first)
        beliefs.scatter_(1, first, -1.0)
        second = beliefs.argmax(1, keepdim=True)
        next_most = beliefs.gather(1, second)
        second = torch.where(next_most < 0, first, second)
        confidence, beside = most / total, next_most.clamp_min(0) / total
        columns = (labels.gather(1, first), confidence, labels.gather(1, second), confidence - beside)
        parts.append([column.squeeze(1) for column in columns])
    return tuple(torch.cat(column).cpu().numpy() for column in zip(*parts, strict=True))
