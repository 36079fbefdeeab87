"""Outputs of estimators as tables of pandas, polars and pyarrow, as scikit-learn's `set_output`
asks for them.
"""

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from sklearn import config_context
from sklearn.compose import make_column_transformer
from sklearn.pipeline import make_pipeline

from ltpll import ColumnEncoder, LabelCleaner, PartialLabelClassifier
from ltpll.columns import PiecewiseLinear
from ltpll.text import TfidfText

N = 40
TABLE = pd.DataFrame(
    {
        "size": [1.5, np.nan, 2.5, 4.0] * (N // 4),
        "colour": ["red", "blue"] * (N // 2),
        "note": [f"{word} parcel {row % 7}" for row, word in enumerate(["late", "lost"] * 20)],
    }
)
SETS = ["a|b", "b", "a", "b"] * (N // 4)
QUICK = PartialLabelClassifier(steps=20, device="cpu")
ENCODERS = {
    "columns": (ColumnEncoder(), TABLE),
    "bins": (PiecewiseLinear(), TABLE[["size"]].fillna(0.0)),
    "texts": (TfidfText(3), TABLE["note"]),
}


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_encoders_return_frames_with_named_columns(library, name):
    frames = pytest.importorskip(library)
    encoder, inputs = ENCODERS[name]
    expected = encoder.fit(inputs).transform(inputs)
    names = encoder.get_feature_names_out().tolist()
    with config_context(transform_output=library):
        found = encoder.transform(inputs)
    assert isinstance(found, frames.DataFrame)
    assert list(found.columns) == names
    np.testing.assert_array_equal(found.to_numpy(), expected)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_setting_for_all_outputs_changes_no_result(library, recwarn):
    pytest.importorskip(library)
    expected = LabelCleaner(QUICK, folds=2).fit(TABLE, SETS)
    with config_context(transform_output=library):
        found = LabelCleaner(QUICK, folds=2).fit(TABLE, SETS)
        assert found.labels_.equals(expected.labels_)
        assert np.array_equal(found.predict_proba(TABLE), expected.predict_proba(TABLE))
    assert not [str(one.message) for one in recwarn]


def test_encoders_are_parts_of_a_column_transformer_in_a_pipeline():
    columns = make_column_transformer((TfidfText(3), "note"), (ColumnEncoder(), ["size", "colour"]))
    model = make_pipeline(columns, QUICK).fit(TABLE, SETS)
    assert model.n_features_in_ == 3
    names = [f"tfidftext__tfidf{k}" for k in range(3)]
    assert model[0].get_feature_names_out().tolist()[:3] == names
    alone = np.hstack(
        [
            TfidfText(3).fit(TABLE["note"]).transform(TABLE["note"]),
            ColumnEncoder().fit_transform(TABLE[["size", "colour"]]),
        ]
    )
    np.testing.assert_array_equal(model[0].transform(TABLE), alone)


def test_an_encoder_of_texts_that_is_given_is_fitted_and_stays_as_it_was():
    given = TfidfText(2)
    encoder = ColumnEncoder({"note": "text"}, text=given).fit(TABLE)
    assert encoder.get_feature_names_out().tolist()[-2:] == ["note [1]", "note [2]"]
    assert given.n_outputs == 0


def test_labels_are_a_frame_that_polars_and_pyarrow_take():
    labels = LabelCleaner(QUICK, folds=2).fit(pa.Table.from_pandas(TABLE), SETS).labels_
    polars = pytest.importorskip("polars")
    assert polars.from_pandas(labels)["label"].to_list() == labels["label"].tolist()
    arrow = pa.Table.from_pandas(labels)
    assert arrow.column("confidence").to_pylist() == labels["confidence"].tolist()
    assert polars.DataFrame(labels).shape == labels.shape
