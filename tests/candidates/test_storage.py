"""Candidates hold exactly the sets they were built from, and refuse everything that is no set."""

from __future__ import annotations

import json
import pickle
import time
import tracemalloc
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.model_selection import GridSearchCV
from sklearn.utils import _safe_indexing

import ltpll.candidates.storage
from ltpll import CandidateKFold, PartialLabelClassifier
from ltpll.candidates import Candidates
from ltpll.errors import InputError, InputWarning
from ltpll.synthetic import four_squares, uniform_candidates
from support.refusals import refusal

# Names need no order and may look like anything.
NAMES = ("ant", "Bee", "cat 2", "ï", "0", "eel-e", "fox", "gnu", "hen")


@st.composite
def sets_of_labels(draw, max_rows=12):
    """Some rows of non-empty sets of class numbers, and the number of classes."""
    n_classes = draw(st.integers(2, len(NAMES)))
    row = st.sets(st.integers(0, n_classes - 1), min_size=1)
    return draw(st.lists(row, min_size=1, max_size=max_rows)), n_classes


def matrix_of(sets, n_classes, dtype=np.int64):
    matrix = np.zeros((len(sets), n_classes), dtype=dtype)
    for i, labels in enumerate(sets):
        for label in labels:
            matrix[i, label] = 1
    return matrix


def object_array_of(rows):
    array = np.empty(len(rows), dtype=object)
    for i, row in enumerate(rows):
        array[i] = list(row)
    return array


def named(sets):
    return [[NAMES[label] for label in labels] for labels in sets]


def frame_of(sets, n, dtype):
    return pd.DataFrame(
        matrix_of(sets, n, dtype), columns=list(NAMES[:n]), index=range(100, 100 + len(sets))
    )


BUILDERS = {
    "numpy int": lambda sets, n: Candidates.of(matrix_of(sets, n)),
    "numpy uint8": lambda sets, n: Candidates.of(matrix_of(sets, n, np.uint8)),
    "numpy bool": lambda sets, n: Candidates.of(matrix_of(sets, n, np.bool_)),
    "numpy float": lambda sets, n: Candidates.of(matrix_of(sets, n, np.float64)),
    "numpy column-major": lambda sets, n: Candidates.of(np.asfortranarray(matrix_of(sets, n))),
    "torch int": lambda sets, n: Candidates.of(torch.from_numpy(matrix_of(sets, n))),
    "torch bool": lambda sets, n: Candidates.of(torch.from_numpy(matrix_of(sets, n)).bool()),
    "torch float with gradient": lambda sets, n: Candidates.of(
        torch.from_numpy(matrix_of(sets, n)).float().requires_grad_()
    ),
    "torch bfloat16": lambda sets, n: Candidates.of(
        torch.from_numpy(matrix_of(sets, n)).bfloat16()
    ),
    "torch sparse": lambda sets, n: Candidates.of(torch.from_numpy(matrix_of(sets, n)).to_sparse()),
    "scipy csr": lambda sets, n: Candidates.of(scipy.sparse.csr_matrix(matrix_of(sets, n))),
    "scipy csc": lambda sets, n: Candidates.of(
        scipy.sparse.csc_matrix(matrix_of(sets, n, np.float32))
    ),
    "scipy coo": lambda sets, n: Candidates.of(
        scipy.sparse.coo_matrix(matrix_of(sets, n, np.bool_))
    ),
    "scipy coo array": lambda sets, n: Candidates.of(scipy.sparse.coo_array(matrix_of(sets, n))),
    "scipy lil": lambda sets, n: Candidates.of(scipy.sparse.lil_matrix(matrix_of(sets, n))),
    "list of sets": lambda sets, n: Candidates.of(sets, n_classes=n),
    "list of frozensets": lambda sets, n: Candidates.of([frozenset(s) for s in sets], n_classes=n),
    "list of lists backwards with repeats": lambda sets, n: Candidates.of(
        [sorted(s, reverse=True) * 2 for s in sets], n_classes=n
    ),
    "tuple of tuples": lambda sets, n: Candidates.of(tuple(tuple(s) for s in sets), n_classes=n),
    "generator of generators": lambda sets, n: Candidates.of(
        ((label for label in s) for s in sets), n_classes=n
    ),
    "list of dict keys": lambda sets, n: Candidates.of(
        [dict.fromkeys(s, 0.5).keys() for s in sets], n_classes=n
    ),
    "list of numpy arrays": lambda sets, n: Candidates.of(
        [np.array(list(s), dtype=np.int16) for s in sets], n_classes=n
    ),
    "list of torch tensors": lambda sets, n: Candidates.of(
        [torch.tensor(list(s)) for s in sets], n_classes=n
    ),
    "list of whole floats": lambda sets, n: Candidates.of(
        [[float(label) for label in s] for s in sets], n_classes=n
    ),
    "object array of lists": lambda sets, n: Candidates.of(object_array_of(sets), n_classes=n),
    "series of lists": lambda sets, n: Candidates.of(
        pd.Series([list(s) for s in sets], index=range(7, 7 + len(sets))), n_classes=n
    ),
    "number names": lambda sets, n: Candidates.of(
        [[10 * label for label in s] for s in sets], classes=[10 * c for c in range(n)]
    ),
    "itself": lambda sets, n: Candidates.of(Candidates.of(sets, n_classes=n)),
}

NAMED_BUILDERS = {
    "frame": lambda sets, n: Candidates.of(frame_of(sets, n, np.int64)),
    "frame of bool": lambda sets, n: Candidates.of(frame_of(sets, n, np.bool_)),
    "frame with other names": lambda sets, n: Candidates.of(
        frame_of(sets, n, np.int64).rename(columns=str.upper), classes=list(NAMES[:n])
    ),
    "matrix with names": lambda sets, n: Candidates.of(matrix_of(sets, n), classes=NAMES[:n]),
    "sparse matrix with names": lambda sets, n: Candidates.of(
        scipy.sparse.csr_array(matrix_of(sets, n)), classes=NAMES[:n]
    ),
    "lists of names": lambda sets, n: Candidates.of(named(sets), classes=NAMES[:n]),
    "sets of names": lambda sets, n: Candidates.of(
        [set(row) for row in named(sets)], classes=NAMES[:n], n_classes=n
    ),
    "numpy rows of names": lambda sets, n: Candidates.of(
        [np.array(row) for row in named(sets)], classes=NAMES[:n]
    ),
    "object array of names": lambda sets, n: Candidates.of(
        object_array_of(named(sets)), classes=NAMES[:n]
    ),
    "series of lists of names": lambda sets, n: Candidates.of(
        pd.Series(named(sets)), classes=NAMES[:n]
    ),
    "series of strings": lambda sets, n: Candidates.of(
        pd.Series(["|".join(row) for row in named(sets)]), classes=NAMES[:n]
    ),
    "list of strings": lambda sets, n: Candidates.of(
        ["|".join(row) for row in named(sets)], classes=NAMES[:n]
    ),
    "tuple of strings": lambda sets, n: Candidates.of(
        tuple(" | ".join(row) for row in named(sets)), classes=NAMES[:n]
    ),
    "array of strings": lambda sets, n: Candidates.of(
        np.asarray(["|".join(row) for row in named(sets)]), classes=NAMES[:n]
    ),
    "series of JSON": lambda sets, n: Candidates.of(
        pd.Series([json.dumps(row) for row in named(sets)]), classes=NAMES[:n]
    ),
    "list of JSON and strings": lambda sets, n: Candidates.of(
        [json.dumps(row) if i % 2 else "|".join(row) for i, row in enumerate(named(sets))],
        classes=NAMES[:n],
    ),
    "categorical series": lambda sets, n: Candidates.of(
        pd.Series(["|".join(row) for row in named(sets)], dtype="category"), classes=NAMES[:n]
    ),
}


def assert_holds(candidates, sets, n_classes):
    """The object says the same thing of the sets in every way it has of saying it."""
    assert len(candidates) == len(sets)
    assert candidates.n_classes == n_classes
    assert [candidates.row(i) for i in range(len(sets))] == [sorted(labels) for labels in sets]
    dense = candidates.dense()
    assert dense.dtype == torch.bool
    assert dense.tolist() == [[c in labels for c in range(n_classes)] for labels in sets]


@pytest.mark.parametrize("build", BUILDERS.values(), ids=BUILDERS.keys())
@settings(max_examples=15, deadline=None)  # for each of many builders
@given(data=sets_of_labels())
def test_sets_of_numbers_come_back_as_they_went_in(build, data):
    sets, n_classes = data
    assert_holds(build(sets, n_classes), sets, n_classes)


@pytest.mark.parametrize("build", NAMED_BUILDERS.values(), ids=NAMED_BUILDERS.keys())
@settings(max_examples=15, deadline=None)  # for each of many builders
@given(data=sets_of_labels())
def test_sets_of_names_come_back_with_the_names_in_the_order_given(build, data):
    sets, n_classes = data
    candidates = build(sets, n_classes)
    assert_holds(candidates, sets, n_classes)
    assert candidates.classes == NAMES[:n_classes]


@settings(max_examples=40, deadline=None)
@given(data=sets_of_labels(), as_series=st.booleans())
def test_names_without_a_list_of_classes_are_the_sorted_distinct_ones(data, as_series):
    rows = named(data[0])
    distinct = sorted({name for row in rows for name in row})
    assume(len(distinct) >= 2)
    candidates = Candidates.of(pd.Series(["|".join(row) for row in rows]) if as_series else rows)
    assert candidates.classes == tuple(distinct)
    assert [{candidates.classes[c] for c in candidates.row(i)} for i in range(len(rows))] == [
        set(row) for row in rows
    ]


@settings(max_examples=40, deadline=None)
@given(data=sets_of_labels())
def test_numbers_without_n_classes_run_up_to_the_largest(data):
    sets, _ = data
    largest = max(max(labels) for labels in sets)
    assume(largest >= 1)
    candidates = Candidates.of(sets)
    assert_holds(candidates, sets, largest + 1)
    assert candidates.classes == tuple(range(largest + 1))


@settings(max_examples=50, deadline=None)
@given(
    data=sets_of_labels(),
    separator=st.sampled_from(["|", ";", ",", " & ", "/-/"]),
    blanks=st.randoms(use_true_random=False),
)
def test_blanks_and_empty_parts_of_a_separated_string_do_not_matter(data, separator, blanks):
    sets, n_classes = data

    def written(row):
        parts = [" " * blanks.randint(0, 2) + name + "\t" * blanks.randint(0, 1) for name in row]
        return separator.join(parts + [" "] * blanks.randint(0, 1))

    series = pd.Series([written(row) for row in named(sets)])
    assert_holds(
        Candidates.of(series, classes=NAMES[:n_classes], separator=separator), sets, n_classes
    )


@settings(max_examples=50, deadline=None)
@given(data=sets_of_labels(), random=st.randoms(use_true_random=False))
def test_order_and_repeats_within_a_row_do_not_matter(data, random):
    sets, n_classes = data
    rows = [[label for label in labels for _ in range(random.randint(1, 3))] for labels in sets]
    for row in rows:
        random.shuffle(row)
    shuffled, plain = (
        Candidates.of(rows, n_classes=n_classes),
        Candidates.of(sets, n_classes=n_classes),
    )
    assert torch.equal(shuffled.labels, plain.labels)
    assert torch.equal(shuffled.offsets, plain.offsets)


@pytest.mark.parametrize(
    "build", [scipy.sparse.csr_matrix, scipy.sparse.csc_matrix, scipy.sparse.coo_matrix]
)
def test_stored_zeros_of_a_sparse_matrix_are_no_candidates_and_the_matrix_is_left_alone(build):
    data, rows, columns = [1, 0, 1, 0, 1], [0, 0, 1, 1, 1], [2, 0, 1, 0, 2]
    matrix = build((data, (rows, columns)), shape=(2, 3))
    assert_holds(Candidates.of(matrix), [{2}, {1, 2}], 3)
    assert matrix.nnz == 5
    assert sorted(matrix.data) == [0, 0, 1, 1, 1]


# ---- reading -------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(data=sets_of_labels(), draw=st.data())
def test_a_batch_equals_the_dense_rows_for_any_index_with_repeats(data, draw):
    sets, n_classes = data
    index = draw.draw(st.lists(st.integers(0, len(sets) - 1), max_size=20))
    batch = Candidates.of(sets, n_classes=n_classes)[torch.tensor(index, dtype=torch.long)]
    assert batch.shape == (len(index), n_classes)
    assert np.array_equal(batch.numpy(), matrix_of(sets, n_classes, np.bool_)[index])


EVEN, UNEVEN = [{0, 1}, {2, 4}, {1, 3}, {0, 4}], [{0, 1}, {2}, {0, 1, 2, 3, 4}, {4}]


@pytest.mark.parametrize("sets", [EVEN, UNEVEN], ids=["even", "uneven"])
@pytest.mark.parametrize("few", [0, 1 << 20], ids=["positions worked out", "positions kept"])
def test_rows_count_like_a_tensors_and_may_change_between_two_reads(sets, few, monkeypatch):
    monkeypatch.setattr(ltpll.candidates.storage, "FEW_POSITIONS", few)
    candidates, expected = (
        Candidates.of(sets, n_classes=5),
        torch.from_numpy(matrix_of(sets, 5, np.bool_)),
    )
    index = torch.tensor([3, 0])
    for now in ([3, 0], [3, 0], [0, 3], [-1, -4], [2, 2], [3, 0]):
        index.copy_(torch.tensor(now))  # the very tensor that was looked up before
        assert torch.equal(candidates[index], expected[now])
        assert torch.equal(candidates[torch.tensor(now, dtype=torch.int32)], expected[now])
    index.copy_(torch.tensor([1, 1]))
    assert torch.equal(candidates[torch.tensor([3, 0])], expected[[3, 0]])
    for wrong in (4, -5):
        with pytest.raises(IndexError):
            candidates[torch.tensor([0, wrong])]


@settings(max_examples=40, deadline=None)
@given(data=sets_of_labels())
def test_positions_that_are_kept_are_those_that_are_worked_out(data):
    sets, n_classes = data
    candidates = Candidates.of(sets, n_classes=n_classes)
    everything = torch.arange(len(sets))
    slots = candidates.slots(everything)
    longest = max(map(len, sets))
    assert slots.tolist() == [
        [min(int(start) + k, int(end) - 1) for k in range(longest)]
        for start, end in offsets_of(candidates)
    ]
    rows = candidates.rows(everything)
    assert torch.equal(rows.labels, candidates.labels[slots].long())
    uneven = len(set(map(len, sets))) > 1
    assert torch.equal(rows.where, slots if uneven else everything)


def offsets_of(candidates):
    return zip(candidates.offsets[:-1], candidates.offsets[1:], strict=True)


@pytest.mark.parametrize(("width", "rows"), [(1, 40), (3, 13), (40, 1), (1000, 1)])
def test_parts_are_all_rows_in_order_and_never_more_than_asked_for(width, rows, monkeypatch):
    monkeypatch.setattr(ltpll.candidates.storage, "VALUES_PER_PASS", 40)
    parts = Candidates.of([[0], [1, 2]] * 50).row_blocks(width)
    assert torch.cat(parts).tolist() == list(range(100))
    assert {len(part) for part in parts[:-1]} == {rows}


@settings(max_examples=60, deadline=None)
@given(data=sets_of_labels(), draw=st.data())
def test_select_equals_the_chosen_sets_in_their_order(data, draw):
    sets, n_classes = data
    rows = draw.draw(st.lists(st.integers(0, len(sets) - 1), min_size=1, max_size=20))
    candidates = Candidates.of(named(sets), classes=NAMES[:n_classes])
    chosen = candidates.select(rows)
    assert_holds(chosen, [sets[i] for i in rows], n_classes)
    assert chosen.classes == candidates.classes
    assert chosen.max_size == max(len(sets[i]) for i in rows)


@settings(max_examples=40, deadline=None)
@given(data=sets_of_labels(), draw=st.data())
def test_select_takes_a_mask_like_numpy_does(data, draw):
    sets, n_classes = data
    mask = draw.draw(st.lists(st.booleans(), min_size=len(sets), max_size=len(sets)))
    assume(any(mask))
    chosen = Candidates.of(sets, n_classes=n_classes).select(np.array(mask))
    assert_holds(
        chosen, [labels for labels, keep in zip(sets, mask, strict=True) if keep], n_classes
    )


@settings(max_examples=60, deadline=None)
@given(data=sets_of_labels(), draw=st.data())
def test_counts_sizes_and_contains_equal_a_plain_count(data, draw):
    sets, n_classes = data
    labels = draw.draw(
        st.lists(st.integers(0, n_classes - 1), min_size=len(sets), max_size=len(sets))
    )
    candidates = Candidates.of(sets, n_classes=n_classes)
    assert candidates.rows_per_class().tolist() == [
        sum(c in s for s in sets) for c in range(n_classes)
    ]
    assert candidates.sizes.tolist() == [len(s) for s in sets]
    assert candidates.max_size == max(len(s) for s in sets)
    assert candidates.contains(torch.tensor(labels)).tolist() == [
        label in s for label, s in zip(labels, sets, strict=True)
    ]
    mean = sum(map(len, sets)) / len(sets)
    assert (
        repr(candidates)
        == f"Candidates({len(sets)} rows, {n_classes} classes, {mean:.2f} candidates per row)"
    )


@pytest.mark.parametrize("values_at_once", [1, 7, 40])
def test_contains_is_right_however_many_rows_are_looked_at_at_once(values_at_once, monkeypatch):
    monkeypatch.setattr(ltpll.candidates.storage, "VALUES_PER_PASS", values_at_once)
    candidates = Candidates.of([[i % 3] for i in range(100)], n_classes=3)
    found = candidates.contains(torch.zeros(100, dtype=torch.long))
    assert found.tolist() == [i % 3 == 0 for i in range(100)]


def test_moving_to_a_device_keeps_everything():
    candidates = Candidates.of([["a", "b"], ["c"]])
    moved = candidates.to(torch.device("cpu"))
    assert_holds(moved, [{0, 1}, {2}], 3)
    assert moved.classes == ("a", "b", "c")
    assert moved.device == torch.device("cpu")


@pytest.mark.parametrize("n_classes", [2**15 - 1, 2**15, 2**15 + 1, 70_000])
def test_the_last_class_is_kept_on_either_side_of_two_byte_labels(n_classes):
    candidates = Candidates.of([[0, n_classes - 1], [n_classes - 2]], n_classes=n_classes)
    assert [candidates.row(0), candidates.row(1)] == [[0, n_classes - 1], [n_classes - 2]]
    assert torch.nonzero(candidates[torch.tensor([1, 0])]).tolist() == [
        [0, n_classes - 2],
        [1, 0],
        [1, n_classes - 1],
    ]


def test_memory_and_time_grow_with_the_labels_and_not_with_rows_times_classes():
    n, n_classes, size = 200_000, 8142, 5
    # Five labels far apart in each row, so that they are distinct without a draw per row.
    numbers = (np.arange(n)[:, None] * 7 + np.arange(size) * 1500) % n_classes
    matrix = scipy.sparse.csr_matrix(
        (np.ones(n * size, dtype=np.int8), numbers.ravel(), np.arange(n + 1) * size),
        shape=(n, n_classes),
    )
    tracemalloc.start()
    start = time.perf_counter()
    candidates = Candidates.of(matrix)
    seconds, peak = time.perf_counter() - start, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(candidates.labels) == n * size
    assert candidates.row(123_456) == sorted(numbers[123_456])
    held = sum(
        tensor.untyped_storage().nbytes()
        for tensor in vars(candidates).values()
        if isinstance(tensor, torch.Tensor)
    )
    assert held <= 15 * n * size + 5 * n
    assert (
        peak < 150 * n * size < n * n_classes
    )  # bytes while building; a dense boolean matrix has the latter
    assert seconds < 10


# ---- refusing ------------------------------------------------------------------------------------


def sparse(rows):
    return scipy.sparse.csr_matrix(np.array(rows, dtype=float))


ROW_AT_FAULT = {
    "empty first": ([[], [0], [1]], {}, 0),
    "empty middle": ([{0}, set(), {1}], {}, 1),
    "empty last": ([(0,), (1,), ()], {}, 2),
    "empty several": ([[0], [], [1], []], {}, 1),
    "empty array": ([np.array([0, 1]), np.array([], dtype=int)], {}, 1),
    "empty of names": ([["a", "b"], []], {}, 1),
    "all empty": ([[], []], {}, 0),
    "matrix row of zeros first": (np.array([[0, 0], [1, 0]]), {}, 0),
    "matrix row of zeros last": (torch.tensor([[0.0, 1.0], [0.0, 0.0]]), {}, 1),
    "sparse row of zeros": (sparse([[1, 0], [0, 0], [0, 1]]), {}, 1),
    "frame row of zeros": (pd.DataFrame({"a": [1, 0], "b": [1, 0]}, index=[5, 6]), {}, 1),
    "series None": (pd.Series([["a"], None, ["b"]]), {}, 1),
    "series NaN": (pd.Series(["a|b", "b", float("nan")]), {}, 2),
    "series NA": (pd.Series(["a|b", pd.NA, "b"], dtype="string"), {}, 1),
    "series blank": (pd.Series(["a|b", "  "], index=[10, 20]), {}, 1),
    "series only separators": (pd.Series(["a|b", "b", "| |"]), {}, 2),
    "series of numbers": (pd.Series([0, 1]), {}, 0),
    "list of strings with None": (["a|b", "b", None], {}, 2),
    "list of strings with NaN": (["a|b", float("nan")], {}, 1),
    "blank in a list of strings": (["a|b", " "], {}, 1),
    "unknown name in a list of strings": (["a", "a|x"], {"classes": ["a", "b"]}, 1),
    "not a list": (pd.Series(["a|b", "[unknown]"]), {}, 1),
    "nested list in a string": (["a|b", '[["a"]]'], {}, 1),
    "mistaken separator": (pd.Series(["a|b", "b", "a;b"]), {}, 2),
    "lone surrogate": (["a|b", "\ud800"], {}, 1),
    "lone surrogate in JSON": (["a|b", '["\\ud800"]'], {}, 1),
    "lone surrogate far below": (["a|b"] * 70_000 + ["\ud800"], {}, 70_000),
    "negative": ([[0, 1], [1, -1]], {}, 1),
    "too large": ([[0], [1], [2]], {"n_classes": 2}, 2),
    "too large by far": ([[0], [2**40]], {"n_classes": 3}, 1),
    "beyond 64 bits": ([[0, 1], [10**30]], {}, 1),
    "fraction": ([[0], [1, 1.5]], {}, 1),
    "None label": ([[0, 1], [0], [None]], {}, 2),
    "NaN label": ([[0, 1], [float("nan")]], {}, 1),
    "infinite label": ([[0, 1], [float("inf")]], {}, 1),
    "unknown name": ([["a"], ["b", "x"]], {"classes": ["a", "b"]}, 1),
    "unknown name in series": (pd.Series(["a", "b", "a|x"]), {"classes": ["a", "b"]}, 2),
    "number for a name": ([["a"], [0]], {"classes": ["a", "b"]}, 1),
    "matrix with 2": (np.array([[0, 1], [2, 0]]), {}, 1),
    "matrix with -1": (np.array([[0, 1], [1, 0], [-1, 1]]), {}, 2),
    "matrix with a half": (np.array([[0.5, 1], [1, 0]]), {}, 0),
    "matrix with NaN": (np.array([[0, 1], [1, 0], [1, np.nan]]), {}, 2),
    "tensor with NaN": (torch.tensor([[0, 1], [float("nan"), 1]]), {}, 1),
    "frame with NaN": (pd.DataFrame({"a": [1, 0, 1], "b": [1, None, 0]}), {}, 1),
    "sparse with 2": (sparse([[1, 0], [0, 0], [1, 2]]), {}, 2),
    "sparse with NaN": (sparse([[1, 0], [np.nan, 1]]), {}, 1),
    "bytes as a row": ([[0, 1], b"b"], {}, 1),
    "whole number as a row": ([[0], [1], 1], {}, 2),
    "labels instead of sets": (np.array([0, 1, 2]), {}, 0),
    "None as a row": ([[0, 1], None], {}, 1),
    "row of rows": ([[[0, 2]], [[1, 0]]], {}, 0),
    "row of rows of names": ([["a"], [["b"]]], {"classes": ["a", "b"]}, 1),
    "row of booleans": ([[True, False, True], [False, True, False]], {}, 0),
}


@pytest.mark.parametrize(
    ("source", "options", "row"), ROW_AT_FAULT.values(), ids=ROW_AT_FAULT.keys()
)
def test_a_row_that_is_no_set_of_candidates_is_refused_with_its_number(source, options, row):
    assert refusal(lambda: Candidates.of(source, **options)).startswith(f"Row {row} ")


@pytest.mark.parametrize(
    ("source", "fragment"),
    [
        ([[0], [], [], [1], []], "3 such rows"),
        (np.array([[0, 1], [0, 0], [0, 0]]), "2 such rows"),
    ],
)
def test_several_empty_rows_are_counted(source, fragment):
    message = refusal(lambda: Candidates.of(source))
    assert message.startswith("Row 1 has no candidate label")
    assert fragment in message


@pytest.mark.parametrize(
    ("source", "options", "shown"),
    [
        ([[0], [3]], {"n_classes": 3}, ["3", "0 to 2"]),
        ([[0], [-4]], {}, ["-4"]),
        ([[0], [1.5]], {}, ["1.5"]),
        ([["a"], ["x"]], {"classes": ["a", "b"]}, ["'x'", "'a', 'b'"]),
        (np.array([[0, 1], [7, 0]]), {}, ["7"]),
        (np.array([[0, 1], [0.25, 0]]), {}, ["0.25"]),
    ],
)
def test_the_message_shows_the_value_at_fault(source, options, shown):
    message = refusal(lambda: Candidates.of(source, **options))
    assert all(word in message for word in shown)


WHOLE_AT_FAULT = {
    "names and numbers": ([["a", "b"], ["b", 1]], {}, "all names, or all"),
    "names and NaN": ([["a", "b"], [float("nan")]], {}, "all names, or all"),
    "names and a list": ([["a", "b"], ["a", ["b"]]], {}, ""),
    "matrix with one dimension": (torch.tensor([0, 1, 1]), {}, "two dimensions"),
    "matrix with three dimensions": (torch.ones(2, 2, 2), {}, "two dimensions"),
    "array with three dimensions": (np.ones((2, 2, 2), dtype=int), {}, "dimensions"),
    "array without dimensions": (np.array(3), {}, ""),
    "sparse array with one dimension": (
        scipy.sparse.coo_array(np.array([1, 0, 1])),
        {},
        "dimensions",
    ),
    "matrix of objects": (np.array([[0, 1], [1, 0]], dtype=object), {}, "holds object"),
    "frame of text": (pd.DataFrame({"a": ["x", "y"], "b": ["x", "z"]}), {}, ""),
    "name twice": ([["a"], ["b"]], {"classes": ["a", "b", "a"]}, "'a' occurs twice"),
    "column twice": (pd.DataFrame([[1, 0], [1, 1]], columns=["a", "a"]), {}, "'a' occurs twice"),
    "too few names": (np.eye(3, dtype=int), {"classes": ["a", "b"]}, "2 class names for 3 columns"),
    "too many names": (
        sparse(np.eye(2)),
        {"classes": ["a", "b", "c"]},
        "3 class names for 2 columns",
    ),
    "one class": ([[0], [0]], {}, "1 class"),
    "one name": ([["a"], ["a"]], {}, "1 class"),
    "one column": (np.ones((3, 1)), {}, "1 class"),
    "no rows": ([], {}, "no rows"),
    "no rows of a matrix": (np.zeros((0, 3)), {}, "no rows"),
    "no rows of a sparse matrix": (scipy.sparse.csr_matrix((0, 3)), {}, "no rows"),
    "no rows of a series": (pd.Series([], dtype=object), {}, "no rows"),
    "empty separator": (pd.Series(["a|b"]), {"separator": ""}, "separator"),
    "n_classes against names": (
        [["a"], ["b"]],
        {"classes": ["a", "b"], "n_classes": 3},
        "n_classes is 3",
    ),
    "n_classes against found names": ([["a"], ["b"]], {"n_classes": 5}, "n_classes is 5"),
    "n_classes against columns": (np.eye(3, dtype=int), {"n_classes": 7}, "n_classes is 7"),
    "n_classes with a fraction": ([[0], [1]], {"n_classes": 2.5}, "n_classes"),
    "None": (None, {}, ""),
    "a number": (5, {}, ""),
    "a single string": ("a|b", {}, "cannot be read from 'a|b'"),
}


@pytest.mark.parametrize(
    ("source", "options", "fragment"), WHOLE_AT_FAULT.values(), ids=WHOLE_AT_FAULT.keys()
)
def test_input_that_cannot_be_candidates_is_refused_in_one_sentence(source, options, fragment):
    assert fragment in refusal(lambda: Candidates.of(source, **options))


@pytest.mark.parametrize("label", [float("nan"), float("inf"), 1.5])
def test_refusing_a_label_raises_nothing_but_the_refusal(label):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        refusal(lambda: Candidates.of([[0, 1], [label]]))


# ---- judging -------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [[[0, 1]] * 3, [[0, 1, 2]] * 2, [[1]] * 5])
def test_rows_that_are_all_the_same_are_refused(rows):
    message = refusal(Candidates.of(rows, n_classes=3).check_learnable)
    assert message.startswith(
        f"All {len(rows)} rows have the same candidates ({', '.join(map(str, rows[0]))})"
    )


def test_a_single_row_is_refused():
    assert "1 row" in refusal(Candidates.of([[0, 1]]).check_learnable)


@settings(max_examples=60, deadline=None)
@given(data=sets_of_labels(max_rows=6))
def test_learnable_is_what_has_two_different_rows_and_a_warning_names_each_missing_class(data):
    sets, n_classes = data
    candidates = Candidates.of(named(sets), classes=NAMES[:n_classes])
    missing = [repr(NAMES[c]) for c in range(n_classes) if not any(c in s for s in sets)]
    if len({frozenset(s) for s in sets}) < 2:
        with pytest.raises(InputError):
            candidates.check_learnable()
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        candidates.check_learnable()
    if not missing:
        assert not caught
        return
    (warning,) = caught
    assert warning.category is InputWarning
    verb = "is" if len(missing) == 1 else "are"
    assert str(warning.message).startswith(
        f"{len(missing)} of {n_classes} classes {verb} never a candidate"
    )
    assert f"({', '.join(missing[:5])}" in str(warning.message)
    assert "\n" not in str(warning.message)


# ---- groups --------------------------------------------------------------------------------------


def test_groups_are_numbered_in_order_of_appearance_and_follow_their_rows():
    plain = Candidates.of(["a|b", "c", "a|b", "b"])
    assert plain.groups is None
    assert plain.select([2, 0]).groups is None
    grouped = Candidates.of(["a|b", "c", "a|b", "b"], groups=["y.png", "x.png", "y.png", 3])
    assert grouped.groups.dtype == torch.int64
    assert grouped.groups.tolist() == [0, 1, 0, 2]
    assert grouped.select([3, 0, 2]).groups.tolist() == [2, 0, 0]
    assert grouped.select(np.asarray([True, False, True, False])).groups.tolist() == [0, 0]
    assert grouped.to("cpu").groups.tolist() == [0, 1, 0, 2]
    assert Candidates.of(plain, groups=[5, 5, 6, 6]).groups.tolist() == [0, 0, 1, 1]


def test_a_copy_with_groups_shares_the_storage_of_the_sets():
    plain = Candidates.of(["a|b", "c"])
    grouped = plain.with_groups(np.asarray([7, 7]))
    assert grouped.labels is plain.labels
    assert grouped.offsets is plain.offsets
    assert plain.groups is None
    assert grouped.with_groups(None).groups is None


def test_scikit_learn_searches_over_candidates_as_over_arrays():
    x, y = four_squares([12, 9, 6, 5], seed=0)
    sets = uniform_candidates(y, n_classes=4, ambiguity=0.3, seed=0).with_groups(np.arange(len(y)))
    rows = np.asarray([3, 1, 1, 30])
    for some in (sets[rows], _safe_indexing(sets, rows)):
        assert [some.row(i) for i in range(4)] == [sets.row(i) for i in rows]
        assert some.groups.tolist() == rows.tolist()
    assert len(sets[:5]) == 5
    assert sets[np.arange(len(y)) % 2 == 0].shape == (len(y) // 2, 4)
    search = GridSearchCV(
        PartialLabelClassifier(epochs=1, device="cpu"), {"lr": [0.01, 0.1]}, cv=CandidateKFold(2)
    )
    assert set(search.fit(x, sets).best_params_) == {"lr"}


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (["a"], "There is 1 group for 2 rows"),
        (["a", None], "Row 1 has the group None"),
        (["a", ["b"]], "Row 1 has the group"),
        ([1.0, np.nan], "Row 1"),
    ],
)
def test_groups_that_do_not_fit_are_refused(groups, message):
    with pytest.raises(InputError, match=message):
        Candidates.of(["a|b", "c"], groups=groups)


# ---- weights -------------------------------------------------------------------------------------


def weighted_rows(candidates):
    """The weight of each candidate by class number, one dictionary per row."""
    flat = iter(candidates.weights.tolist())
    return [{label: next(flat) for label in candidates.row(i)} for i in range(len(candidates))]


def test_weights_sum_to_one_in_each_row_and_follow_their_rows():
    plain = Candidates.of(["a|c", "b", "a|b|c"])
    assert plain.weights is None
    assert plain.select([2, 0]).weights is None
    assert plain.log_weights(torch.tensor([0])) is None
    weighted = plain.with_weights([3, 1, 5, 1, 1, 2])
    assert weighted.weights.dtype == torch.float32
    assert weighted_rows(weighted) == [{0: 0.75, 2: 0.25}, {1: 1.0}, {0: 0.25, 1: 0.25, 2: 0.5}]
    grouped = weighted.with_groups("xxy")
    for copy in (
        weighted.to("cpu"),
        grouped,
        pickle.loads(pickle.dumps(weighted)),
        Candidates.of(weighted, groups="xyz"),
    ):
        assert torch.equal(copy.weights, weighted.weights)
    assert weighted_rows(grouped.select([2, 0])) == [{0: 0.25, 1: 0.25, 2: 0.5}, {0: 0.75, 2: 0.25}]
    assert grouped.with_weights(None).weights is None
    assert grouped.with_weights(None).groups.tolist() == [0, 0, 1]
    assert weighted.labels is plain.labels
    assert plain.weights is None


@pytest.mark.parametrize("even", [True, False])
def test_the_evidence_of_a_row_is_dense_and_zero_where_weights_say_nothing(even):
    candidates = Candidates.of(
        [[0, 2], [1, 3], [2, 3]] if even else [[0, 2], [1], [0, 1, 3]], n_classes=4
    )
    weights = np.random.default_rng(0).random(len(candidates.labels)) + 0.1
    weighted = candidates.with_weights(torch.from_numpy(weights))
    index = torch.tensor([2, 0, 0, 1])
    expected = np.zeros((4, 4))
    for i, row in enumerate(index.tolist()):
        for label, weight in weighted_rows(weighted)[row].items():
            expected[i, label] = np.log(weight * len(candidates.row(row)))
    np.testing.assert_allclose(weighted.log_weights(index).numpy(), expected, atol=1e-6)
    assert candidates.with_weights(np.full(len(weights), 7.0)).log_weights(index).abs().max() < 1e-6


def test_no_weight_is_zero_however_small_it_was():
    weights = (
        Candidates.of(["a|b", "a|b|c"]).with_weights([1e-300, 1e300, 1e-320, 1.0, 1e-30]).weights
    )
    assert (weights > 0).all()
    assert torch.isfinite(weights.log()).all()
    np.testing.assert_allclose(weights.numpy(), [0, 1, 0, 1, 0], atol=1e-5)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([1.0, 2.0], r"shape \(2,\) for 3 candidates"),
        ([[1.0, 2.0, 3.0]], r"shape \(1, 3\) for 3 candidates"),
        ([1.0, 2.0, 0.0], "Row 1 has the weight 0.0 for 'c'"),
        ([1.0, -2.0, 1.0], "Row 0 has the weight -2.0 for 'b'"),
        ([np.nan, 2.0, 1.0], "Row 0 has the weight nan for 'a'"),
        ([1.0, 2.0, np.inf], "Row 1 has the weight inf"),
        (["x", "y", "z"], "not numbers"),
    ],
)
def test_weights_that_do_not_fit_are_refused(weights, message):
    with pytest.raises(InputError, match=message):
        Candidates.of(["a|b", "c"]).with_weights(weights)


@settings(max_examples=40)
@given(sets_of_labels(), st.randoms(use_true_random=False), st.booleans())
def test_replaced_sets_are_the_new_ones_and_all_others_stay(problem, random, weighted):
    rows, n_classes = problem
    before = Candidates.of([sorted(one) for one in rows], n_classes=n_classes).with_groups(
        range(len(rows))
    )
    if weighted:
        before = before.with_weights([random.uniform(0.1, 1) for _ in before.labels])
    chosen = random.sample(range(len(rows)), random.randint(0, len(rows)))
    sets = [[random.randrange(n_classes) for _ in range(random.randint(1, 3))] for _ in chosen]
    found = before.with_answers(chosen, sets)
    for i in range(len(rows)):
        expected = sorted(set(sets[chosen.index(i)])) if i in chosen else before.row(i)
        assert found.row(i) == expected
        if weighted:
            mine = found.weights[found.offsets[i] : found.offsets[i + 1]].tolist()
            old = before.weights[before.offsets[i] : before.offsets[i + 1]].tolist()
            assert mine == pytest.approx(
                [1 / len(expected)] * len(expected) if i in chosen else old, rel=1e-5
            )
    assert found.groups.tolist() == before.groups.tolist()
    for again in (found, found.with_answers(chosen, sets)):
        assert [again.observed.row(i) for i in range(len(rows))] == [
            before.row(i) for i in range(len(rows))
        ]
    half = list(range(0, len(rows), 2))
    assert [found.select(half).observed.row(k) for k in range(len(half))] == [
        before.row(i) for i in half
    ]
    assert found.with_weights(None).with_groups(None).to("cpu").observed.groups is None


def test_a_replaced_set_must_hold_a_class():
    candidates = Candidates.of(["cat|dog", "cat"])
    assert "Row 1" in refusal(lambda: candidates.with_answers([1], [[]]))
    assert "Row 0" in refusal(lambda: candidates.with_answers([0], [[7]]))
