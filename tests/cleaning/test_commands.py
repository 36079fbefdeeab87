"""The commands for own data: from a table to cleaned labels, predictions, a page and a model."""

import csv
import errno
import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest

from ltpll.cli.progress import ProgressBar
from ltpll.errors import InputWarning
from support.commands import ltpll_here as ltpll
from support.user_tables import feature_rows, rows_of, write_csv, write_trees

QUICK = [
    "--epochs",
    "12",
    "--folds",
    "3",
    "--set",
    "data.side=8",
    "--set",
    "training.batch_size=16",
    "--device",
    "cpu",
]


@pytest.fixture(scope="module")
def trees(tmp_path_factory):
    """Pictures, labels.csv and a finished run; rows 8 and 20 lack their true label."""
    folder = tmp_path_factory.mktemp("trees")
    true = write_trees(folder, wrong=(8, 20))
    out = ltpll(
        "train",
        folder / "labels.csv",
        "--images",
        folder / "pictures",
        "--out",
        folder / "run",
        *QUICK,
    )
    assert "48 examples (8 × 8 × 3 pictures), 3 classes" in out
    assert "40 to train on" in out
    return folder, true


def test_pictures_and_a_table_become_cleaned_labels(trees, tmp_path):
    folder, true = trees
    printed = ltpll("clean", folder / "run", "--out", tmp_path / "cleaned.csv")
    rows = rows_of(tmp_path / "cleaned.csv")
    given = rows_of(folder / "labels.csv")
    assert [row["id"] for row in rows] == [row["path"] for row in given]
    for row, before in zip(rows, given, strict=True):
        sets = before["candidates"].split("|")
        assert sorted(row["candidates"].split("|")) == sorted(sets)
        assert row["label"] in sets
        assert int(row["set_size"]) == len(sets)
        assert row["runner_up"] in (*sets, "")
        assert row["runner_up"] != row["label"]
        assert -1 <= float(row["margin"]) <= 1
        assert 0 <= float(row["confidence"]) <= 1
        assert row["true_label"] == before["label"]
        assert row["judged_by"] == ("held out" if before["split"] == "test" else "folds")
        assert (row["issue"] == "true") == (row["suggestion"] != "")
        assert row["suggestion"] not in sets
    right = [row["label"] == name for row, name in zip(rows, true, strict=True)]
    assert np.mean([r for i, r in enumerate(right) if i not in (8, 20)]) > 0.85
    assert "Labels of ambiguous rows are right in" in printed
    classes = {row["class"]: row for row in rows_of(tmp_path / "cleaned.classes.csv")}
    for name, row in classes.items():
        assert int(row["candidate_in"]) == sum(
            name in one["candidates"].split("|") for one in given
        )
        assert int(row["label_of"]) == sum(one["label"] == name for one in rows)
    assert sum(float(row["estimated_prior"]) for row in classes.values()) == pytest.approx(
        1, abs=1e-3
    )


@pytest.fixture(scope="module")
def contradicted(tmp_path_factory):
    """A finished run on 400 rows of five classes; every tenth set lacks the true label."""
    rng = np.random.default_rng(0)
    y = np.sort(rng.choice(5, 400, p=[0.3, 0.25, 0.2, 0.15, 0.1]))
    x = rng.normal(0, 0.6, (400, 4)) + 3 * np.eye(5, 4)[y]
    missing = np.arange(400) % 10 == 3
    rows = []
    for i in range(400):
        others = rng.permutation([c for c in range(5) if c != y[i]])
        sets = [*others[: rng.integers(0 + missing[i], 3)], *([] if missing[i] else [y[i]])]
        rows.append([f"r{i}", "|".join(f"c{c}" for c in sets), *x[i].round(4).tolist()])
    folder = tmp_path_factory.mktemp("contradicted")
    write_csv(folder / "table.csv", ["id", "candidates", "a", "b", "c", "d"], rows)
    ltpll(
        "train",
        folder / "table.csv",
        "--out",
        folder / "run",
        "--rebalancer",
        "mean-target",
        "--epochs",
        25,
        "--folds",
        3,
    )
    return folder, y, missing


def test_sets_without_their_label_are_flagged_and_others_are_not(contradicted, tmp_path):
    folder, y, missing = contradicted
    printed = ltpll("clean", folder / "run", "--out", tmp_path / "cleaned.csv")
    rows = rows_of(tmp_path / "cleaned.csv")
    flagged = np.asarray([row["issue"] == "true" for row in rows])
    assert missing[flagged].mean() > 0.7
    assert flagged[missing].mean() > 0.4
    assert (
        np.mean(
            [
                row["suggestion"] == f"c{c}"
                for row, c, f in zip(rows, y, flagged & missing, strict=True)
                if f
            ]
        )
        > 0.8
    )
    assert f"{flagged.sum()} sets may lack the true label" in printed
    assert "Labels of ambiguous rows are expected to be right" in printed
    assert all(float(row["confidence"]) <= 1 - float(row["suspicion"]) + 1e-4 for row in rows)


def test_fewer_false_discoveries_flag_fewer_sets(contradicted, tmp_path):
    folder, _, _ = contradicted
    counts = []
    for share in (0, 0.05, 0.3):
        ltpll(
            "clean", folder / "run", "--out", tmp_path / "cleaned.csv", "--false-discoveries", share
        )
        counts.append(sum(row["issue"] == "true" for row in rows_of(tmp_path / "cleaned.csv")))
    assert counts[0] <= counts[1] < counts[2]


def test_without_folds_nothing_is_flagged_and_the_reason_is_said(trees, tmp_path):
    folder, _ = trees
    ltpll(
        "train",
        folder / "labels.csv",
        "--images",
        folder / "pictures",
        "--out",
        tmp_path / "run",
        "--epochs",
        2,
        "--folds",
        0,
    )
    printed = ltpll("clean", tmp_path / "run", "--out", tmp_path / "cleaned.csv")
    rows = rows_of(tmp_path / "cleaned.csv")
    assert {row["judged_by"] for row in rows} == {"own", "held out"}
    assert not any(row["issue"] == "true" for row in rows if row["judged_by"] == "own")
    assert "train with --folds 5" in printed


def test_new_pictures_are_labelled(trees, tmp_path):
    folder, true = trees
    table = write_csv(tmp_path / "new.csv", ["path"], [[f"{i:03d}.png"] for i in (3, 1, 7)])
    out = tmp_path / "predictions.parquet"
    ltpll(
        "predict",
        folder / "run",
        table,
        "--images",
        folder / "pictures",
        "--out",
        out,
        "--probabilities",
    )
    import pandas as pd

    found = pd.read_parquet(out)
    assert found["id"].tolist() == ["003.png", "001.png", "007.png"]
    assert found["label"].tolist() == [true[i] for i in (3, 1, 7)]
    shares = found[["p(ash)", "p(birch)", "p(cedar)"]].to_numpy()
    np.testing.assert_allclose(shares.sum(1), 1, atol=2e-4)
    np.testing.assert_allclose(shares.max(1), found["confidence"])
    ordered = np.sort(shares, axis=1)
    np.testing.assert_allclose(found["margin"], ordered[:, 2] - ordered[:, 1], atol=2e-4)


def test_a_set_in_the_new_table_is_used_and_checked(trees, tmp_path):
    folder, true = trees
    sets = {"ash": "birch|cedar", "birch": "birch|cedar", "cedar": "ash|cedar"}
    table = write_csv(
        tmp_path / "new.csv",
        ["path", "candidates"],
        [[f"{i:03d}.png", sets[true[i]]] for i in (0, 1, 2)],
    )
    out = tmp_path / "p.csv"
    ltpll("predict", folder / "run", table, "--images", folder / "pictures", "--out", out)
    for row, name in zip(rows_of(out), true, strict=False):
        assert row["in_set"] == ("true" if name in sets[name].split("|") else "false")
        assert row["label_in_set"] in sets[name].split("|")
    write_csv(table, ["path", "candidates"], [["000.png", "ash|oak"]])
    message = ltpll(
        "predict", folder / "run", table, "--images", folder / "pictures", "--out", out, status=2
    )
    assert "'oak'" in message
    assert len(rows_of(out)) == 3  # the earlier predictions are still there


def test_the_run_becomes_a_page_and_a_model(trees, tmp_path):
    folder, _ = trees
    ltpll("report", folder / "run", "--out", tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "<h1>Labels of labels.csv</h1>" in text
    assert text.count("data:image/jpeg;base64,") >= 2
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    printed = ltpll("export", folder / "run", "--onnx", tmp_path / "trees.onnx")
    assert float(re.search(r"differs from torch by (\S+) at most", printed)[1]) < 1e-3
    assert "x (rows, 3, 8, 8)" in printed
    facts = json.loads((tmp_path / "trees.onnx.json").read_text())
    assert facts["classes"] == json.loads((folder / "run" / "result.json").read_text())["classes"]


def test_a_finished_run_is_not_trained_again_and_other_settings_are_refused(trees):
    folder, _ = trees
    command = [
        "train",
        folder / "labels.csv",
        "--images",
        folder / "pictures",
        "--out",
        folder / "run",
    ]
    stamp = (folder / "run" / "done").stat().st_mtime_ns
    assert "finished earlier" in ltpll(*command, *QUICK)
    message = ltpll(*command, *QUICK, "--set", "training.seed=1", status=2)
    assert "(different: seed)" in message
    assert (folder / "run" / "done").stat().st_mtime_ns == stamp


def test_votes_become_sets_and_annotators_get_a_table(tmp_path):
    rows = feature_rows()
    features = write_csv(
        tmp_path / "features.csv", ["id", "u", "v"], [[row[0], *row[2:]] for row in reversed(rows)]
    )
    rng, votes = np.random.default_rng(0), []
    for i, row in enumerate(rows):
        true = "abc"[2 if i % 10 == 9 else i % 2]
        votes += [(row[0], "good", true), (row[0], "guesses", rng.choice(list("abc")))]
    crowd = write_csv(tmp_path / "crowd.csv", ["task", "worker", "label"], votes)
    options = [
        "--features",
        features,
        "--annotators",
        "union",
        "--epochs",
        "30",
        "--folds",
        "0",
        "--device",
        "cpu",
    ]
    ltpll("train", crowd, *options, "--out", tmp_path / "run")
    message = ltpll(
        "train",
        crowd,
        *options,
        "--out",
        tmp_path / "run",
        "--set",
        "table.vote_weights=none",
        status=2,
    )
    assert "(different: data)" in message
    printed = ltpll("clean", tmp_path / "run", "--out", tmp_path / "cleaned.tsv")
    assert "train with --folds 5" in printed
    with (tmp_path / "cleaned.tsv").open(newline="") as file:
        labels = {row["id"]: row["label"] for row in csv.DictReader(file, delimiter="\t")}
    with (tmp_path / "cleaned.annotators.tsv").open(newline="") as file:
        found = {row["annotator"]: row for row in csv.DictReader(file, delimiter="\t")}
    given = {(task, worker): label for task, worker, label in votes}
    shared = np.mean([given[row[0], "good"] == given[row[0], "guesses"] for row in rows])
    for name in ("good", "guesses"):
        mine = [labels[task] == label for task, worker, label in votes if worker == name]
        assert float(found[name]["agreement"]) == pytest.approx(np.mean(mine), abs=1e-4)
        assert int(found[name]["examples"]) == 60
        assert float(found[name]["shared_with_others"]) == pytest.approx(shared, abs=1e-4)
    assert float(found["good"]["agreement"]) > 0.9 > 0.6 > float(found["guesses"]["agreement"])


def test_true_labels_of_annotations_are_for_evaluation_alone_and_train_says_which_columns_it_took(
    tmp_path,
):
    rng, rows = np.random.default_rng(0), feature_rows()
    true = ["abc"[2 if i % 10 == 9 else i % 2] for i in range(len(rows))]
    features = write_csv(
        tmp_path / "x.csv", ["image", "u", "v"], [[row[0], *row[2:]] for row in rows]
    )
    votes = [
        (row[0], who, rng.choice(list("abc")), label)
        for row, label in zip(rows, true, strict=True)
        for who in ("ann", "bob")
    ]
    crowd = write_csv(tmp_path / "crowd.csv", ["image", "annotator", "choice", "truth"], votes)
    options = ["--features", features, "--annotators", "union", "--set", "table.label=truth"]
    printed = ltpll(
        "train",
        crowd,
        *options,
        "--epochs",
        "3",
        "--folds",
        "0",
        "--device",
        "cpu",
        "--out",
        tmp_path / "run",
    )
    assert (
        "Columns: task 'image', worker 'annotator', annotation 'choice', label "
        "'truth' (true labels, for evaluation only)." in printed
    )
    assert "On training rows: true label recovered for" in printed
    ltpll("clean", tmp_path / "run", "--out", tmp_path / "cleaned.csv")
    for row, label in zip(rows_of(tmp_path / "cleaned.csv"), true, strict=True):
        assert set(row["candidates"].split("|")) == {
            choice for task, _, choice, _ in votes if task == row["id"]
        }
        assert row["true_label"] == label
    # New examples need neither annotations nor true labels; new annotations are read as the old
    # ones were.
    write_csv(tmp_path / "new.csv", ["image"], [[row[0]] for row in rows[:5]])
    ltpll(
        "predict",
        tmp_path / "run",
        tmp_path / "new.csv",
        "--features",
        features,
        "--out",
        tmp_path / "p.csv",
    )
    assert [row["id"] for row in rows_of(tmp_path / "p.csv")] == [row[0] for row in rows[:5]]
    write_csv(
        tmp_path / "new.csv", ["image", "annotator", "choice"], [vote[:3] for vote in votes[:10]]
    )
    ltpll(
        "predict",
        tmp_path / "run",
        tmp_path / "new.csv",
        "--features",
        features,
        "--out",
        tmp_path / "q.csv",
    )
    for row, before in zip(rows_of(tmp_path / "q.csv"), rows_of(tmp_path / "p.csv"), strict=True):
        assert (row["id"], row["label"]) == (before["id"], before["label"])
        assert row["label_in_set"] in {choice for task, _, choice, _ in votes if task == row["id"]}


def test_predict_does_not_need_the_column_of_true_labels(tmp_path):
    rows = [[*row, "abc"[2 if i % 10 == 9 else i % 2]] for i, row in enumerate(feature_rows())]
    table = write_csv(tmp_path / "t.csv", ["id", "candidates", "u", "v", "truth"], rows)
    ltpll(
        "train",
        table,
        "--set",
        "table.label=truth",
        "--epochs",
        "1",
        "--folds",
        "0",
        "--device",
        "cpu",
        "--out",
        tmp_path / "run",
    )
    new = write_csv(tmp_path / "new.csv", ["u", "v"], [["0.1", "0.1"]])
    assert "Wrote 1 prediction to" in ltpll(
        "predict", tmp_path / "run", new, "--out", tmp_path / "p.csv"
    )


def test_predict_needs_no_column_that_only_sets_ids_or_splits_were_read_from(tmp_path):
    rows = [[*row, "test" if i % 6 == 5 else "train"] for i, row in enumerate(feature_rows())]
    table = write_csv(tmp_path / "t.csv", ["bird", "heard", "u", "v", "part"], rows)
    named = [
        "--candidates",
        "heard",
        "--id",
        "bird",
        "--set",
        "table.split=part",
    ]
    ltpll(
        "train",
        table,
        *named,
        "--epochs",
        "1",
        "--folds",
        "0",
        "--device",
        "cpu",
        "--out",
        tmp_path / "run",
    )
    new = write_csv(
        tmp_path / "new.csv", ["u", "v", "note"], [["0.1", "0.1", "x"], ["0.2", "0.1", "y"]]
    )
    printed = ltpll("predict", tmp_path / "run", new, "--out", tmp_path / "p.csv")
    assert f"{new} has no column 'bird', so ids are row numbers.\n" in printed
    predicted = rows_of(tmp_path / "p.csv")
    assert [row["id"] for row in predicted] == ["1", "2"]
    assert "label_in_set" not in predicted[0]
    with_sets = write_csv(
        tmp_path / "sets.csv", ["bird", "u", "v", "heard"], [["x", "0.1", "0.1", "a|b"]]
    )
    assert "no column" not in ltpll(
        "predict", tmp_path / "run", with_sets, "--out", tmp_path / "p.csv"
    )
    assert rows_of(tmp_path / "p.csv")[0]["label_in_set"] in "ab"


def test_another_goal_for_a_finished_run_is_a_matter_of_prediction(tmp_path):
    table = write_csv(tmp_path / "t.csv", ["id", "candidates", "u", "v"], feature_rows())
    command = [
        "train",
        table,
        "--epochs",
        "1",
        "--folds",
        "0",
        "--device",
        "cpu",
        "--out",
        tmp_path / "run",
    ]
    ltpll(*command, "--goal", "accuracy")
    message = ltpll(*command, "--goal", "balanced", status=2)
    assert "another goal needs no new training: `ltpll predict --goal`" in message
    assert "(different: goal, seed)" in ltpll(
        *command, "--goal", "balanced", "--set", "training.seed=3", status=2
    )


@pytest.mark.parametrize(
    ("cells", "advice"),
    [
        (
            ["a; b", "a", "b"],
            "Row 1 below the header of {} has the candidate 'a; b', which looks like "
            "several labels",
        ),
        (["a; b", "a", "b"], "use one separator throughout, and pass --separator ';'."),
        (["a|b", "", "b"], "read it with --set table.empty=all if nothing is known"),
    ],
)
def test_messages_name_options_as_the_command_line_has_them(tmp_path, cells, advice):
    table = write_csv(
        tmp_path / "t.csv", ["candidates", "u"], [[cell, i] for i, cell in enumerate(cells)]
    )
    message = ltpll("train", table, "--out", tmp_path / "run", status=2)
    assert advice.format(table) in message
    assert "separator=" not in message


def test_ignored_columns_are_no_features_and_not_needed_by_predict(tmp_path):
    rows = [[*row, "" if i == 7 else i, f"note {i}"] for i, row in enumerate(feature_rows())]
    table = write_csv(tmp_path / "t.csv", ["bird", "candidates", "u", "v", "weight", "note"], rows)
    command = [
        "train",
        table,
        "--epochs",
        "1",
        "--folds",
        "0",
        "--device",
        "cpu",
        "--out",
        tmp_path / "run",
    ]
    with pytest.warns(InputWarning, match="2 columns are left out: 'bird'.*'note'"):
        printed = ltpll(*command, "--set", "table.ignore=weight")
    assert "2 numbers" in printed
    assert "Name the column of ids: --id bird." in printed
    new = write_csv(tmp_path / "new.csv", ["v", "u"], [["0.1", "0.1"]])
    assert "Wrote 1 prediction to" in ltpll(
        "predict", tmp_path / "run", new, "--out", tmp_path / "p.csv"
    )
    ignored = [*("--set", "table.features=*"), *("--set", 'table.ignore=["w*", "note"]')]
    assert "left out" not in ltpll(*command, *ignored, "--id", "bird", "--fresh")
    assert "Wrote 1 prediction to" in ltpll(
        "predict", tmp_path / "run", new, "--out", tmp_path / "p.csv"
    )


def test_feature_columns_are_found_by_train_and_needed_by_predict(tmp_path):
    table = write_csv(tmp_path / "t.csv", ["id", "candidates", "u", "v"], feature_rows())
    ltpll(
        "train",
        table,
        "--epochs",
        "30",
        "--folds",
        "2",
        "--out",
        tmp_path / "run",
        "--device",
        "cpu",
    )
    new = write_csv(tmp_path / "new.csv", ["v", "u"], [["0.1", "0.1"], ["0.0", "4.2"]])
    ltpll("predict", tmp_path / "run", new, "--out", tmp_path / "p.csv")
    assert [row["label"] for row in rows_of(tmp_path / "p.csv")] == ["a", "b"]
    write_csv(new, ["v", "w"], [["0.1", "0.1"]])
    assert "no column called 'u'" in ltpll(
        "predict", tmp_path / "run", new, "--out", tmp_path / "p.csv", status=2
    )
    assert "leave --images out" in ltpll(
        "predict",
        tmp_path / "run",
        new,
        "--images",
        tmp_path,
        "--out",
        tmp_path / "p.csv",
        status=2,
    )


def test_an_interrupted_training_resumes_and_gives_the_same_result(tmp_path, monkeypatch):
    import pandas as pd

    from ltpll.cleaning import cleaning_job as training

    table = write_csv(tmp_path / "t.csv", ["id", "candidates", "u", "v"], feature_rows(40))
    command = [
        "train",
        table,
        "--epochs",
        "6",
        "--folds",
        "2",
        "--set",
        "training.batch_size=8",
        "--device",
        "cpu",
    ]
    ltpll(*command, "--out", tmp_path / "whole")
    monkeypatch.setattr(training, "CHECKPOINT_SECONDS", 0.0)
    seen = []

    class Interrupting(ProgressBar):
        def on_epoch_end(self, trainer, record):
            super().on_epoch_end(trainer, record)
            seen.append((self.part.name, record["epoch"]))
            if seen[-1] in (("training", 3), ("fold 2 of 2", 2)) and seen.count(seen[-1]) == 1:
                raise KeyboardInterrupt

    monkeypatch.setattr("ltpll.cli.progress.ProgressBar", Interrupting)
    for _ in range(2):
        assert "rerun the command to resume" in ltpll(
            *command, "--out", tmp_path / "cut", status=130
        )
    ltpll(*command, "--out", tmp_path / "cut")
    # It resumes from the checkpoint before the interrupted epoch and never trains a finished fold
    # twice.
    assert [epoch for name, epoch in seen if name == "training"] == [1, 2, 3, 3, 4, 5, 6]
    assert [epoch for name, epoch in seen if name == "fold 1 of 2"] == [1, 2, 3, 4, 5, 6]
    assert [epoch for name, epoch in seen if name == "fold 2 of 2"] == [1, 2, 2, 3, 4, 5, 6]
    whole, cut = (
        pd.read_parquet(tmp_path / name / "examples.parquet") for name in ("whole", "cut")
    )
    pd.testing.assert_frame_equal(whole, cut)


def test_a_finished_run_is_not_that_of_a_table_with_other_ids(tmp_path):
    rows = feature_rows(40)
    table = write_csv(tmp_path / "t.csv", ["id", "candidates", "u", "v"], rows)
    command = [
        "train",
        table,
        "--epochs",
        "1",
        "--folds",
        "0",
        "--device",
        "cpu",
        "--out",
        tmp_path / "run",
    ]
    ltpll(*command)
    write_csv(
        table,
        ["id", "candidates", "u", "v"],
        [[rows[i - 1][0], *row[1:]] for i, row in enumerate(rows)],
    )
    assert "(different: data)" in ltpll(*command, status=2)
    ltpll(*command, "--fresh")
    ltpll("clean", tmp_path / "run", "--out", tmp_path / "c.csv")
    assert [row["id"] for row in rows_of(tmp_path / "c.csv")] == [rows[i - 1][0] for i in range(40)]


def scene_rows(n_scenes=24, seed=0):
    """Rows of scenes that share their sets: id, scene, set, true label, split, two features."""
    rng, rows = np.random.default_rng(seed), []
    for scene in range(n_scenes):
        true = rng.choice(3, p=[0.6, 0.3, 0.1], size=rng.integers(1, 5))
        cell = "|".join(sorted({"abc"[c] for c in true}))
        for c in true:
            x = rng.normal(0, 1, 2) + [(0, 0), (2, 0), (0, 2)][c]
            split = "test" if scene % 4 == 3 else "train"
            rows.append(
                [
                    f"row{len(rows)}",
                    f"scene{scene}",
                    cell,
                    "abc"[c],
                    split,
                    f"{x[0]:.4f}",
                    f"{x[1]:.4f}",
                ]
            )
    return rows


@pytest.fixture(scope="module")
def scenes(tmp_path_factory):
    """Two runs on a table of scenes that differ in their goals, and what training them printed."""
    folder = tmp_path_factory.mktemp("scenes")
    table = write_csv(
        folder / "t.csv", ["id", "scene", "candidates", "label", "split", "u", "v"], scene_rows()
    )
    command = [
        "train",
        table,
        "--group",
        "scene",
        "--epochs",
        "8",
        "--set",
        "training.batch_size=16",
        "--folds",
        "2",
        "--device",
        "cpu",
    ]
    printed = {
        goal: ltpll(*command, "--goal", goal, "--out", folder / goal)
        for goal in ("balanced", "accuracy")
    }
    return folder, printed


def test_what_was_chosen_is_said_once_and_recorded_with_the_prior(scenes):
    folder, printed = scenes
    record = json.loads((folder / "balanced" / "result.json").read_text())
    assert record["choice"].endswith(".")
    assert printed["balanced"].replace("\n", " ").count(record["choice"]) == 1
    prior = record["prior"]
    assert prior["regime"] == "co-occurrence"
    rows = [row for row in rows_of(folder / "t.csv") if row["split"] == "train"]
    average = [
        np.mean(
            [
                name in row["candidates"].split("|") and 1 / len(row["candidates"].split("|"))
                for row in rows
            ]
        )
        for name in "abc"
    ]
    np.testing.assert_allclose(prior["estimate"], average, atol=1e-5)
    assert all(
        low <= share <= high
        for low, share, high in zip(prior["lower"], prior["estimate"], prior["upper"], strict=True)
    )


def test_the_goal_changes_predictions_and_nothing_else(scenes, tmp_path):
    import pandas as pd

    folder, printed = scenes
    one, other = (
        pd.read_parquet(folder / goal / "examples.parquet") for goal in ("balanced", "accuracy")
    )
    pd.testing.assert_frame_equal(one, other)
    records = {
        goal: json.loads((folder / goal / "result.json").read_text())
        for goal in ("balanced", "accuracy")
    }
    assert records["balanced"]["last"]["loss"] == records["accuracy"]["last"]["loss"]
    by_goal = records["balanced"]["last"]["test"]["by_goal"]
    assert by_goal == records["accuracy"]["last"]["test"]["by_goal"]
    for goal, record in records.items():
        assert {**by_goal[goal], "by_goal": by_goal} == record["last"]["test"]
        for name, figures in by_goal.items():
            words = f"accuracy {figures['accuracy']:.1%}, "
            words += f"balanced accuracy {figures['balanced_accuracy']:.1%}"
            assert re.search(
                rf"ith\s+the\s+goal\s+{name}\b.*?:\s+" + words.replace(" ", r"\s+"),
                printed[goal],
                re.DOTALL,
            )
    tables = {}
    for goal in records:
        for more in ([], ["--goal", "balanced"], ["--goal", "accuracy"]):
            ltpll("predict", folder / goal, folder / "t.csv", "--out", tmp_path / "p.csv", *more)
            tables[(goal, *more[1:])] = (tmp_path / "p.csv").read_text()
    assert tables["balanced",] == tables["balanced", "balanced"] == tables["accuracy", "balanced"]
    assert tables["accuracy",] == tables["accuracy", "accuracy"] == tables["balanced", "accuracy"]
    assert tables["balanced",] != tables["accuracy",]
    message = ltpll(
        "predict",
        folder / "accuracy",
        folder / "t.csv",
        "--out",
        tmp_path / "p.csv",
        "--goal",
        "speed",
        status=2,
    )
    assert "The goal is 'speed'" in message


def test_the_accuracies_are_printed_once_if_the_goals_do_not_differ(scenes, tmp_path):
    options = ["--rebalancer", "none", "--epochs", "1", "--folds", "0", "--device", "cpu"]
    printed = ltpll(
        "train",
        scenes[0] / "t.csv",
        "--set",
        "table.features=u",
        *options,
        "--out",
        tmp_path / "run",
    )
    assert [
        "held-out rows" in line
        for line in printed.splitlines()
        if "balanced accuracy" in line and "epoch" not in line
    ] == [True]
    assert "goal" not in printed


def test_a_group_that_is_partly_held_out_is_warned_about(scenes, tmp_path):
    rows = rows_of(scenes[0] / "t.csv")
    rows[0]["split"], rows[1]["split"] = "train", "test"
    shared = {row["scene"] for row in rows if row["split"] == "train"} & {
        row["scene"] for row in rows if row["split"] == "test"
    }
    table = write_csv(tmp_path / "t.csv", list(rows[0]), [list(row.values()) for row in rows])
    options = ["--group", "scene", "--epochs", "1", "--folds", "0", "--device", "cpu"]
    with pytest.warns(
        InputWarning,
        match=rf"{len(shared)} groups? ha(s|ve) rows to train on and rows that are held out",
    ):
        ltpll("train", table, *options, "--out", tmp_path / "run")


def test_groups_are_kept_and_the_page_shows_the_frequencies(scenes, tmp_path):
    folder, _ = scenes
    ltpll("clean", folder / "balanced", "--out", tmp_path / "c.csv")
    assert [row["group"] for row in rows_of(tmp_path / "c.csv")] == [
        row["scene"] for row in rows_of(folder / "t.csv")
    ]
    ltpll("report", folder / "balanced", "--out", tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert ">share by the sets<" in text
    assert ">true share<" in text
    assert "held-out accuracy with the goal accuracy" in text


def test_a_prior_from_a_file_is_used_and_a_wrong_one_refused_before_anything_is_written(
    scenes, tmp_path
):
    folder, _ = scenes
    shares = write_csv(tmp_path / "shares.csv", ["class", "share"], [["a", 6], ["b", 3], ["c", 1]])
    command = [
        "train",
        folder / "t.csv",
        "--set",
        "table.features=u",
        "--epochs",
        "1",
        "--folds",
        "0",
        "--device",
        "cpu",
        "--out",
        tmp_path / "run",
    ]
    ltpll(*command, "--set", f"training.prior={shares}")
    record = json.loads((tmp_path / "run" / "result.json").read_text())
    assert record["config"]["prior"] == {"a": 6, "b": 3, "c": 1}
    np.testing.assert_allclose(record["prior"]["estimate"], [0.6, 0.3, 0.1])
    write_csv(shares, ["class", "share"], [["a", 6], ["b", 3], ["d", 1]])
    command[-1] = tmp_path / "other"
    assert "c, d are missing, or no candidate of any set" in ltpll(
        *command, "--set", f"training.prior={shares}", status=2
    )
    assert "takes no prior" in ltpll(
        *command, "--set", "training.prior=sets", "--rebalancer", "records", status=2
    )
    assert "A prior is auto, average, sets, or a file" in ltpll(
        *command, "--set", "training.prior=often", status=2
    )
    assert "All rows to train on are in one group" in ltpll(
        *command, "--folds", "2", "--group", "split", status=2
    )
    assert not (tmp_path / "other").exists()


# ---- bad input ----------------------------------------------------------------------------------


def test_unreadable_pictures_stop_before_training_or_are_skipped_and_listed(trees, tmp_path):
    folder, _ = trees
    shutil.copytree(folder / "pictures", tmp_path / "pictures")
    (tmp_path / "pictures" / "004.png").write_bytes(b"no picture")
    command = [
        "train",
        folder / "labels.csv",
        "--images",
        tmp_path / "pictures",
        "--out",
        tmp_path / "run",
        *QUICK,
        "--epochs",
        "1",
    ]
    message = ltpll(*command, status=2)
    assert "'004.png'" in message
    assert not (tmp_path / "run").exists()
    printed = ltpll(*command, "--set", "data.on_error=skip", "--folds", "0")
    assert "1 picture is skipped" in printed
    assert "004.png" in printed
    ltpll("clean", tmp_path / "run", "--out", tmp_path / "c.csv")
    assert [row["id"] for row in rows_of(tmp_path / "c.csv")] == [
        f"{i:03d}.png" for i in range(48) if i != 4
    ]


@pytest.mark.parametrize(
    ("header", "rows", "options", "words"),
    [
        (["id", "sets", "u"], [["a", "x|y", "1"]], [], "no column called 'candidates'"),
        (
            ["id", "sets", "u"],
            [["a", "x|y", "1"]],
            [],
            "it has id, sets, u; name the column of sets with --candidates COLUMN.",
        ),
        (["id", "candidates", "u"], [["a", "x|y", "1"], ["a", "y", "2"]], [], "'a'"),
        (["id", "candidates", "u"], [["a", "x|y", "1"], ["b", "", "2"]], [], "no candidate"),
        (["id", "candidates"], [["a", "x|y"], ["b", "y"]], [], "no columns of numbers"),
        (
            ["id", "candidates", "u"],
            [["a", "x|y", "1"], ["b", "y", "inf"]],
            ["--set", "table.features=u"],
            "'u'",
        ),
        (["id", "candidates", "u"], [["a", "x|y", "1"], ["b", "x|y", "2"]], [], "same candidates"),
        (
            ["id", "candidates", "u", "split"],
            [["a", "x|y", "1", "train"], ["b", "x", "2", "later"]],
            [],
            "'later'",
        ),
        (
            ["id", "candidates", "u", "split"],
            [["a", "x|y", "1", "train"], ["b", "x", "2", "test"]],
            [],
            "Only 1 of 2 rows",
        ),
        (
            ["id", "candidates", "u"],
            [["a", "x|y", "1"], ["b", "y", "2"]],
            ["--method", "nothing"],
            "'nothing'",
        ),
        (
            ["id", "candidates", "u"],
            [["a", "x|y", "1"], ["b", "y", "2"]],
            ["--rebalancer", "oracle-la"],
            "oracle-la",
        ),
        (
            ["id", "candidates", "u"],
            [["a", "x|y", "1"], ["b", "y", "2"]],
            ["--imbalance", "10"],
            "No such option: --imbalance",
        ),
        (
            ["id", "candidates", "u"],
            [["a", "x|y", "1"], ["b", "y", "2"]],
            ["--features", "nothing.npy"],
            "nothing.npy",
        ),
        (
            ["id", "candidates", "u"],
            [["a", "x|y", "1"], ["b", "y", "2"]],
            ["--images", "nowhere"],
            "nowhere",
        ),
        (
            ["id", "candidates", "u"],
            [["a", "x|y", "1"], ["b", "y", "2"]],
            ["--images", ".", "--features", "x.npy"],
            "give one of",
        ),
    ],
)
def test_errors_in_a_table_are_explained_and_nothing_is_written(
    tmp_path, header, rows, options, words
):
    table = write_csv(tmp_path / "t.csv", header, rows)
    message = ltpll(
        "train",
        table,
        "--out",
        tmp_path / "run",
        "--epochs",
        "1",
        "--folds",
        "0",
        *options,
        status=2,
    )
    assert words in message
    assert not (tmp_path / "run" / "done").exists()


def test_a_path_that_leaves_the_folder_is_refused_even_when_skipping(trees, tmp_path):
    folder, _ = trees
    table = write_csv(
        tmp_path / "t.csv", ["path", "candidates"], [["../secret.png", "a|b"], ["000.png", "a"]]
    )
    command = [
        "train",
        table,
        "--images",
        folder / "pictures",
        "--set",
        "data.on_error=skip",
        "--out",
        tmp_path / "run",
    ]
    assert "leads out of" in ltpll(*command, status=2)


def test_a_folder_with_other_files_is_left_alone(tmp_path):
    table = write_csv(tmp_path / "t.csv", ["id", "candidates", "u", "v"], feature_rows(20))
    precious = tmp_path / "thesis"
    precious.mkdir()
    (precious / "chapter.txt").write_text("years of work")
    for more in ([], ["--fresh"]):
        assert "contains files but is not a run folder" in ltpll(
            "train", table, "--out", precious, "--epochs", "1", *more, status=2
        )
    assert (precious / "chapter.txt").read_text() == "years of work"


def test_fresh_keeps_files_that_the_user_put_into_the_run_folder(tmp_path):
    table = write_csv(tmp_path / "t.csv", ["id", "candidates", "u", "v"], feature_rows(20))
    command = [
        "train",
        table,
        "--out",
        tmp_path / "run",
        "--epochs",
        "1",
        "--folds",
        "0",
        "--device",
        "cpu",
    ]
    ltpll(*command)
    ltpll("clean", tmp_path / "run", "--out", tmp_path / "run" / "cleaned.parquet")
    ltpll(*command, "--set", "training.seed=1", "--fresh")
    assert (tmp_path / "run" / "cleaned.parquet").exists()


@pytest.mark.parametrize("command", ["clean", "predict", "export", "report"])
def test_a_folder_without_a_finished_run_is_refused(tmp_path, command):
    table = write_csv(tmp_path / "t.csv", ["id", "candidates", "u", "v"], feature_rows(20))
    more = {"clean": ["--out", tmp_path / "c.csv"], "predict": [table, "--out", tmp_path / "p.csv"]}
    more |= {"export": ["--onnx", tmp_path / "m.onnx"], "report": ["--out", tmp_path / "r.html"]}
    assert "there is no such folder" in ltpll(
        command, tmp_path / "nothing", *more[command], status=2
    )
    unfinished = tmp_path / "unfinished"
    unfinished.mkdir()
    (unfinished / "config.json").write_text('{"experiment": "own"}')
    assert "not finished" in ltpll(command, unfinished, *more[command], status=2)
    assert not [
        path
        for path in tmp_path.iterdir()
        if path.suffix in (".html", ".onnx") or path.name in ("c.csv", "p.csv")
    ]


def test_formulas_in_ids_and_classes_are_written_as_text(tmp_path):
    rows = [
        [f"=1+{i}", row[1].replace("a", "=cmd()"), *row[2:]]
        for i, row in enumerate(feature_rows(30))
    ]
    table = write_csv(tmp_path / "t.csv", ["id", "candidates", "u", "v"], rows)
    ltpll(
        "train",
        table,
        "--out",
        tmp_path / "run",
        "--epochs",
        "2",
        "--folds",
        "0",
        "--device",
        "cpu",
    )
    ltpll("clean", tmp_path / "run", "--out", tmp_path / "c.csv")
    for row in rows_of(tmp_path / "c.csv"):
        assert row["id"].startswith("'=")
        assert not any(cell.startswith(("=", "+", "@")) for cell in row.values())


def test_columns_of_words_are_features(tmp_path):
    rows = [[*row, "seen twice" if i % 2 else "-"] for i, row in enumerate(feature_rows(20))]
    table = write_csv(tmp_path / "t.csv", ["id", "candidates", "u", "v", "notes"], rows)
    printed = ltpll(
        "train",
        table,
        "--epochs",
        "1",
        "--folds",
        "0",
        "--out",
        tmp_path / "run",
        "--device",
        "cpu",
    )
    assert "20 examples (3 columns: 1 category, 2 numbers)" in printed


def test_feature_columns_are_refused_beside_pictures_without_a_backbone(trees, tmp_path):
    message = ltpll(
        "train",
        trees[0] / "labels.csv",
        "--images",
        trees[0] / "pictures",
        "--set",
        "table.features=u",
        "--out",
        tmp_path / "run",
        status=2,
    )
    assert message.startswith("table.features chooses columns of a table")
    assert not (tmp_path / "run").exists()


def test_a_run_on_columns_predicts_from_an_array_in_their_order(tmp_path):
    table = write_csv(tmp_path / "t.csv", ["id", "candidates", "u", "v"], feature_rows())
    ltpll(
        "train",
        table,
        "--epochs",
        "30",
        "--folds",
        "0",
        "--out",
        tmp_path / "run",
        "--device",
        "cpu",
    )
    new = write_csv(tmp_path / "new.csv", ["id"], [["a"], ["b"]])
    np.save(tmp_path / "x.npy", np.asarray([[0.1, 0.1], [4.2, 0.0]]))
    ltpll(
        "predict",
        tmp_path / "run",
        new,
        "--features",
        tmp_path / "x.npy",
        "--out",
        tmp_path / "p.csv",
    )
    assert [row["label"] for row in rows_of(tmp_path / "p.csv")] == ["a", "b"]


def test_no_command_overwrites_a_run_or_its_input(trees, tmp_path):
    shutil.copytree(trees[0], tmp_path / "trees")
    folder = tmp_path / "trees"
    (tmp_path / "link.parquet").symlink_to(folder / "run" / "examples.parquet")
    new = write_csv(tmp_path / "new.csv", ["path"], [["000.png"]])
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} | {
        new: new.read_bytes()
    }
    predict = ["predict", folder / "run", new, "--images", folder / "pictures", "--out"]
    for command in (
        ["clean", folder / "run", "--out", folder / "run" / "examples.parquet"],
        ["clean", folder / "run", "--out", tmp_path / "link.parquet"],
        ["clean", folder / "run", "--out", folder / "run" / "votes.parquet"],
        [*predict, folder / "run" / "pictures.parquet"],
        ["report", folder / "run", "--out", folder / "run" / "result.json"],
        ["report", folder / "run", "--out", folder / "run" / "done"],
        ["export", folder / "run", "--onnx", folder / "run" / "classifier.safetensors"],
        [
            "export",
            folder / "run",
            "--onnx",
            folder / "run" / "Result.JSON",
        ],  # which may be the same file
    ):
        assert "is a file of the run" in ltpll(*command, status=2)
    assert "is an input of this command" in ltpll(*predict, new, status=2)
    for path, content in before.items():
        assert path.read_bytes() == content
    ltpll(
        "clean", folder / "run", "--out", folder / "run" / "cleaned.csv"
    )  # other files may lie in the run folder


def test_the_table_of_a_run_is_not_overwritten_by_its_cleaned_labels(tmp_path, monkeypatch):
    table = write_csv(tmp_path / "t.csv", ["id", "candidates", "u", "v"], feature_rows(20))
    before = table.read_bytes()
    monkeypatch.chdir(tmp_path)
    ltpll("train", "t.csv", "--epochs", "1", "--folds", "0", "--out", "run", "--device", "cpu")
    assert "is the table of the run" in ltpll("clean", "run", "--out", "t.csv", status=2)
    assert "is the table of the run" in ltpll("clean", tmp_path / "run", "--out", table, status=2)
    assert table.read_bytes() == before


def test_an_output_that_cannot_be_written_is_named_and_its_temporary_file_is_not(
    trees, tmp_path, monkeypatch
):
    def refusing(original):
        def call(self, *given, **options):
            if self.suffix == ".tmp":
                raise OSError(errno.EROFS, "Read-only file system", str(self))
            return original(self, *given, **options)

        return call

    for name in ("open", "unlink"):
        monkeypatch.setattr(f"pathlib.Path.{name}", refusing(getattr(Path, name)))
    message = ltpll("clean", trees[0] / "run", "--out", tmp_path / "c.csv", status=2)
    assert message.startswith(
        f"{tmp_path / 'c.csv'} cannot be written (Read-only file system): free some space"
    )


def test_train_names_what_it_needs_when_it_is_not_given_a_table(trees, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "m").mkdir()
    assert ltpll("train", status=2).startswith("There is nothing to train on: give a table")
    assert "There are no pictures in m" in ltpll("train", "m", status=2)
    assert "There is no file cifar11" in ltpll("train", "cifar11", status=2)
    assert "There is no file labels.csv" in ltpll("train", "labels.csv", status=2)
    (tmp_path / "c.toml").write_text("[data]\ntable = 5\n")
    assert "data.table is 5: it must be text" in ltpll("train", "--config", "c.toml", status=2)


def test_a_table_inside_the_run_that_fresh_discards_is_refused(tmp_path):
    run = tmp_path / "run"
    run.mkdir()
    table = write_csv(run / "table.csv", ["candidates", "a"], [["x|y", 1], ["x", 2]] * 9)
    said = ltpll("train", table, "--out", run, "--fresh", status=2)
    assert "is in the run" in said
    assert table.exists()
