"""The user's arrays become tensors with the same values, or one sentence that says which row is
wrong.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from ltpll.validation import as_inputs, as_labels, chosen_device, in_range, whole_number
from support.refusals import refusal

GRID = np.arange(12.0).reshape(4, 3) / 8  # exact in every float type

HOLDERS = {
    "float64": GRID,
    "float32": GRID.astype(np.float32),
    "float16": GRID.astype(np.float16),
    "column-major": np.asfortranarray(GRID),
    "every other column": np.repeat(GRID, 2, axis=1)[:, ::2],
    "rows backwards": GRID[::-1].copy()[::-1],
    "columns backwards": GRID[:, ::-1].copy()[:, ::-1],
    "foreign byte order": GRID.astype(">f4"),
    "torch": torch.from_numpy(GRID),
    "torch half": torch.from_numpy(GRID).half(),
    "list": GRID.tolist(),
    "frame": pd.DataFrame(GRID, columns=["a", "b", "c"]),
}


@pytest.mark.parametrize("holder", HOLDERS.values(), ids=HOLDERS.keys())
def test_features_keep_their_values_whatever_holds_them(holder):
    inputs = as_inputs(holder, "training")
    assert inputs.dtype == torch.float32
    assert inputs.tolist() == GRID.tolist()


@pytest.mark.parametrize("dtype", ["uint8", "int64", "bool", "uint16"])
@pytest.mark.parametrize("shape", [(2, 3), (2, 1, 4, 4), (1, 1)])
def test_whole_numbers_become_floats_of_the_same_shape_and_images_of_bytes_stay_as_they_are(
    dtype, shape
):
    values = (np.arange(np.prod(shape)).reshape(shape) % 2).astype(dtype)
    inputs = as_inputs(values, "training")
    # Images of bytes stay bytes: their views make numbers of them, a chunk at a time.
    assert inputs.dtype == (torch.uint8 if dtype == "uint8" and len(shape) == 4 else torch.float32)
    assert inputs.tolist() == values.astype(float).tolist()


@settings(max_examples=60, deadline=None)
@given(
    x=hnp.arrays(
        np.float64, st.tuples(st.integers(1, 6), st.integers(1, 4)), elements=st.floats(-1e3, 1e3)
    ),
    bad=st.sets(
        st.tuples(st.integers(0, 5), st.integers(0, 3), st.sampled_from([np.nan, np.inf, -np.inf]))
    ),
)
def test_the_first_row_with_a_missing_or_infinite_value_is_named_and_the_rows_are_counted(x, bad):
    hit = {row % len(x) for row, _, _ in bad}
    for row, column, value in bad:
        x[row % len(x), column % x.shape[1]] = value
    if not hit:
        np.testing.assert_array_equal(
            as_inputs(x, "test", torch.float32).numpy(), x.astype(np.float32)
        )
        return
    message = refusal(lambda: as_inputs(x, "test"))
    assert message.startswith(f"Row {min(hit)} of the test features has a NaN or an infinite value")
    assert (f"({len(hit)} such rows)" in message) == (len(hit) > 1)


@pytest.mark.parametrize(
    ("column", "kept"),
    [
        ([0.1, 0.5, 0.7], torch.float32),
        ([7.1, 7.1, 7.1], torch.float32),
        ([0.1, 0.1 + 2e-17, 0.1 + 4e-17], torch.float32),  # constant but for rounding
        ([1e9, 1e9 + 1, 1e9 + 2], torch.float64),
        ([10**9, 10**9 + 1, 10**9 + 2], torch.float64),
        ([1e300, 1e300, -1e300], torch.float64),
        ([1e-300, 2e-300, 3e-300], torch.float64),
    ],
)
def test_only_a_column_that_float32_would_blur_keeps_a_table_in_float64(column, kept):
    x = np.stack([np.asarray([1, 2, 3]), np.asarray(column)], axis=1)
    inputs = as_inputs(x, "training")
    assert inputs.dtype == kept
    np.testing.assert_array_equal(inputs.numpy(), x.astype(str(kept).removeprefix("torch.")))


def test_a_value_beyond_float32_is_not_called_infinite():
    message = refusal(lambda: as_inputs(np.asarray([[1.0], [1e39]]), "prediction", torch.float32))
    assert message.startswith("Row 1 of the prediction features has a value beyond ±3.4e38")


def test_a_bad_pixel_of_an_image_names_the_image():
    images = torch.zeros(5, 3, 4, 4)
    images[3, 2, 1, 0] = float("nan")
    assert refusal(lambda: as_inputs(images, "training")).startswith(
        "Row 3 of the training features"
    )


@pytest.mark.parametrize(
    "x",
    [
        [["a", "b"], ["c", "d"]],
        np.array([["1", "2"]]),
        pd.DataFrame({"n": [1, 2], "colour": ["red", "blue"]}),
        [[1, None]],
        [[1.0, 2.0], [3.0]],
        np.array([["2020-01-01"]], dtype="datetime64[D]"),
    ],
    ids=["text", "text of digits", "frame with text", "none", "ragged", "dates"],
)
def test_features_that_are_no_numbers_are_refused(x):
    assert refusal(lambda: as_inputs(x, "training")).startswith(
        "The training features are not numbers"
    )


@pytest.mark.parametrize("shape", [(), (3,), (0,), (0, 3), (0, 1, 8, 8), (3, 0)])
def test_features_without_rows_or_without_values_are_refused_with_their_shape(shape):
    assert f"shape {shape}" in refusal(lambda: as_inputs(np.zeros(shape), "test"))
    assert f"shape {shape}" in refusal(lambda: as_inputs(torch.zeros(shape), "test"))


# ---- labels --------------------------------------------------------------------------------------


LABELS = [2, 0, 1, 1]
LABEL_HOLDERS = {
    "list": LABELS,
    "tuple": tuple(LABELS),
    "series": pd.Series(LABELS, index=[9, 8, 7, 6]),
    "torch": torch.tensor(LABELS),
    "backwards": np.array(LABELS[::-1])[::-1],
    "foreign byte order": np.array(LABELS, dtype=">i4"),
    **{
        dtype: np.array(LABELS, dtype=dtype)
        for dtype in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
    },
}


@pytest.mark.parametrize("holder", LABEL_HOLDERS.values(), ids=LABEL_HOLDERS.keys())
def test_labels_keep_their_values_whatever_holds_them(holder):
    labels = as_labels(holder, "test", 3)
    assert labels.dtype == torch.long
    assert labels.tolist() == LABELS


@settings(max_examples=60, deadline=None)
@given(y=st.lists(st.integers(-3, 8), min_size=1, max_size=10), n_classes=st.integers(2, 6))
def test_the_first_label_out_of_range_is_named_with_its_row(y, n_classes):
    wrong = [(i, label) for i, label in enumerate(y) if not 0 <= label < n_classes]
    if not wrong:
        assert as_labels(y, "test", n_classes).tolist() == y
        return
    row, label = wrong[0]
    expected = (
        f"Row {row} of the test labels is {label}, but classes are numbered 0 to {n_classes - 1}."
    )
    assert refusal(lambda: as_labels(y, "test", n_classes)) == expected


@pytest.mark.parametrize(
    "y",
    [
        [0.0, 1.0],
        [0, 1.5],
        [float("nan"), 1],
        torch.tensor([0.0, 1.0]),
        np.array([0, 1], dtype=complex),
        [[0], [1]],
        np.array(1),
        ["cat", "dog"],
        [0, None],
        [[0], [1, 2]],
    ],
    ids=[
        "float",
        "fraction",
        "nan",
        "float tensor",
        "complex",
        "two dimensions",
        "no dimension",
        "names",
        "none",
        "ragged",
    ],
)
def test_labels_that_are_no_list_of_class_numbers_are_refused(y):
    assert refusal(lambda: as_labels(y, "test", 3)).startswith("The test labels must be")


# ---- numbers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "least"), [(1, 1), (5, 1), (0, 0), (3.0, 2), (np.int64(4), 4)])
def test_a_whole_number_that_is_large_enough_is_kept(value, least):
    result = whole_number(value, least, "epochs")
    assert type(result) is int
    assert result == value


@pytest.mark.parametrize(
    "value", [0, -1, 1.5, "3", "three", None, float("nan"), float("inf"), 2**70]
)
def test_what_is_no_whole_number_or_too_small_is_refused_by_name(value):
    assert (
        refusal(lambda: whole_number(value, 1, "epochs"))
        == f"epochs is {value!r}: it must be a whole number of at least 1."
    )


@pytest.mark.parametrize("value", [0, -0.0, -1, "0.1", None, float("nan"), float("inf"), 2.5, True])
def test_what_is_no_number_or_out_of_range_is_refused_by_name(value):
    message = refusal(lambda: in_range(value, "lr", 0, 2, above=True))
    assert message == f"lr is {value!r}: it must be a number above 0 and at most 2."
    assert in_range(np.float32(0.5), "lr", 0, 2, above=True) == 0.5
    assert in_range(0, "momentum", 0) == 0.0


@pytest.mark.parametrize("name", ["gpu0", "cuda:99", "cpu:x", ""])
def test_a_device_that_there_is_not_is_refused_by_name(name):
    assert repr(name) in refusal(lambda: chosen_device(name))


def test_a_device_that_there_is_is_taken_and_auto_is_one_of_them():
    assert chosen_device("cpu") == chosen_device(torch.device("cpu")) == torch.device("cpu")
    assert chosen_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")
