"""Array files: one array of an .npy or .npz file, never larger than the file can be, and never unpickled."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.data.readers.memory_limits import check_expansion
from ltpll.data.readers.streaming import check_file
from ltpll.errors import InputError, shown

ARRAY_SUFFIXES = (".npy", ".npz")


def read_array(path: Path, choose: Callable[[Sequence[str]], str]) -> npt.NDArray[Any]:
    """The one array of an .npy file, or of an .npz file the one that `choose` picks from the names there."""
    if not path.is_file():
        check_file(path)
    try:
        with np.errstate(over="ignore"):
            # Mapped, an array that claims to be larger than its file is refused before there is any memory for it.
            found = _member(path, choose) if path.suffix.lower() == ".npz" else np.load(path, allow_pickle=False, mmap_mode="r")
        if not isinstance(found, np.ndarray):
            raise InputError(f"{path} holds something else than an array: write it with numpy.save or numpy.savez.")
        if path.suffix.lower() == ".npy":
            _check(path, found.nbytes)
    except InputError:
        raise
    # A damaged file makes numpy and zipfile fail in ways that nobody has listed; and numpy's own sentence about objects would tell the
    # user how to run what a stranger has put into the file.
    except Exception:
        raise InputError(
            f"{path} holds no plain arrays, or is cut off: write it with numpy.save or numpy.savez, without objects."
        ) from None
    return found


def _member(path: Path, choose: Callable[[Sequence[str]], str]) -> Any:
    with np.load(path, allow_pickle=False) as content:
        if not hasattr(content, "files"):
            raise InputError(f"{path} is no .npz file: call it .npy if it holds a single array.")
        name = choose(content.files)
        if name not in content.files:
            raise InputError(f"{path} holds no array called {shown(name)}.")
        member = next(one for one in content.zip.infolist() if one.filename in (name, f"{name}.npy"))
        _check(path, member.file_size)
        with content.zip.open(member) as stream:
            if _claimed(stream) > member.file_size:  # numpy would reserve memory for the claim
                raise ValueError("an array claims more than the archive holds of it")
        return content[name]


def _claimed(stream: Any) -> int:
    """The bytes of the array that the header at the start of a stream announces; 0 if it is another kind of file."""
    try:
        version = np.lib.format.read_magic(stream)
    except ValueError:
        return 0
    read_header = {1: np.lib.format.read_array_header_1_0}.get(version[0], np.lib.format.read_array_header_2_0)
    shape, _, dtype = read_header(stream)
    return math.prod(shape) * int(dtype.itemsize)


def _check(path: Path, expanded: int) -> None:
    advice = "save fewer rows or columns, or save it uncompressed with numpy.save"
    check_expansion(path, path.stat().st_size, expanded, advice)
