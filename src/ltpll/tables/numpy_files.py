"""NumPy files: one array of an .npy or .npz file, limited in size and never unpickled."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.errors import InputError, shown
from ltpll.tables.memory_limits import check_expansion
from ltpll.tables.streaming import require_file

ADVICE = "save fewer rows or columns, or save it uncompressed with numpy.save"
ARRAY_SUFFIXES = (".npy", ".npz")


def read_array(path: Path, choose: Callable[[Sequence[str]], str]) -> npt.NDArray[Any]:
    """Read the array of an .npy file, or of an .npz file the one that `choose` picks by name."""
    if not path.is_file():
        require_file(path)
    try:
        with np.errstate(over="ignore"):
            if path.suffix.lower() == ".npz":
                return _array_in_archive(path, choose)
            # Memory mapping refuses an array that claims to be larger than its file.
            found = np.load(path, allow_pickle=False, mmap_mode="r")
        if not isinstance(found, np.ndarray):
            raise ValueError("it is an archive")
        check_expansion(path, path.stat().st_size, found.nbytes, ADVICE)
        return found
    except InputError:
        raise
    # Damaged files make numpy and zipfile fail in unforeseeable ways, and numpy's message about
    # pickled objects would tell the user how to run code from the file.
    except Exception:
        raise InputError(
            f"{path} does not hold plain arrays, or is truncated: write it without objects, "
            "with numpy.save (.npy) or numpy.savez (.npz)."
        ) from None


def _array_in_archive(path: Path, choose: Callable[[Sequence[str]], str]) -> npt.NDArray[Any]:
    with np.load(path, allow_pickle=False) as content:
        name = choose(content.files)
        if name not in content.files:
            raise InputError(f"{path} has no array called {shown(name)}.")
        members = {info.filename: info for info in content.zip.infolist()}
        member = members.get(f"{name}.npy") or members[name]
        check_expansion(path, path.stat().st_size, member.file_size, ADVICE)
        with content.zip.open(member) as stream:  # numpy would allocate what the header claims
            version = np.lib.format.read_magic(stream)
            read = np.lib.format.read_array_header_1_0
            if version != (1, 0):
                read = np.lib.format.read_array_header_2_0
            shape, _, dtype = read(stream)
            if math.prod(shape) * dtype.itemsize > member.file_size:
                raise ValueError("an array claims more than the archive holds of it")
        found: npt.NDArray[Any] = content[name]
        return found
