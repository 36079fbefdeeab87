"""skops stores fitted estimators without pickle, also inside pipelines of scikit-learn."""

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline

from ltpll import ColumnEncoder, Committee, LabelCleaner, PartialLabelClassifier
from ltpll.rebalancers import RECORDS
from ltpll.text import TfidfText

skops = pytest.importorskip("skops.io", reason="run by `make interop`, which installs skops")

N = 60


def table():
    rng = np.random.default_rng(0)
    words = rng.choice(["late", "broken", "refund", "invoice", "parcel", "card"], (N, 5))
    return pd.DataFrame(
        {
            "size": np.where(rng.random(N) < 0.1, np.nan, rng.normal(size=N)),
            "colour": rng.choice(["red", "blue", "green"], N),
            "day": pd.date_range("2024-01-01", periods=N),
            "note": [" ".join(one) for one in words],
        }
    )


NUMBERS = np.random.default_rng(0).normal(size=(N, 3))
SETS = ["a|b", "b", "a", "c|a"] * (N // 4)
QUICK = {"steps": 20, "device": "cpu"}
FITTED = {
    "classifier": lambda: PartialLabelClassifier(rebalancer=RECORDS(), **QUICK).fit(NUMBERS, SETS),
    "committee": lambda: Committee(folds=2, **QUICK).fit(NUMBERS, SETS),
    "encoder": lambda: ColumnEncoder(numbers="bins").fit(table()),
    "texts": lambda: TfidfText(8).fit(table()["note"]),
    "pipeline": lambda: make_pipeline(ColumnEncoder(), PartialLabelClassifier(**QUICK)).fit(
        table(), SETS
    ),
}


def restored(fitted):
    """The estimator after it was stored; every type that has to be trusted is of this package."""
    content = skops.dumps(fitted)
    types = skops.get_untrusted_types(data=content)
    assert all(name.startswith("ltpll.") for name in types), types
    return skops.loads(content, trusted=types)


@pytest.mark.parametrize("name", FITTED)
def test_a_restored_estimator_gives_the_same_outputs(name):
    fitted = FITTED[name]()
    again = restored(fitted)
    inputs = {"encoder": table(), "pipeline": table(), "texts": table()["note"]}.get(name, NUMBERS)
    how = "predict_proba" if hasattr(fitted, "predict_proba") else "transform"
    np.testing.assert_allclose(getattr(again, how)(inputs), getattr(fitted, how)(inputs), rtol=1e-6)


def test_what_a_cleaner_predicts_with_is_stored_as_a_pipeline():
    cleaner = LabelCleaner(Committee(**QUICK), folds=2).fit(table(), SETS)
    model = restored(make_pipeline(cleaner.encoder_, cleaner.classifier_))
    np.testing.assert_allclose(
        model.predict_proba(table()), cleaner.predict_proba(table()), rtol=1e-6
    )
