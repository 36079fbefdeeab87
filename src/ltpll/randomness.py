"""Randomness: torch's global random state as a value that can be made, read and put back."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


def random_state_of(seed: int, device: torch.device) -> dict[str, Tensor]:
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(seed)
        return get_random_state(device)


def get_random_state(device: torch.device) -> dict[str, Tensor]:
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_random_state(state: Mapping[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda"], device)
