"""NumPy files: one array of an .npy or .npz file, checked for its size and never unpickled."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.errors import InputError, shown
from ltpll.tables.memory_limits import check_expansion
from ltpll.tables.streaming import check_is_file

ARRAY_SUFFIXES = (".npy", ".npz")


def read_array(path: Path, choose: Callable[[Sequence[str]], str]) -> npt.NDArray[Any]:
    """Read the array of an .npy file, or the one that `choose` picks from the names in an .npz file."""
    if not path.is_file():
        check_is_file(path)
    try:
        with np.errstate(over="ignore"):
            # Memory mapping refuses an array that claims to be larger than its file.
            found = (
                _member(path, choose)
                if path.suffix.lower() == ".npz"
                else np.load(path, allow_pickle=False, mmap_mode="r")
            )
        if not isinstance(found, np.ndarray):
            raise InputError(
                f"{path} does not hold an array: write it with numpy.save or numpy.savez."
            )
        if path.suffix.lower() == ".npy":
            _check(path, found.nbytes)
    except InputError:
        raise
    # Damaged files make numpy and zipfile fail in unforeseeable ways, and numpy's message about pickled objects would tell the user how
    # to run code from the file.
    except Exception:
        raise InputError(
            f"{path} does not hold plain arrays, or is truncated: write it with numpy.save or numpy.savez, without objects."
        ) from None
    return found


def _member(path: Path, choose: Callable[[Sequence[str]], str]) -> Any:
    with np.load(path, allow_pickle=False) as content:
        if not hasattr(content, "files"):
            raise InputError(
                f"{path} is not an .npz file: rename it to .npy if it holds a single array."
            )
        name = choose(content.files)
        if name not in content.files:
            raise InputError(f"{path} has no array called {shown(name)}.")
        member = next(
            info for info in content.zip.infolist() if info.filename in (name, f"{name}.npy")
        )
        _check(path, member.file_size)
        with content.zip.open(member) as stream:
            if _claimed(stream) > member.file_size:  # numpy would allocate what the header claims
                raise ValueError("an array claims more than the archive holds of it")
        return content[name]


def _claimed(stream: Any) -> int:
    """The size of an array according to its header; 0 if the stream is not an array."""
    try:
        version = np.lib.format.read_magic(stream)
    except ValueError:
        return 0
    read_header = {1: np.lib.format.read_array_header_1_0}.get(
        version[0], np.lib.format.read_array_header_2_0
    )
    shape, _, dtype = read_header(stream)
    return math.prod(shape) * int(dtype.itemsize)


def _check(path: Path, expanded: int) -> None:
    advice = "save fewer rows or columns, or save it uncompressed with numpy.save"
    check_expansion(path, path.stat().st_size, expanded, advice)
