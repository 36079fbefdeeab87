"""ONNX models that take the columns of a table: their inputs give what the encoder does."""

import json

import numpy as np
import pandas as pd
import pytest

from ltpll import ColumnEncoder, Committee, PartialLabelClassifier
from ltpll.columns.onnx_export import with_columns
from ltpll.committee import SoftForest
from ltpll.network.export import sidecar
from support.commands import ltpll_here as ltpll
from support.refusals import refusal

onnxruntime = pytest.importorskip("onnxruntime")
N = 120


def table():
    rng = np.random.default_rng(0)
    days = pd.to_timedelta(rng.integers(0, 900, N), unit="D")
    return pd.DataFrame(
        {
            "amount": np.where(rng.random(N) < 0.1, np.nan, rng.lognormal(0, 2, N)),
            "size": rng.normal(5, 1, N),
            "country": rng.choice(["DE", "FR", "IT", "ES"], N, p=[0.5, 0.3, 0.17, 0.03]),
            "opened": pd.to_datetime("2024-01-01") + days,
            "paid": rng.choice(["yes", "no", None], N),
            "code": [f"k{value}" for value in rng.integers(0, 60, N) ** 2 // 50],
        }
    )


def new_rows():
    """Rows with gaps, unseen levels, and numbers beyond those of training."""
    rows = table().head(40).copy()
    rows.loc[0, "country"], rows.loc[1, "country"], rows.loc[2, "code"] = "XX", None, "never"
    rows.loc[3, "amount"], rows.loc[4, "amount"] = 1e6, -5.0
    rows.loc[5, "opened"] = pd.NaT
    return rows


def sets():
    return [{row % 3, (row + row % 2) % 3} for row in range(N)]


def small():
    """A committee that is exported quickly."""
    how = {"views": "scaled", "rebalancer": "mean-target", "epochs": 2, "device": "cpu"}
    linear = PartialLabelClassifier(model="linear", **how)
    return Committee([("linear", linear), ("forest", SoftForest(trees=3))], folds=2)


def fed(session, rows, **others):
    """The inputs of a model: texts, numbers, and days since 1970."""
    found = dict(others)
    for one in session.get_inputs():
        if one.name in others:
            continue
        column = rows[one.name]
        if one.type == "tensor(string)":
            values = np.asarray([str(v) if isinstance(v, str) else "" for v in column], object)
        elif pd.api.types.is_datetime64_any_dtype(column):
            values = ((column - pd.Timestamp(0)) / pd.Timedelta(days=1)).to_numpy(float)
        else:
            values = column.to_numpy(float)
        found[one.name] = values[:, None]
    return found


@pytest.mark.parametrize(
    ("numbers", "beside", "usual"),
    [
        ("scaled", True, True),
        ("scaled", False, False),
        ("bins", False, False),
        ("bins", True, False),
    ],
)
def test_a_model_of_columns_predicts_what_encoder_and_committee_do(
    tmp_path, numbers, beside, usual
):
    encoder = ColumnEncoder(numbers=numbers).fit(table())
    x, new, others = encoder.transform(table()), encoder.transform(new_rows()), {}
    if beside:
        features = np.random.default_rng(1).normal(3, 2, (N, 2))
        encoder.fit_beside(features, x)
        x, new = encoder.join(features, x), encoder.join(features[:40], new)
        others["features"] = features[:40]
    committee = Committee(views="scaled", folds=2, steps=10) if usual else small()
    committee.fit(x, sets())
    path = tmp_path / "model.onnx"
    committee.to_onnx(path)
    with_columns(path, sidecar(path), encoder)
    session = onnxruntime.InferenceSession(str(path))
    _, found = session.run(None, fed(session, new_rows(), **others))
    np.testing.assert_allclose(found, committee.predict_proba(new), atol=1e-5)
    inputs = json.loads(sidecar(path).read_text(encoding="utf-8"))["input"]
    assert [one["name"] for one in inputs] == [*others, *table().columns]
    of_model = session.get_modelmeta().custom_metadata_map["input"]
    assert json.loads(of_model) == inputs


def test_columns_may_have_the_names_of_nodes_and_of_the_input(tmp_path):
    names = {"amount": "x", "size": "features", "country": "scaled", "code": "model/columns/0"}
    encoder = ColumnEncoder().fit(table().rename(columns=names))
    x = encoder.transform(table().rename(columns=names))
    committee = small().fit(x, sets())
    path = tmp_path / "model.onnx"
    committee.to_onnx(path)
    with_columns(path, sidecar(path), encoder)
    session = onnxruntime.InferenceSession(str(path))
    _, found = session.run(None, fed(session, new_rows().rename(columns=names)))
    new = encoder.transform(new_rows().rename(columns=names))
    np.testing.assert_allclose(found, committee.predict_proba(new), atol=1e-5)


def test_a_column_that_is_called_as_an_output_is_refused(tmp_path):
    frame = table().rename(columns={"size": "logits"})
    encoder = ColumnEncoder().fit(frame)
    committee = small()
    path = tmp_path / "model.onnx"
    committee.fit(encoder.transform(frame), sets()).to_onnx(path)
    assert "'logits' has the name of an output" in refusal(
        lambda: with_columns(path, sidecar(path), encoder)
    )


def test_export_writes_a_model_of_the_columns_of_a_run(tmp_path):
    frame = table().drop(columns=["opened"])
    frame["candidates"] = ["|".join(map("abc".__getitem__, one)) for one in sets()]
    frame.to_csv(tmp_path / "table.csv", index=False)
    run, model = tmp_path / "run", tmp_path / "model.onnx"
    ltpll("train", tmp_path / "table.csv", "--out", run, "--folds", 2, "--epochs", 2)
    said = ltpll("export", run, "--onnx", model)
    assert "an input for each of 5 columns, outputs logits" in " ".join(said.split())
    ltpll("predict", run, tmp_path / "table.csv", "--out", tmp_path / "predicted.csv")
    session = onnxruntime.InferenceSession(str(model))
    _, found = session.run(None, fed(session, frame))
    classes = json.loads(sidecar(model).read_text(encoding="utf-8"))["classes"]
    predicted = pd.read_csv(tmp_path / "predicted.csv")["label"]
    assert [classes[k] for k in found.argmax(1)] == predicted.tolist()
