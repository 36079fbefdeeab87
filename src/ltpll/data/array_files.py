"""Array files: one array of an .npy or .npz file, never larger than the file can be, and never unpickled."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from ltpll.data.batches import check_file
from ltpll.errors import InputError, shown

UNPACKED_LIMIT = 4 << 30  # bytes of all arrays of an .npz file, which may be packed a thousandfold
SUFFIXES = (".npy", ".npz")


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
    with zipfile.ZipFile(path) as archive:
        if sum(member.file_size for member in archive.infolist()) > UNPACKED_LIMIT:
            raise InputError(f"{path} unpacks to more than {UNPACKED_LIMIT >> 30} GiB: write the one array that is needed with numpy.save.")
    with np.load(path, allow_pickle=False) as content:
        if not hasattr(content, "files"):
            raise InputError(f"{path} is no .npz file: call it .npy if it holds a single array.")
        name = choose(content.files)
        if name not in content.files:
            raise InputError(f"{path} holds no array called {shown(name)}.")
        return content[name]
