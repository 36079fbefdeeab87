"""Checkpoints: tensors and plain values in one safetensors file with a checksum, replaced in one move, never unpickled."""

from __future__ import annotations

import json
import warnings
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save
from torch import Tensor, nn

from ltpll.errors import CheckpointWarning, InputError, first_line
from ltpll.files import remove_leftovers, write_atomically

FORMAT = "ltpll-checkpoint-2"
IN_HEADER = 1 << 20  # bytes of values; safetensors reads no header above 100 MB, and histories of many classes grow longer than that
LONG_VALUES = "ltpll.values"
ANOTHER = "use another path, or delete it to start again"
Tensors = dict[str, Tensor]
Values = dict[str, Any]


def write_checkpoint(path: Path, tensors: Mapping[str, Tensor], values: Values, keep: Path | None = None) -> None:
    """With `keep`, a file that is there already takes that name."""
    flat = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    text = json.dumps(values)
    header = {"format": FORMAT, "checksum": _checksum(flat, text)}
    if len(text) <= IN_HEADER:
        header["values"] = text
    else:
        flat[LONG_VALUES] = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
    write_atomically(path, save(flat, metadata=header), keep)


def read_checkpoint(path: Path, device: torch.device | str = "cpu", *, advice: str = "") -> tuple[Tensors, Values]:
    """Tensors and values of a file; `advice` is what to do about one that cannot be used, where deleting it does not help."""
    try:
        return _read(path, device)
    except _UnusableError as error:
        raise InputError(f"{error.fact}: {advice or error.advice}.") from None


class _UnusableError(Exception):
    """What a file is, and what to do about it."""

    def __init__(self, fact: str, advice: str) -> None:
        super().__init__(fact)
        self.fact, self.advice = fact, advice


def _read(path: Path, device: torch.device | str = "cpu") -> tuple[Tensors, Values]:
    try:
        with safe_open(path, framework="pt", device=str(device)) as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                version = " in its present version" if metadata.get("format", "").startswith("ltpll-checkpoint-") else ""
                raise _UnusableError(f"{path} is not a checkpoint of this program{version}", "delete it or choose another path")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        text = bytes(tensors.pop(LONG_VALUES).cpu().numpy()).decode() if LONG_VALUES in tensors else metadata["values"]
        values = json.loads(text)
        if not isinstance(values, dict):
            raise ValueError("its values have no names")
        if metadata["checksum"] != _checksum(tensors, text):
            raise ValueError("its checksum differs from that of its content")
        return tensors, values
    except FileNotFoundError:
        raise InputError(f"There is no checkpoint {path}.") from None
    except _UnusableError:
        raise
    except Exception as error:  # of safetensors, of its header's JSON or of a type that torch has not
        raise _UnusableError(f"The checkpoint {path} is damaged ({first_line(error)})", "delete it to start again") from None


def _checksum(tensors: Mapping[str, Tensor], text: str) -> str:
    """Of everything in a checkpoint, so that no damaged byte goes unnoticed: safetensors itself only checks the sizes."""
    total = zlib.crc32(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name].cpu()
        total = zlib.crc32(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode(), total)
        total = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, total)
    return f"{total:08x}"


# ---- a checkpoint and the one before it ------------------------------------------------------------------------------


def before_it(path: Path) -> Path:
    """Where the checkpoint that was written before the one at `path` lies."""
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def has_checkpoint(path: Path) -> bool:
    return path.exists() or before_it(path).exists()


def add_checkpoint(path: Path, tensors: Mapping[str, Tensor], values: Values) -> None:
    """Write a checkpoint and keep the one before it."""
    remove_leftovers(path.parent, path.name)
    write_checkpoint(path, tensors, values, keep=before_it(path))


def usable_checkpoint(path: Path, check: Callable[[Tensors, Values], str]) -> tuple[Tensors, Values]:
    """The newest checkpoint that is whole and that `check` has nothing against; it says what it has.

    One that is passed over is warned of, and set aside so that it does not take the place of a good one when the next one is written.
    """
    refused: list[tuple[Path, _UnusableError]] = []
    for place in (path, before_it(path)):
        if not place.exists():
            continue
        try:
            tensors, values = _read(place)
            if against := check(tensors, values):
                raise _UnusableError(f"The checkpoint {place} {against}", ANOTHER)
        except _UnusableError as error:
            refused.append((place, error))
            continue
        for bad, why in refused:
            aside = path.with_name(f"{path.stem}.refused{path.suffix}")
            bad.replace(aside)
            warnings.warn(f"{why.fact}: it now lies in {aside.name}, and the one before it is used.", CheckpointWarning, stacklevel=3)
        return tensors, values
    if not refused:
        raise InputError(f"There is no checkpoint {path}.")
    first = refused[0][1]
    if len(refused) == 1 or first.advice == ANOTHER:  # with which the one before it is another training's, too
        raise InputError(f"{first.fact}: {first.advice}.")
    raise InputError(f"{'; '.join(why.fact for _, why in refused)}: delete both to start again, or use another path.")


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
        if tensor.ndim:
            parameter = parameters[int(number)]
            if tensor.shape != parameter.shape:
                raise ValueError(f"the optimizer's {name} has another shape than its parameter")
            # In the parameter's order in memory, which a file does not keep and the fused optimizer insists on.
            tensor = torch.empty_like(parameter).copy_(tensor)
        state.setdefault(int(number), {})[key] = tensor
    optimizer.load_state_dict({"state": state, "param_groups": optimizer.state_dict()["param_groups"]})
