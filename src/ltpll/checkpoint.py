"""Checkpoints: tensors and plain values in one safetensors file, replaced in one move, never unpickled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from ltpll.errors import InputError
from ltpll.files import write_atomically

FORMAT = "ltpll-checkpoint-1"


def write_checkpoint(path: Path, tensors: dict[str, Tensor], values: dict[str, Any]) -> None:
    flat = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    write_atomically(path, save(flat, metadata={"format": FORMAT, "values": json.dumps(values)}))


def read_checkpoint(path: Path, device: torch.device | str = "cpu") -> tuple[dict[str, Tensor], dict[str, Any]]:
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise InputError(f"{path} is not a checkpoint of this program: delete it or choose another path.")
            return {name: file.get_tensor(name) for name in file.keys()}, json.loads(metadata["values"])  # noqa: SIM118
    except FileNotFoundError:
        raise InputError(f"There is no checkpoint {path}.") from None
    except (OSError, SafetensorError, json.JSONDecodeError, KeyError) as error:
        raise InputError(f"The checkpoint {path} is damaged ({error}): delete it to start again.") from None


# ---- many states in one file -----------------------------------------------------------------------------------------


def with_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def under_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The other way round."""
    return {name.removeprefix(f"{prefix}."): tensor for name, tensor in tensors.items() if name.startswith(f"{prefix}.")}


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """An optimizer's state (momenta), by number of parameter; its settings are the trainer's to set."""
    found: dict[str, Tensor] = {}
    for number, state in optimizer.state_dict()["state"].items():
        found |= with_prefix(f"optimizer.{number}", {name: value for name, value in state.items() if isinstance(value, Tensor)})
    return found


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    for name, tensor in under_prefix("optimizer", tensors).items():
        number, key = name.split(".", 1)
        state.setdefault(int(number), {})[key] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
