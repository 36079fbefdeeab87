"""Checkpoint files: tensors and plain values in a safetensors file, which is never unpickled."""

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

from ltpll.errors import CheckpointWarning, InputError, VersionError, first_line
from ltpll.files import other_version, remove_leftovers, write_atomically

FORMAT = "ltpll-checkpoint-2"
# Bytes of values; safetensors reads no header above 100 MB, and histories of many classes are
# longer.
MAX_HEADER = 1 << 20
LONG_VALUES = "ltpll.values"
ADVICE = "use a copy or another path, or start a run again with --fresh"
Tensors = dict[str, Tensor]
Values = dict[str, Any]


def write_checkpoint(
    path: Path, tensors: Mapping[str, Tensor], values: Values, keep: Path | None = None
) -> None:
    """Write a checkpoint file; with `keep`, an existing file is renamed to that path first."""
    flat = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
    text = json.dumps(values)
    header = {"format": FORMAT, "checksum": _checksum(flat, text)}
    if len(text) <= MAX_HEADER:
        header["values"] = text
    else:
        flat[LONG_VALUES] = torch.frombuffer(bytearray(text.encode()), dtype=torch.uint8)
    write_atomically(path, _in_order(save(flat, metadata=header)), keep)


def _in_order(content: bytes) -> bytes:
    """A safetensors file with sorted metadata, so that equal files have equal bytes."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)  # numbers begin at a multiple of eight
    return b"".join((len(text).to_bytes(8, "little"), text, memoryview(content)[8 + size :]))


def read_checkpoint(path: Path, *, advice: str = ADVICE) -> tuple[Tensors, Values]:
    """Return the tensors and values of a file; `advice` is for a user whose file is unusable.

    Raises:
        VersionError: If the file has another version of the format.
        InputError: If the file does not exist, is damaged, or is not a checkpoint.
    """
    try:
        return _read(path)
    except _UnusableError as error:
        raise InputError(f"{error}: {advice}.") from None


class _UnusableError(Exception):
    """Why a file cannot be used."""


def _read(path: Path) -> tuple[Tensors, Values]:
    try:
        with safe_open(path, framework="pt") as file:
            metadata = file.metadata() or {}
            if metadata.get("format") != FORMAT:
                # One of another version is not damaged, so it is neither renamed nor skipped.
                if other := other_version(metadata.get("format"), FORMAT):
                    raise VersionError(
                        f"The checkpoint {path} {other}: use the version that wrote it, or train "
                        "again."
                    )
                raise _UnusableError(f"{path} is not an ltpll checkpoint")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        text = metadata.get("values", "")
        if LONG_VALUES in tensors:
            text = bytes(tensors.pop(LONG_VALUES).numpy()).decode()
        values = json.loads(text)
        if not isinstance(values, dict):
            raise ValueError("its values are not a mapping")
        if metadata["checksum"] != _checksum(tensors, text):
            raise ValueError("its checksum does not match its content")
        return tensors, values
    except FileNotFoundError:
        raise InputError(f"There is no checkpoint {path}.") from None
    except (_UnusableError, InputError):
        raise
    except Exception as error:  # from safetensors, JSON, or a dtype that torch does not know
        raise _UnusableError(f"The checkpoint {path} is damaged ({first_line(error)})") from None


def _checksum(tensors: Mapping[str, Tensor], text: str) -> str:
    """A checksum of the whole content; safetensors itself only checks sizes."""
    total = zlib.crc32(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name].cpu()
        total = zlib.crc32(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode(), total)
        total = zlib.crc32(tensor.reshape(-1).view(torch.uint8).numpy().data, total)
    return f"{total:08x}"


# ---- a checkpoint and the previous one -----------------------------------------------------------


def previous_checkpoint(path: Path) -> Path:
    """The path of the checkpoint that was written before the one at `path`."""
    return path.with_name(f"{path.stem}.previous{path.suffix}")


def has_checkpoint(path: Path) -> bool:
    """Whether there is a checkpoint or a previous one."""
    return path.exists() or previous_checkpoint(path).exists()


def add_checkpoint(path: Path, tensors: Mapping[str, Tensor], values: Values) -> None:
    """Write a checkpoint and keep the previous one."""
    remove_leftovers(path.parent, path.name)
    write_checkpoint(path, tensors, values, keep=previous_checkpoint(path))


def usable_checkpoint(
    path: Path, check: Callable[[Tensors, Values], str]
) -> tuple[Tensors, Values]:
    """Return the newest intact checkpoint for which `check` returns no reason against its use.

    If a newer one is unusable, a warning says so, and it is renamed, so that it does not replace a
    good one at the next save.
    """
    refused: _UnusableError | None = None
    for place in (path, previous_checkpoint(path)):
        if not place.exists():
            continue
        try:
            tensors, values = _read(place)
            if reason := check(tensors, values):
                raise _UnusableError(f"The checkpoint {place} {reason}")
        except _UnusableError as error:
            refused = refused or error
            continue
        if refused:
            aside = path.with_name(f"{path.stem}.refused{path.suffix}")
            path.replace(aside)
            warnings.warn(
                f"{refused}: it was renamed to {aside.name}, and the previous checkpoint is used.",
                CheckpointWarning,
                stacklevel=3,
            )
        return tensors, values
    raise InputError(f"{refused}: {ADVICE}." if refused else f"There is no checkpoint {path}.")


# ---- many states in one file ---------------------------------------------------------------------


def with_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors with a prefix before their names."""
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def under_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names start with the prefix, without it."""
    start = f"{prefix}."
    return {k.removeprefix(start): tensor for k, tensor in tensors.items() if k.startswith(start)}


def check_state_fits(modules: Mapping[str, nn.Module], tensors: Mapping[str, Tensor]) -> None:
    """Raise a ValueError if names and shapes differ from those of the modules.

    These may be on the device "meta", where they need no memory.
    """
    for name, module in modules.items():
        for key, value in with_prefix(name, module.state_dict()).items():
            if key not in tensors or tensors[key].shape != value.shape:
                shape = tuple(value.shape)
                raise ValueError(f"its {key} is missing or does not have the shape {shape}")


def trained_parameters(optimizer: torch.optim.Optimizer) -> list[nn.Parameter]:
    """All parameters that an optimizer changes."""
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """The state of an optimizer (momenta) by parameter number, without its settings."""
    return {
        f"optimizer.{number}.{name}": value
        for number, state in optimizer.state_dict()["state"].items()
        for name, value in state.items()
        if isinstance(value, Tensor)
    }


def load_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """Restore what `optimizer_tensors` returned."""
    state: dict[int, dict[str, Tensor]] = {}
    parameters = trained_parameters(optimizer)
    for name, tensor in under_prefix("optimizer", tensors).items():
        number, key = name.split(".", 1)
        if tensor.ndim:
            parameter = parameters[int(number)]
            if tensor.shape != parameter.shape:
                raise ValueError(f"the optimizer's {name} does not have the shape of its parameter")
            # In the memory layout of the parameter, which the fused optimizer requires.
            tensor = torch.empty_like(parameter).copy_(tensor)
        state.setdefault(int(number), {})[key] = tensor
    optimizer.load_state_dict({**optimizer.state_dict(), "state": state})
