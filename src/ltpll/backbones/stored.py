"""Stored backbones: a safetensors file of the weights, with the rest as text in its header."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save

from ltpll.backbones.backbone import Backbone
from ltpll.errors import InputError, first_line
from ltpll.files import parse_json, write_atomically

KEY = "backbone"


def save_backbone(backbone: Backbone, path: Path) -> None:
    """Write a backbone to a file that `load_backbone` reads.

    Raises:
        InputError: If the network is the user's own, which cannot be built again from text.
    """
    weights = backbone.state_dict().items()
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in weights}
    write_atomically(path, save(tensors, {KEY: json.dumps(backbone.record())}))


def load_backbone(path: Path) -> Backbone:
    """Read a backbone from a file that `save_backbone` has written.

    Raises:
        InputError: If the file is damaged, or does not hold a backbone.
    """
    try:
        with safe_open(path, framework="pt") as file:
            record = parse_json(((file.metadata() or {}).get(KEY) or "null").encode())
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        backbone = Backbone.from_record(record)
        backbone.load_state_dict(tensors)
    except InputError:
        raise
    except Exception as error:  # whatever a damaged file makes safetensors or torch raise
        raise InputError(
            f"{path} does not hold a backbone, or is damaged ({first_line(error)}): save it again."
        ) from None
    return backbone.eval()
