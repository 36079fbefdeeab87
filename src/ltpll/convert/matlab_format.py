"""MATLAB format: dense and sparse arrays from files of versions 4 to 7, with every length checked before it is used.

scipy's reader is not used because many damaged files make it read outside its buffers and crash the process. All numbers here are
read from slices of the file, so that a wrong length can only be refused.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ltpll.tables.memory_limits import expansion_problem

PEEK = 4096  # unpacked bytes that contain an array's name, which decides whether to read the rest
MOST_DIMENSIONS = 32

_NUMBERS = {
    1: "i1",
    2: "u1",
    3: "i2",
    4: "u2",
    5: "i4",
    6: "u4",
    7: "f4",
    9: "f8",
    12: "i8",
    13: "u8",
    16: "u1",
}
_MATRIX, _COMPRESSED = 14, 15
_CLASSES = {
    6: "f8",
    7: "f4",
    8: "i1",
    9: "u1",
    10: "i2",
    11: "u2",
    12: "i4",
    13: "u4",
    14: "i8",
    15: "u8",
}
_SPARSE = 5
_OPAQUE = 17  # MATLAB objects, which have no shape
_COMPLEX = 0x800
_OLD_NUMBERS = ("f8", "f4", "i4", "i2", "u2", "u1")


class DamagedError(Exception):
    """A file cannot be read; the message is part of a sentence."""


class TooLargeError(Exception):
    """A file must not be expanded; the message is part of a sentence."""


class NewerError(Exception):
    """The file has version 7.3, which is a different format."""


class UnsupportedArrayError(Exception):
    """An array holds cells, text, objects or complex numbers."""

    def __init__(self, name: str) -> None:
        self.name = name


def read_arrays(content: bytes, wanted: Sequence[str]) -> dict[str, Any]:
    """Read those of the wanted arrays that exist, as numpy arrays or scipy sparse matrices."""
    if (
        content[:4] == b"\x89HDF"
        or content[512:516] == b"\x89HDF"
        or content[124:128] in (b"\x00\x02IM", b"\x02\x00MI")
    ):
        raise NewerError
    if len(content) < 20:
        raise DamagedError("it is too short")
    old = 0 in content[:4]  # later versions start with text
    found: dict[str, Any] = {}
    for name, array in (
        _old_arrays(memoryview(content), wanted) if old else _arrays(memoryview(content), wanted)
    ):
        if name in found:
            raise DamagedError(f"it holds {name!r} twice")
        found[name] = array
    return found


# ---- versions 5 to 7 --------------------------------------------------------------------------------------------------


class _Element(NamedTuple):
    kind: int
    content: memoryview
    end: int  # where the next one starts, before padding


def _arrays(content: memoryview, wanted: Sequence[str]) -> Iterator[tuple[str, Any]]:
    order = {b"IM": "<", b"MI": ">"}.get(bytes(content[126:128]))
    if order is None:
        raise DamagedError("its header is wrong")
    position = 128
    chosen: list[
        tuple[bool, memoryview, int]
    ] = []  # compressed or not, the bytes, and how many they expand to
    while position < len(content):
        element = _element(content, position, order)
        position = element.end
        if element.kind == _COMPRESSED:
            size = _expanded_size(element.content, order, wanted)
            if size is not None:
                chosen.append((True, element.content, size))
        elif element.kind == _MATRIX:
            chosen.append((False, element.content, 0))
        else:
            raise DamagedError(f"it has a part of kind {element.kind} in place of an array")
    # Check the total before allocating memory for the first array.
    reason = expansion_problem(len(content), sum(size for _, _, size in chosen))
    if reason is not None:
        raise TooLargeError(reason)
    for compressed, body, size in chosen:
        parts = _parts(_expanded(body, size) if compressed else body, order)
        flags, shape, name = _about(parts, order)
        if name in wanted:
            yield name, _array(name, flags, shape, parts, order)


def _element(content: memoryview, position: int, order: str) -> _Element:
    if position + 8 > len(content):
        raise DamagedError("it ends within a part")
    kind, n_bytes = (
        int(number) for number in np.frombuffer(content[position : position + 8], order + "u4")
    )
    start = position + 8
    if kind >> 16:  # up to four bytes are stored in the tag itself
        kind, n_bytes, start = kind & 0xFFFF, kind >> 16, position + 4
        if n_bytes > 4:
            raise DamagedError("a short part is too long")
        return _Element(kind, content[start : start + n_bytes], position + 8)
    if start + n_bytes > len(content):
        raise DamagedError("it is shorter than its header says")
    return _Element(kind, content[start : start + n_bytes], start + n_bytes)


def _expanded_size(body: memoryview, order: str, wanted: Sequence[str]) -> int | None:
    """The size that a compressed part claims to expand to; None if its array is not wanted."""
    try:
        first = zlib.decompressobj().decompress(body, PEEK)
    except zlib.error:
        raise DamagedError("a compressed part cannot be unpacked") from None
    if len(first) < 8:
        raise DamagedError("a compressed part is empty")
    kind, n_bytes = (int(number) for number in np.frombuffer(first[:8], order + "u4"))
    if kind != _MATRIX:
        raise DamagedError("a compressed part is not an array")
    flags, shape, name = _about(_parts(memoryview(first)[8:], order), order)
    if name not in wanted:
        return None
    if flags & 0xFF in _CLASSES and math.prod(shape) > n_bytes:  # a number takes at least one byte
        raise DamagedError(f"the array {name!r} claims the shape {shape} in {n_bytes} bytes")
    return n_bytes + 8


def _expanded(body: memoryview, size: int) -> memoryview:
    try:
        stream = zlib.decompressobj()
        whole = stream.decompress(body, size)
        if (
            stream.decompress(stream.unconsumed_tail, 1) or not stream.eof
        ):  # the checksum is compared at the end
            raise DamagedError("a compressed part does not have the size it claims")
    except zlib.error:
        raise DamagedError("a compressed part cannot be unpacked") from None
    if len(whole) < size:
        raise DamagedError("it is shorter than its header says")
    return memoryview(whole)[8:]


def _parts(body: memoryview, order: str) -> Iterator[_Element]:
    position = 0
    while position < len(body):
        part = _element(body, position, order)
        yield part
        position = -(-part.end // 8) * 8  # parts are aligned to eight bytes


def _next(parts: Iterator[_Element]) -> _Element:
    part = next(parts, None)
    if part is None:
        raise DamagedError("an array lacks a part")
    return part


def _about(parts: Iterator[_Element], order: str) -> tuple[int, tuple[int, ...], str]:
    """Flags, shape and name of an array."""
    flags = _numbers(_next(parts), order)
    if len(flags) != 2 or flags.dtype.kind not in "iu":
        raise DamagedError("an array has no type")
    opaque = int(flags[0]) & 0xFF == _OPAQUE
    shape = np.zeros(2, dtype=np.int64) if opaque else _numbers(_next(parts), order)
    name = bytes(_next(parts).content).decode("latin-1")
    if shape.dtype.kind not in "iu" or not 2 <= len(shape) <= MOST_DIMENSIONS or (shape < 0).any():
        raise DamagedError(f"the array {name[:60]!r} has no shape")
    return int(flags[0]), tuple(int(size) for size in shape), name


def _numbers(part: _Element, order: str) -> npt.NDArray[Any]:
    if part.kind not in _NUMBERS:
        raise DamagedError(f"it has a part of kind {part.kind} in place of numbers")
    kind = np.dtype(order + _NUMBERS[part.kind])
    if len(part.content) % kind.itemsize:
        raise DamagedError("a list of numbers ends within a number")
    found: npt.NDArray[Any] = np.frombuffer(part.content, kind)
    return found


def _array(
    name: str, flags: int, shape: tuple[int, ...], parts: Iterator[_Element], order: str
) -> Any:
    kind = flags & 0xFF
    if flags & _COMPLEX or (kind != _SPARSE and kind not in _CLASSES):
        raise UnsupportedArrayError(name)
    if kind == _SPARSE:
        rows, starts, entries = (
            _numbers(_next(parts), order),
            _numbers(_next(parts), order),
            _next(parts),
        )
        # MATLAB writes logical values as one byte each, but marks them as doubles.
        single_bytes = (
            len(starts) > shape[-1]
            and len(entries.content) == starts[shape[-1]]
            and entries.kind in _NUMBERS
        )
        return _sparse(
            name,
            shape,
            rows,
            starts,
            _numbers(entries._replace(kind=2) if single_bytes else entries, order),
        )
    values = _numbers(_next(parts), order)
    return _shaped(name, values.astype(_CLASSES[kind], copy=False), shape)


def _shaped(name: str, values: npt.NDArray[Any], shape: tuple[int, ...]) -> npt.NDArray[Any]:
    if math.prod(shape) != len(values):
        raise DamagedError(f"the array {name!r} has {len(values)} numbers for the shape {shape}")
    return values.reshape(shape, order="F")


def _sparse(
    name: str,
    shape: tuple[int, ...],
    rows: npt.NDArray[Any],
    starts: npt.NDArray[Any],
    values: npt.NDArray[Any],
) -> Any:
    """Column j has the entries from `starts[j]` to `starts[j + 1]`."""
    from scipy.sparse import csc_matrix

    if (
        len(shape) != 2
        or rows.dtype.kind not in "iu"
        or starts.dtype.kind not in "iu"
        or len(starts) < shape[1] + 1
    ):
        raise DamagedError(f"the sparse array {name!r} has an incomplete list of columns")
    starts = starts[: shape[1] + 1].astype(np.int64)
    n = int(starts[-1])
    if starts[0] != 0 or (np.diff(starts) < 0).any() or n > min(len(rows), len(values)):
        raise DamagedError(f"the columns of the sparse array {name!r} do not fit its entries")
    rows = rows[:n].astype(np.int64)
    if n and not 0 <= int(rows.min()) <= int(rows.max()) < shape[0]:
        raise DamagedError(f"the sparse array {name!r} has an entry outside its shape {shape}")
    return csc_matrix(
        (values[:n].astype(values.dtype.newbyteorder("=")), rows, starts), shape=shape
    )


# ---- version 4 --------------------------------------------------------------------------------------------------------


def _old_arrays(content: memoryview, wanted: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Arrays in sequence, each with a header of five numbers, a name and a table of numbers."""
    position = 0
    while position < len(content):
        if position + 20 > len(content):
            raise DamagedError("it ends within a header")
        order = "<"
        header = [int(number) for number in np.frombuffer(content[position : position + 20], "<i4")]
        if not 0 <= header[0] <= 4052:
            order = ">"
            header = [
                int(number) for number in np.frombuffer(content[position : position + 20], ">i4")
            ]
        about, n_rows, n_columns, n_parts, name_length = header
        machine, kind, form = about // 1000, about // 10 % 100, about % 10
        if machine not in (0, 1) or kind >= len(_OLD_NUMBERS) or form > 2 or n_parts not in (0, 1):
            raise DamagedError("its header is wrong")
        if min(n_rows, n_columns) < 0 or not 1 <= name_length <= len(content):
            raise DamagedError("an array has no shape or no name")
        numbers = np.dtype(order + _OLD_NUMBERS[kind])
        start = position + 20 + name_length
        position = start + n_rows * n_columns * numbers.itemsize * (1 + n_parts)
        if position > len(content):
            raise DamagedError("it is shorter than its header says")
        name = bytes(content[start - name_length : start]).rstrip(b"\0").decode("latin-1")
        if name not in wanted:
            continue
        if n_parts or form == 1:
            raise UnsupportedArrayError(name)
        table = np.frombuffer(content[start:position], numbers).reshape(
            (n_rows, n_columns), order="F"
        )
        yield name, table if form == 0 else _old_sparse(name, table)


def _old_sparse(name: str, table: npt.NDArray[Any]) -> Any:
    """Entries as rows of row number, column number (both from 1) and value; the last one holds the shape."""
    from scipy.sparse import coo_matrix

    if table.shape[1] == 4:
        raise UnsupportedArrayError(name)
    if table.shape[1] != 3 or len(table) == 0 or not np.isfinite(table[:, :2]).all():
        raise DamagedError(f"the sparse array {name!r} has no list of entries")
    with np.errstate(invalid="ignore"):
        places = table[:, :2].astype(np.int64)
    entries, shape = places[:-1], (int(places[-1, 0]), int(places[-1, 1]))
    if (places != table[:, :2]).any() or not 0 <= min(shape) <= max(shape) < 2**31:
        raise DamagedError(f"the sparse array {name!r} has no shape")
    if (entries < 1).any() or (entries > shape).any():
        raise DamagedError(f"the sparse array {name!r} has an entry outside its shape {shape}")
    return coo_matrix((table[:-1, 2].astype(np.float64), tuple(entries.T - 1)), shape=shape)
