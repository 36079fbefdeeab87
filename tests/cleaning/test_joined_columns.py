"""Pictures or a file of features, and the other columns of a table, describe its rows together."""

import json
import re

import numpy as np
import onnxruntime
import pandas as pd
import pytest

from ltpll import ColumnEncoder
from ltpll.backbones import Backbone
from ltpll.cleaning.dataset import TableSource, read_examples
from ltpll.cleaning.prediction import load_classifier, stored_encoder
from ltpll.pictures.embedding import embedded_pictures
from ltpll.runs.run import Run
from ltpll.tables.reading import Reading
from support.commands import ltpll_here as ltpll
from support.tiny_backbones import make_efficientnets_shallow, write_efficientnet
from support.user_tables import COLOURS, rows_of, write_csv, write_trees

N = 60
RNG = np.random.default_rng(0)
X = RNG.normal([0, 100, 0], [1, 30, 0], (N, 3)).astype(np.float32)
COLUMNS = {"kind": RNG.choice(["new", "old", "used"], N), "size": RNG.normal(7, 2, N).round(3)}


def table(tmp_path, columns=COLUMNS, **more):
    own = {"id": [f"r{i}" for i in range(N)], "candidates": ["a|b", "b", "c"] * (N // 3)}
    np.save(tmp_path / "x.npy", X)
    pd.DataFrame(own | columns | more).to_csv(tmp_path / "t.csv", index=False)
    return tmp_path / "t.csv"


def read(path, encoder=None, **how):
    encoder = encoder or ColumnEncoder()
    return read_examples(TableSource(path, features=path.parent / "x.npy", encoder=encoder, **how))


def test_features_stand_beside_columns_and_vary_four_times_as_much(tmp_path):
    found = read(table(tmp_path))
    encoded = ColumnEncoder().fit_transform(pd.DataFrame(COLUMNS))
    np.testing.assert_allclose(found.x[:, 3:], encoded, atol=1e-4)
    expected = (X[:, :2] - X[:, :2].mean(0)) / X[:, :2].std(0)
    expected *= 4 * np.sqrt(encoded.var(0).sum() / 2)
    np.testing.assert_allclose(found.x[:, :2], expected, atol=1e-4)
    assert not found.x[:, 2].any()  # constant
    together = [part.var(0).sum() for part in np.split(found.x, [3], axis=1)]
    assert together[0] == pytest.approx(16 * together[1], rel=1e-4)
    assert found.encoder.describe() == "2 columns: 1 category, 1 number"


def test_only_rows_to_train_on_say_how_both_are_scaled(tmp_path):
    splits = np.where(np.arange(N) % 3, "train", "test")
    kept = splits == "train"
    found = read(table(tmp_path, split=splits))
    np.testing.assert_allclose(found.x[kept][:, :2].mean(0), 0, atol=1e-4)
    assert found.x[kept][:, :3].var(0).sum() == pytest.approx(
        16 * found.x[kept][:, 3:].var(0).sum(), rel=1e-4
    )


def test_a_table_without_further_columns_is_read_as_before(tmp_path):
    path = table(tmp_path, {}, path=[f"{i}.png" for i in range(N)], label=["b", "b", "c"] * 20)
    found = read(path)
    plain = read_examples(TableSource(path, features=tmp_path / "x.npy"))
    assert found.encoder is None
    assert found.fingerprint() == plain.fingerprint()
    assert found.fingerprint_of_texts() == plain.fingerprint_of_texts()


@pytest.mark.filterwarnings("ignore::ltpll.InputWarning")
@pytest.mark.parametrize("columns", [{"same": ["x"] * N}, {"url": [f"u{i}" for i in range(N)]}])
def test_columns_that_say_nothing_are_not_joined(tmp_path, columns):
    found = read(table(tmp_path, columns))
    assert found.encoder is None
    np.testing.assert_array_equal(found.x, X)


ROLES = {
    "id": [f"r{i}" for i in range(N)],
    "path": [f"{i % 7}.png" for i in range(N)],
    "split": ["train", "test", "train"] * 20,
    "label": ["b", "b", "c"] * 20,
    "true_label": ["b", "b", "c"] * 20,
    "annotator": ["ann", "bob", "ann"] * 20,
    "excluded": ["c", "c", "a"] * 20,
    "scene": [f"s{i % 9}" for i in range(N)],
    "pruned": ["", "a", "b"] * 20,
}


@pytest.mark.filterwarnings("ignore::ltpll.InputWarning")
@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize(
    "reading",
    [
        Reading(group="scene"),
        Reading(group="scene", label="label", split="fold", id="nr"),
        Reading(group="scene", label="truth", path="file"),
    ],
)
def test_labels_splits_groups_annotators_ids_and_paths_are_never_features(
    tmp_path, reading, inside
):
    others = {"truth": ROLES["label"], "fold": ROLES["split"], "nr": ROLES["id"]}
    others["file"] = ROLES["path"]
    named = {getattr(reading, what) for what in ("label", "split", "id", "path")}
    others = {name: cells for name, cells in others.items() if name in named}
    path = table(tmp_path, {**COLUMNS, **ROLES, **others})
    source = TableSource(path, reading, encoder=ColumnEncoder())
    found = read_examples(source) if inside else read(path, reading=reading)
    assert list(found.encoder.columns_) == ["kind", "size"]


def test_columns_are_chosen_and_ignored_by_name(tmp_path):
    path = table(tmp_path)
    chosen = read(path, reading=Reading(features=("size",)))
    assert list(chosen.encoder.columns_) == ["size"]
    ignored = read(path, ColumnEncoder({"kind": "ignore"}))
    np.testing.assert_array_equal(chosen.x, ignored.x)
    assert read(path, ColumnEncoder({"*": "ignore"})).encoder is None


@pytest.fixture(scope="module")
def trees(tmp_path_factory):
    """Pictures that tell ash from the others, and columns that tell birch from cedar."""
    folder = tmp_path_factory.mktemp("trees")
    true = write_trees(folder)
    rows = rows_of(folder / "labels.csv")
    for i, (row, name) in enumerate(zip(rows, true, strict=True)):
        row |= {"bark": f"{list(COLOURS).index(name) + 0.1 * (i % 3)}", "site": "ne"[i % 2]}
        row["note"] = "=1+1" if i % 2 else "<b>hi</b>"
    write_csv(folder / "labels.csv", list(rows[0]), [list(row.values()) for row in rows])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LTPLL_CACHE", str(folder / "cache"))
        make_efficientnets_shallow(patch)
        write_efficientnet(folder / "small.safetensors")
        said = ltpll(
            *("train", folder / "labels.csv", "--images", folder / "pictures"),
            *(
                "--backbone",
                folder / "small.safetensors",
                "--out",
                folder / "run",
                "--epochs",
                "20",
            ),
            *("--folds", "2", "--device", "cpu", "--rebalancer", "mean-target"),
            *("--set", "columns.ignore=note"),
        )
    assert "(1280 features of small, 2 columns: 1 category, 1 number)" in said
    return folder


@pytest.fixture(autouse=True)
def cache(trees, monkeypatch):
    monkeypatch.setenv("LTPLL_CACHE", str(trees / "cache"))
    make_efficientnets_shallow(monkeypatch)


def predicted(trees, tmp_path, name, **how):
    words = ("--images", trees / "pictures", "--out", tmp_path / "p.csv", "--device", "cpu")
    return ltpll("predict", trees / "run", trees / name, *words, **how)


def test_new_pictures_are_labelled_together_with_their_columns(trees, tmp_path):
    given = pd.read_csv(trees / "labels.csv")
    predicted(trees, tmp_path, "labels.csv")
    assert (pd.read_csv(tmp_path / "p.csv")["label"] == given["label"]).mean() > 0.9
    # Predictions follow both: with another bark, some change.
    given.assign(bark=99).to_csv(trees / "other.csv", index=False)
    before = pd.read_csv(tmp_path / "p.csv")
    predicted(trees, tmp_path, "other.csv")
    assert (pd.read_csv(tmp_path / "p.csv")["label"] != before["label"]).any()


def test_a_table_without_the_columns_is_refused_in_one_sentence(trees, tmp_path):
    pd.read_csv(trees / "labels.csv")[["path"]].to_csv(trees / "paths.csv", index=False)
    assert "no column called 'bark'" in predicted(trees, tmp_path, "paths.csv", status=2)
    assert not (tmp_path / "p.csv").exists()


def test_the_exported_model_takes_the_features_and_the_encoded_columns(trees, tmp_path):
    said = ltpll("export", trees / "run", "--onnx", tmp_path / "m.onnx")
    assert "an input for each of 2 columns and one for the features" in " ".join(said.split())
    described = json.loads((tmp_path / "m.onnx.json").read_text())
    assert [one["name"] for one in described["input"]] == ["features", "bark", "site"]
    frame = pd.read_csv(trees / "labels.csv", dtype={"site": str})
    record = Run.open(trees / "run").result()
    encoder = stored_encoder(trees / "run", record)
    backbone = Backbone.from_pretrained(trees / "small.safetensors")
    pictures = embedded_pictures(
        trees / "pictures", frame["path"].tolist(), backbone, cache=tmp_path, device="cpu"
    )
    x = encoder.join(pictures.x, encoder.transform(frame))
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx")
    ours = load_classifier(trees / "run", record, "cpu").predict_proba(x)
    site = frame["site"].fillna("").to_numpy(dtype=object)[:, None]
    bark = frame["bark"].to_numpy(dtype=float)[:, None]
    given = {"features": pictures.x.astype(float), "bark": bark, "site": site}
    np.testing.assert_allclose(session.run(["probabilities"], given)[0], ours, atol=1e-4)


def test_ignored_columns_are_shown_but_not_learned_from(trees, tmp_path):
    ltpll("review", trees / "run", "--out", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    data = json.loads(
        re.search(r'<script type="application/json" id="data">(.*?)</script>', page)[1]
    )
    shown = [dict(row["shown"]) for row in data["rows"]]
    assert {row["note"] for row in shown} <= {"=1+1", "<b>hi</b>"}
    described = json.loads((trees / "run" / "result.json").read_text())
    assert described["source"]["columns"]["ignore"] == ["note"]


def test_features_for_a_run_on_columns_are_refused_and_those_of_a_joined_run_needed(tmp_path):
    path = table(tmp_path)
    how = ("--epochs", "1", "--folds", "0", "--device", "cpu", "--rebalancer", "none")
    given = ("--features", tmp_path / "x.npy")
    out = ("--out", tmp_path / "p.csv")
    ltpll("train", path, "--out", tmp_path / "inside", *how)
    said = ltpll("predict", tmp_path / "inside", path, *given, *out, status=2)
    assert said.startswith("The run was trained on the columns of its table")
    ltpll("train", path, *given, "--out", tmp_path / "joined", *how)
    said = ltpll("predict", tmp_path / "joined", path, *out, status=2)
    assert "give --features FILE" in said
    ltpll("predict", tmp_path / "joined", path, *given, *out)
    assert len(rows_of(tmp_path / "p.csv")) == N
    np.save(tmp_path / "x.npy", X[:, :2])
    said = ltpll("predict", tmp_path / "joined", path, *given, *out, status=2)
    assert said.startswith("There are 2 features beside the columns")
