"""MATLAB files of versions 4 to 7 are read in every form, and damaged ones are refused."""

import io
import struct
import zlib

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from ltpll.convert.open import read_label_table
from ltpll.errors import InputError
from ltpll.tables.guarded import read_mat_arrays
from support.refusals import refusal

NAMES = ("data", "partial_target", "target")
FORMS = {"plain": {}, "packed": {"do_compression": True}, "old": {"format": "4"}}


def saved(arrays, form="plain"):
    content = io.BytesIO()
    scipy.io.savemat(content, arrays, **FORMS[form])
    return content.getvalue()


def read_arrays(path, content):
    path.write_bytes(content)
    return read_mat_arrays(path, NAMES)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", ["f8", "f4", "i2", "u1", "i4", "?"])
@pytest.mark.parametrize("shape", [(2, 3), (0, 2), (3, 1)])
def test_numbers_cross_from_the_child_unchanged(tmp_path, form, kind, shape):
    kind = "u1" if (form, kind) == ("old", "?") else kind
    array = np.arange(np.prod(shape)).reshape(shape).astype(kind)
    entries = scipy.sparse.csc_matrix(np.eye(3, 4)[::-1] * 2.5)
    content = saved({"other": "text", "data": array, "partial_target": entries}, form)
    found = read_arrays(tmp_path / "t.mat", content)
    np.testing.assert_array_equal(found["data"], array)
    np.testing.assert_array_equal(found["partial_target"], entries.toarray())
    assert len(found) == 2


@pytest.mark.parametrize("form", FORMS)
def test_whichever_byte_is_wrong_the_file_is_read_or_refused(tmp_path, form):
    sets = scipy.sparse.csc_matrix(np.asarray([[1.0, 0, 1], [0, 1, 0]]))
    content = saved({"data": np.ones((2, 2)), "partial_target": sets}, form)
    refused = 0
    positions = range(0, len(content), 3)
    for i in positions:
        damaged = content[:i] + bytes([content[i] ^ (1 << i % 8)]) + content[i + 1 :]
        try:
            read_arrays(tmp_path / "t.mat", damaged)
        except InputError:
            refused += 1
    assert refused > len(positions) / 10


@pytest.mark.parametrize("form", FORMS)
def test_a_file_that_is_cut_off_anywhere_is_refused_or_holds_less(tmp_path, form):
    content = saved({"data": np.ones((2, 2)), "target": np.ones((2, 1))}, form)
    whole = 0
    for length in range(1, len(content), 2):
        try:
            whole = max(whole, len(read_arrays(tmp_path / "t.mat", content[:length])))
        except InputError:
            continue
    assert whole <= 1


# ---- what a file may claim -----------------------------------------------------------------------


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
        ([DATA, sparse_sets((2**31 - 1, 2), [0, 5], [0, 1, 2])], "would expand to"),
        ([DATA, sparse_sets((2, 3), [0, 7, 1], [0, 1, 2, 3])], "damaged"),
        ([DATA, sparse_sets((2, 3), [0, -1, 1], [0, 1, 2, 3])], "damaged"),
        ([DATA, sparse_sets((2, 3), [0, 1, 1], [0, 2, 1, 3])], "damaged"),
        ([DATA, sparse_sets((2, 3), [0, 1, 1], [0, 1, 2, 9])], "damaged"),
        ([DATA, sparse_sets((2, 2**31 - 1), [0, 1], [0, 1, 2])], "would expand to"),
        ([matrix("data", 6, (2**31 - 1, 2**31 - 1), element(9, b""))], "would expand to"),
        (
            [matrix("data", 6, (-1, 1), element(9, b"")), sparse_sets((2, 3), [0], [0, 1, 1, 1])],
            "has shape (0, 1)",
        ),
        ([matrix("data", 6, (1,) * 40, element(9, b"\0" * 8))], "damaged"),
        ([struct.pack("<II", 14, 2**31)], "damaged"),
        ([element(15, b"nonsense")], "damaged"),
        ([element(15, zlib.compress(DATA)[:-20])], "damaged"),
        ([element(15, zlib.compress(DATA[:-8]))], "damaged"),
        ([matrix("data", 4, (1, 2), element(16, b"ab"))], "holds cells, text, objects"),
        (
            [matrix("data", 6, (1, 1), element(9, b"\0" * 8), element(9, b"\0" * 8), flags=0x800)],
            "complex numbers",
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
    assert "would expand to" in refusal(
        lambda: read_label_table(tmp_path / "t.mat", needs_candidates=False)
    )


def test_other_things_of_matlabs_beside_the_arrays_are_skipped(tmp_path):
    """Tables and dates have no shape, text is not read, and what is not wanted may be damaged."""
    opaque = matrix("when", 17, (), element(1, b"MCOS"), element(1, b"datetime"))
    text = zlib.compress(matrix("text", 4, (1, 1), element(4, b"ab")))
    broken = zlib.compress(matrix("other", 6, (1000, 1000), element(9, bytes(8_000_000))))[:-100]
    content = mat5(opaque, element(15, text), element(15, broken), DATA)
    assert read_arrays(tmp_path / "t.mat", content)["data"].tolist() == [[1], [2]]
