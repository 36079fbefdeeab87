"""MATLAB files: every form is read as scipy reads it, and whatever is wrong with one, it is refused and never believed."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import scipy.io
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ltpll.convert.matlab_format import (
    DamagedError,
    NewerError,
    TooLargeError,
    UnsupportedArrayError,
    read_arrays,
)
from ltpll.convert.open import read_label_table
from support.refusals import refusal

FORMS = {"plain": {}, "packed": {"do_compression": True}, "old": {"format": "4"}}
REFUSALS = (DamagedError, NewerError, UnsupportedArrayError, TooLargeError)


def saved(arrays, form="plain"):
    content = io.BytesIO()
    scipy.io.savemat(content, arrays, **FORMS[form])
    return content.getvalue()


def plain(array):
    return array.toarray() if scipy.sparse.issparse(array) else np.asarray(array)


@settings(max_examples=40)
@given(
    array=hnp.arrays(
        st.sampled_from(["f8", "f4", "i2", "u1", "i4", "?"]),
        hnp.array_shapes(min_dims=2, max_dims=2, min_side=0, max_side=5),
        elements={"allow_nan": False},
    ),
    form=st.sampled_from(list(FORMS)),
    sparse=st.booleans(),
)
def test_what_scipy_writes_is_read_back(array, form, sparse):
    sparse = (
        sparse and array.size > 0 and array.dtype == np.float64
    )  # the old form keeps no other sparse numbers
    if form == "old" and array.dtype.kind == "b":
        array = array.astype(np.uint8)
    written = scipy.sparse.csc_matrix(array) if sparse else array
    found = read_arrays(saved({"other": "text", "data": written}, form), ["data"])
    assert list(found) == ["data"]
    assert scipy.sparse.issparse(found["data"]) == sparse
    np.testing.assert_array_equal(plain(found["data"]), array)


PUBLISHED = sorted((Path(scipy.io.__file__).parent / "matlab" / "tests" / "data").glob("*.mat"))


@pytest.mark.skipif(not PUBLISHED, reason="scipy was installed without its test files")
@pytest.mark.filterwarnings("ignore")
def test_files_of_real_matlabs_are_read_as_scipy_reads_them():
    """From versions 4 to 7, of both byte orders: numbers are the same, everything else is refused."""
    compared = 0
    for path in PUBLISHED:
        try:
            truth = scipy.io.loadmat(path)
        except Exception:  # bad on purpose
            continue
        for name, expected in truth.items():
            if name.startswith("__"):
                continue
            if getattr(expected, "dtype", np.dtype(object)).kind not in "biuf":
                with pytest.raises(UnsupportedArrayError):
                    read_arrays(path.read_bytes(), [name])
                continue
            found = read_arrays(path.read_bytes(), [name])[name]
            assert scipy.sparse.issparse(found) == scipy.sparse.issparse(expected), path.name
            np.testing.assert_array_equal(plain(found), plain(expected), err_msg=path.name)
            compared += 1
    assert compared > 30


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("sparse", [False, True])
def test_whichever_byte_is_wrong_the_file_is_read_or_refused(form, sparse):
    """Of these files, changed in one byte, scipy's reader ends the process on many."""
    sets = np.asarray([[1.0, 0, 1], [0, 1, 0]])
    content = saved(
        {
            "data": np.ones((2, 2)),
            "partial_target": scipy.sparse.csc_matrix(sets) if sparse else sets,
        },
        form,
    )
    refused = 0
    for i in range(len(content)):
        for value in (content[i] ^ 1, content[i] ^ 0x80, 14):
            damaged = content[:i] + bytes([value]) + content[i + 1 :]
            try:
                read_arrays(damaged, ["data", "partial_target"])
            except REFUSALS:
                refused += 1
    assert refused > len(content) / 10


@pytest.mark.parametrize("form", FORMS)
def test_a_file_that_is_cut_off_anywhere_is_refused_or_holds_less(form):
    content = saved({"data": np.ones((2, 2)), "target": np.ones((2, 1))}, form)
    whole = 0
    for length in range(len(content)):
        try:
            whole = max(whole, len(read_arrays(content[:length], ["data", "target"])))
        except REFUSALS:
            continue
    assert whole == 1  # cut between its two arrays


# ---- what a file may claim --------------------------------------------------------------------------------------------


def element(kind, content):
    padding = (
        b"" if kind == 15 else b"\0" * (-len(content) % 8)
    )  # compressed parts follow each other at once
    return struct.pack("<II", kind, len(content)) + content + padding


def matrix(name, kind, shape, *parts, flags=0):
    about = (
        element(6, struct.pack("<II", kind | flags, 0)),
        element(5, struct.pack(f"<{len(shape)}i", *shape)),
        element(1, name.encode()),
    )
    return element(14, b"".join([*(about if kind != 17 else (about[0], about[2])), *parts]))


def mat5(*arrays):
    return b"MATLAB 5.0 MAT-file".ljust(124) + b"\x00\x01IM" + b"".join(arrays)


DATA = matrix("data", 6, (2, 1), element(9, struct.pack("<2d", 1, 2)))


def sparse_sets(shape, rows, starts, values=None):
    values = [1.0] * len(rows) if values is None else values
    parts = (
        struct.pack(f"<{len(rows)}i", *rows),
        struct.pack(f"<{len(starts)}i", *starts),
        struct.pack(f"<{len(values)}d", *values),
    )
    return matrix(
        "partial_target",
        5,
        shape,
        *(element(kind, part) for kind, part in zip((5, 5, 9), parts, strict=True)),
    )


def test_sets_of_bytes_that_are_called_doubles_are_read(tmp_path):
    """MATLAB writes sparse logical arrays so, which is how sets are published."""
    parts = (
        element(5, struct.pack("<3i", 0, 0, 1)),
        element(5, struct.pack("<4i", 0, 1, 3, 3)),
        element(9, b"\1\1\1"),
    )
    path = tmp_path / "t.mat"
    path.write_bytes(mat5(DATA, matrix("partial_target", 5, (2, 3), *parts, flags=0x200)))
    assert read_label_table(path).candidates.dense().tolist() == [
        [True, True, False],
        [False, True, False],
    ]


@pytest.mark.parametrize(
    ("arrays", "fragment"),
    [
        ([DATA, sparse_sets((2**31 - 1, 2), [0, 5], [0, 1, 2])], "more than 1,000,000 classes"),
        ([DATA, sparse_sets((2, 3), [0, 7, 1], [0, 1, 2, 3])], "an entry outside its shape (2, 3)"),
        (
            [DATA, sparse_sets((2, 3), [0, -1, 1], [0, 1, 2, 3])],
            "an entry outside its shape (2, 3)",
        ),
        ([DATA, sparse_sets((2, 3), [0, 1, 1], [0, 2, 1, 3])], "do not fit its entries"),
        ([DATA, sparse_sets((2, 3), [0, 1, 1], [0, 1, 2, 9])], "do not fit its entries"),
        ([DATA, sparse_sets((2, 2**31 - 1), [0, 1], [0, 1, 2])], "incomplete list of columns"),
        (
            [matrix("data", 6, (2**31 - 1, 2**31 - 1), element(9, b""))],
            "has 0 numbers for the shape",
        ),
        ([matrix("data", 6, (-1, 1), element(9, b""))], "has no shape"),
        ([matrix("data", 6, (1,) * 40, element(9, b"\0" * 8))], "has no shape"),
        ([DATA, DATA], "holds 'data' twice"),
        ([struct.pack("<II", 14, 2**31)], "shorter than its header says"),
        ([element(15, b"nonsense")], "cannot be unpacked"),
        ([element(15, zlib.compress(DATA)[:-1])], "does not have the size it claims"),
        ([element(15, zlib.compress(DATA + b"x" * 10_000))], "does not have the size it claims"),
        (
            [element(15, zlib.compress(struct.pack("<II", 14, 2**31) + DATA[8:]))],
            "would expand to 2.0 GiB",
        ),
        (
            [matrix("data", 6, (1, 1), element(9, b"\0" * 8), element(9, b"\0" * 8), flags=0x800)],
            "holds cells, text or objects",
        ),
    ],
)
def test_what_a_file_claims_is_not_believed(tmp_path, arrays, fragment):
    path = tmp_path / "t.mat"
    path.write_bytes(mat5(*arrays))
    assert fragment in refusal(lambda: read_label_table(path))


def test_a_sparse_array_that_would_fill_the_memory_is_refused(tmp_path):
    huge = matrix(
        "data",
        5,
        (2**31 - 1, 1),
        *(element(5, b""), element(5, struct.pack("<2i", 0, 0)), element(9, b"")),
    )
    (tmp_path / "t.mat").write_bytes(mat5(huge))
    assert "too large for a dense array" in refusal(
        lambda: read_label_table(tmp_path / "t.mat", needs_candidates=False)
    )


def test_a_packed_array_that_is_not_wanted_is_not_expanded():
    broken = zlib.compress(matrix("data", 6, (1000, 1000), element(9, b"\0" * 8_000_000)))[:-100]
    with pytest.raises(DamagedError, match="does not have the size"):
        read_arrays(mat5(element(15, broken)), ["data"])
    assert read_arrays(mat5(element(15, broken)), ["target"]) == {}


def test_other_things_of_matlabs_beside_the_arrays_are_skipped(tmp_path):
    """Objects of its own, such as tables and dates, have no shape; text, cells and functions are not looked into."""
    opaque = matrix("when", 17, (), element(1, b"MCOS"), element(1, b"datetime"))
    found = read_arrays(
        mat5(
            opaque, element(15, zlib.compress(matrix("text", 4, (1, 1), element(4, b"ab")))), DATA
        ),
        ["data"],
    )
    assert found["data"].tolist() == [[1], [2]]
