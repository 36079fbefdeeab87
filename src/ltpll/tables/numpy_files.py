"""NumPy files: one array of an .npy or .npz file, limited in size and never unpickled."""

from __future__ import annotations

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
    require_file(path)
    try:
        with np.errstate(over="ignore"):
            # Memory mapping refuses an array that claims to be larger than its file.
            found = np.load(path, allow_pickle=False, mmap_mode="r")
            if isinstance(found, np.ndarray):
                return found
            name = choose(found.files)
            if name not in found.files:
                raise InputError(f"{path} has no array called {shown(name)}.")
            sizes = {info.filename: info.file_size for info in found.zip.infolist()}
            expanded = sizes.get(f"{name}.npy") or sizes[name]
            check_expansion(path, path.stat().st_size, expanded, ADVICE)
            array = found[name]
            if not isinstance(array, np.ndarray):
                raise ValueError("it is no array")
            return array
    except InputError:
        raise
    # Damaged files make numpy and zipfile fail in unforeseeable ways, and numpy's message about
    # pickled objects would tell the user how to run code from the file.
    except Exception:
        raise InputError(
            f"{path} does not hold plain arrays, or is truncated: write it without objects, "
            "with numpy.save (.npy) or numpy.savez (.npz)."
        ) from None
