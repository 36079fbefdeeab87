"""Datasets of Hugging Face: columns are features, and numbers of a `ClassLabel` become names."""

import numpy as np
import pytest

from ltpll import Candidates, LabelCleaner, PartialLabelClassifier
from ltpll.tables.read_tables import read_table
from support.refusals import refusal

datasets = pytest.importorskip("datasets", reason="run by `make interop`, which installs datasets")

NAMES = ["cat", "ant", "bee"]  # in an order of their own
N = 60
TRUTH = np.random.default_rng(0).integers(0, 3, N)
SETS = [sorted({int(one), int(one + row % 2) % 3}) for row, one in enumerate(TRUTH)]


@pytest.fixture(scope="module")
def dataset():
    rng = np.random.default_rng(1)
    label = datasets.ClassLabel(names=NAMES)
    columns = {"candidates": SETS, "label": TRUTH, "kind": TRUTH, "size": TRUTH + rng.random(N)}
    kinds = {"candidates": datasets.List(label), "label": label, "kind": label}
    features = datasets.Features({**kinds, "size": datasets.Value("float32")})
    return datasets.Dataset.from_dict(columns, features=features)


def named(candidates):
    return [{candidates.classes[c] for c in candidates.row(i)} for i in range(len(candidates))]


def test_lists_of_class_labels_are_sets_of_names(dataset):
    expected = [{NAMES[c] for c in one} for one in SETS]
    assert named(Candidates.of(dataset["candidates"])) == expected
    some = dataset.select([5, 2, 9])
    assert named(Candidates.of(some["candidates"])) == [expected[row] for row in (5, 2, 9)]


def test_a_dataset_is_cleaned_as_the_same_columns_of_pandas(dataset):
    cleaner = LabelCleaner(PartialLabelClassifier(steps=60, device="cpu"), folds=2)
    x = dataset.select_columns(["size", "kind"])
    labels = cleaner.fit(x, dataset["candidates"]).labels_
    frame = x.to_pandas().assign(kind=[NAMES[c] for c in TRUTH])
    expected = cleaner.fit(frame, [[NAMES[c] for c in one] for one in SETS])
    assert labels.equals(expected.labels_)
    assert datasets.Dataset.from_pandas(labels)["label"][:] == labels["label"].tolist()
    assert np.array_equal(cleaner.predict(x.with_format("numpy")), cleaner.predict(frame))


def test_a_dataset_is_read_as_a_table(dataset):
    read = read_table(dataset, every_kind=True)
    assert read.candidates.classes == tuple(sorted(NAMES))
    assert [read.candidates.classes[c] for c in read.labels] == [NAMES[c] for c in TRUTH]


def test_unknown_labels_are_gaps_and_a_dataset_of_splits_is_refused(dataset):
    label = datasets.ClassLabel(names=NAMES)
    column = datasets.Dataset.from_dict(
        {"kind": [0, -1, None]}, features=datasets.Features({"kind": label})
    )
    assert "Row 1" in refusal(lambda: Candidates.of(column["kind"]))
    splits = datasets.DatasetDict({"train": dataset})
    assert "has splits ('train')" in refusal(lambda: Candidates.of(splits))
