"""Stored backbones: a safetensors file of the weights, with the rest as text in its header."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor

from ltpll.backbones.backbone import Backbone
from ltpll.errors import InputError, first_line
from ltpll.files import parse_json, write_atomically

KEY = "backbone"


def save_backbone(backbone: Backbone, path: Path) -> None:
    """Write a backbone to a file that `load_backbone` reads.

    Raises:
        InputError: If the network is the user's own, which cannot be built again from text.
    """
    write_record(path, KEY, backbone.record(), backbone.state_dict())


def load_backbone(path: Path) -> Backbone:
    """Read a backbone from a file that `save_backbone` has written.

    Raises:
        InputError: If the file is damaged, or does not hold a backbone.
    """
    record, tensors = read_record(path, KEY)
    backbone = Backbone.from_record(record)
    try:
        backbone.load_state_dict(tensors)
    except Exception as error:  # whatever wrong weights make torch raise
        raise _damaged(path, KEY, error) from None
    return backbone.eval()


def write_record(path: Path, key: str, record: Any, tensors: Mapping[str, Tensor]) -> None:
    """Write tensors, and JSON values under a key of the file's header."""
    held = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_atomically(path, save(held, {key: json.dumps(record)}))


def read_record(path: Path, key: str) -> tuple[Any, dict[str, Tensor]]:
    """Read what `write_record` has written; None for values that are not there.

    Raises:
        InputError: If the file is damaged.
    """
    try:
        with safe_open(path, framework="pt") as file:
            record = parse_json(((file.metadata() or {}).get(key) or "null").encode())
            return record, {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except Exception as error:  # whatever a damaged file makes safetensors raise
        raise _damaged(path, key, error) from None


def _damaged(path: Path, key: str, error: Exception) -> InputError:
    return InputError(
        f"{path} does not hold a {key}, or is damaged ({first_line(error)}): save it again."
    )
