"""Checkpoints: tensors and plain values in one safetensors file, replaced in one move, never unpickled."""

from __future__ import annotations

import json
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
