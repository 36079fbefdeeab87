"""Checkpoints: tensors and plain values in one safetensors file, replaced in one move, never unpickled."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn

from ltpll.errors import InputError, first_line
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
            values = json.loads(metadata["values"])
            if not isinstance(values, dict):
                raise InputError(f"The checkpoint {path} is damaged (its values have no names): delete it to start again.")
            return {name: file.get_tensor(name) for name in file.keys()}, values  # noqa: SIM118
    except FileNotFoundError:
        raise InputError(f"There is no checkpoint {path}.") from None
    except InputError:
        raise
    except Exception as error:  # of safetensors, of its header's JSON or of a type that torch has not
        raise InputError(f"The checkpoint {path} is damaged ({first_line(error)}): delete it to start again.") from None


# ---- many states in one file -----------------------------------------------------------------------------------------


def with_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def under_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The other way round."""
    return {name.removeprefix(f"{prefix}."): tensor for name, tensor in tensors.items() if name.startswith(f"{prefix}.")}


def check_fits(modules: Mapping[str, nn.Module], tensors: Mapping[str, Tensor]) -> None:
    """Refuse tensors that are not the modules' own in names and shapes; the modules may be on the device "meta", without any memory."""
    expected = {key: value.shape for name, module in modules.items() for key, value in with_prefix(name, module.state_dict()).items()}
    for key, shape in expected.items():
        if key not in tensors or tensors[key].shape != shape:
            raise ValueError(f"its {key} is missing or of another shape than {tuple(shape)}")


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """An optimizer's state (momenta), by number of parameter; its settings are the trainer's to set."""
    found: dict[str, Tensor] = {}
    for number, state in optimizer.state_dict()["state"].items():
        found |= with_prefix(f"optimizer.{number}", {name: value for name, value in state.items() if isinstance(value, Tensor)})
    return found


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    state: dict[int, dict[str, Tensor]] = {}
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    for name, tensor in under_prefix("optimizer", tensors).items():
        number, key = name.split(".", 1)
        if tensor.ndim and tensor.shape != parameters[int(number)].shape:
            raise ValueError(f"the optimizer's {name} has another shape than its parameter")
        state.setdefault(int(number), {})[key] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
