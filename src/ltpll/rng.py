"""Random numbers: torch's random state, of a seed or of the whole process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor


def random_state_of(seed: int, device: torch.device) -> dict[str, Tensor]:
    """The random state that `torch.manual_seed` would set, without changing the global state."""
    state = {"cpu": torch.Generator().manual_seed(seed).get_state()}
    if device.type == "cuda":
        state["cuda"] = torch.Generator(device).manual_seed(seed).get_state()
    return state


@contextmanager
def seeded_layers(seed: int) -> Iterator[None]:
    """Let new layers draw their weights from a seed, without touching the caller's random state."""
    with torch.random.fork_rng(devices=[]):
        # Unlike torch.manual_seed, this does not touch GPUs.
        torch.default_generator.manual_seed(seed)
        yield


def get_random_state(device: torch.device) -> dict[str, Tensor]:
    state = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def set_random_state(state: Mapping[str, Tensor], device: torch.device) -> None:
    torch.set_rng_state(state["cpu"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(state["cuda"], device)
