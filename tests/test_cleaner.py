"""`LabelCleaner`: in memory, the labels that `ltpll train` and `ltpll clean` write."""

import pickle
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_matrix
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.utils.estimator_checks import estimator_checks_generator

from ltpll import LabelCleaner, PartialLabelClassifier
from ltpll.cleaning.dataset import TableSource, read_examples
from ltpll.cleaning.pipeline import Execution, TrainingSettings, table_run, train_table_run
from ltpll.cleaning.results import cleaned_columns
from ltpll.cleaning.review import review_rows
from ltpll.cleaning.stored_tables import read_cleaned
from ltpll.tables.reading import Reading
from support.refusals import refusal

N = 300
SCENES = [f"scene {i // 3}" for i in range(N)]


def digits():
    """Digits in sets of one to three candidates, a few of which lack the true label."""
    rng = np.random.default_rng(0)
    data = load_digits()
    rows = rng.permutation(len(data.target))[:N]
    true = data.target[rows]
    sets = [
        {int(c) for c in rng.integers(0, 10, 2)} | ({int(label)} if rng.random() > 0.08 else set())
        for label in true
    ]
    return (
        data.data[rows].astype(np.float32),
        true,
        ["|".join(map(str, sorted(one))) for one in sets],
    )


def quick(**options):
    estimator = PartialLabelClassifier(
        "proden", "mean-target", **{"steps": 200, "device": "cpu", "threads": 1, **options}
    )
    return LabelCleaner(estimator, folds=2)


@pytest.fixture(scope="module")
def frame():
    x, _, _ = digits()
    return pd.DataFrame(
        x, columns=[f"p{k}" for k in range(64)], index=[f"image {i}" for i in range(N)]
    )


@pytest.fixture(scope="module")
def cleaner(frame):
    return quick().fit(frame, digits()[2])


@pytest.mark.parametrize(
    ("rebalancer", "scenes", "missing"), [("auto", False, "never"), ("mean-target", True, "auto")]
)
def test_labels_are_those_of_the_commands_for_the_same_table(
    tmp_path, frame, rebalancer, scenes, missing
):
    _, _, sets = digits()
    table = frame.assign(candidates=sets, scene=SCENES)
    table.to_csv(tmp_path / "t.csv", index=False)
    source = TableSource(
        tmp_path / "t.csv",
        Reading(group="scene" if scenes else None, features=tuple(frame.columns)),
    )
    how = {"method": "proden", "rebalancer": rebalancer, "epochs": 12, "truth_missing": missing}
    settings, examples = TrainingSettings(**how, folds=2), read_examples(source)
    run = table_run(tmp_path / "run", settings, examples)
    train_table_run(run, source, examples, settings, execution=Execution("cpu", 1, 1))
    stored = read_cleaned(run.folder)

    fitted = LabelCleaner(PartialLabelClassifier(**how, device="cpu", threads=1), folds=2)
    fitted.fit(frame, pd.Series(sets), groups=SCENES if scenes else None)
    assert (
        fitted.table_.labels.issue.any() if missing == "never" else fitted.table_.truth_missing > 0
    )
    for name, values in cleaned_columns(stored).items():
        if name != "id":
            assert list(values) == list(cleaned_columns(fitted.table_)[name]), name
    for name in ("confidence", "suspicion", "margin", "label", "issue"):
        assert np.array_equal(getattr(stored.labels, name), getattr(fitted.table_.labels, name)), (
            name
        )
    for name in (
        "classes",
        "class_prior",
        "choice",
        "truth_missing",
        "rows",
        "judgement",
        "last",
    ):
        assert stored.record[name] == fitted.table_.record[name], name
    assert fitted.labels_["lacks_label"].tolist() == stored.labels.issue.tolist()
    queue = stored.classes[stored.labels.label[review_rows(stored, 20)]]
    assert fitted.review_queue(20)["label"].tolist() == queue.tolist()


def test_labels_have_the_rows_the_index_and_the_classes_that_were_given(cleaner, frame):
    _, true, sets = digits()
    labels = cleaner.labels_
    assert labels.index.equals(frame.index)
    columns = [
        "label",
        "confidence",
        "runner_up",
        "margin",
        "set_size",
        "suspicion",
        "lacks_label",
        "suggestion",
        "judged",
    ]
    assert labels.columns.tolist() == columns
    assert (labels["label"].astype(int) == true).mean() > 0.8
    assert all(
        label in names.split("|") for label, names in zip(labels["label"], sets, strict=True)
    )
    assert labels["suggestion"].notna().equals(labels["lacks_label"])
    assert cleaner.expected_wrong_ == pytest.approx((1 - labels["confidence"]).sum(), abs=0.1)
    assert cleaner.summary_.startswith(
        f"300 examples, {sum('|' in names for names in sets)} of them ambiguous; about "
    )
    matrix = np.asarray([[str(c) in names.split("|") for c in range(10)] for names in sets])
    numbers = quick().fit(frame.to_numpy(), matrix)
    assert numbers.labels_.index.tolist() == list(range(N))
    assert numbers.labels_["label"].tolist() == labels["label"].astype(int).tolist()
    assert numbers.labels_["label"].dtype == int
    assert {type(name) for name in numbers.labels_["suggestion"]} <= {int, type(None)}
    assert {type(name) for name in numbers.labels_["runner_up"]} == {int, type(None)}


def test_it_predicts_as_its_classifier_with_calibrated_probabilities(cleaner, frame):
    _, true, sets = digits()
    assert (cleaner.predict(frame).astype(int) == true).mean() > 0.8
    probabilities = cleaner.predict_proba(frame)
    assert np.array_equal(cleaner.classes_[probabilities.argmax(1)], cleaner.predict(frame))
    assert cleaner.classifier_.temperature_ == cleaner.table_.record["judgement"]["temperature"]
    assert cleaner.score(frame, sets) > 0.8
    assert cleaner.feature_names_in_.tolist() == frame.columns.tolist()
    assert cleaner.n_features_in_ == 64
    with pytest.raises(ValueError, match="feature names should match"):
        cleaner.predict(frame.rename(columns={"p0": "q"}))
    again = pickle.loads(pickle.dumps(cleaner))
    assert again.labels_.equals(cleaner.labels_)
    assert np.array_equal(again.predict_proba(frame), probabilities)


def test_the_queue_and_the_page_are_those_of_the_commands(cleaner, frame, tmp_path):
    queue = cleaner.review_queue(7)
    assert queue.equals(cleaner.labels_.loc[queue.index])
    assert len(queue) == 7
    assert queue["confidence"].is_monotonic_increasing
    cleaner.report(tmp_path / "page.html", title="Digits & <others>")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "Digits &amp; &lt;others&gt;" in page
    assert "image 17" in page
    assert "must end in .html" in refusal(lambda: cleaner.report(tmp_path / "page.csv"))
    assert "There is no folder" in refusal(lambda: cleaner.report(tmp_path / "none" / "page.html"))


def test_sparse_features_are_those_of_the_dense_matrix():
    x, _, sets = digits()
    expected = quick(epochs=1).fit(x, sets)
    found = quick(epochs=1).fit(csr_matrix(x), sets)
    pd.testing.assert_frame_equal(found.labels_, expected.labels_)
    np.testing.assert_array_equal(found.predict(csr_matrix(x)), expected.predict(x))


def test_columns_of_words_keep_the_sizes_that_their_encoder_gives_them():
    frame = pd.DataFrame({"size": range(0, 60, 2), "kind": ["a", "b", "c"] * 10})
    cleaner = quick(epochs=1).fit(frame, ["a|b", "b", "c"] * 10)
    assert cleaner.classifier_.views == "scaled"
    assert quick().estimator.views == "auto"
    std = cleaner.classifier_._predictor.views.std
    assert std.unique().numel() == 1


def test_without_folds_nothing_is_judged_and_the_way_out_is_named_as_in_python(frame):
    cleaner = quick(epochs=1).set_params(folds=0).fit(frame, digits()[2])
    assert not cleaner.labels_["judged"].any()
    assert "train with folds=5." in cleaner.summary_
    assert cleaner.classifier_.temperature_ == 1


def test_nothing_stays_on_the_disk(frame, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir(tmp_path)

    def stop(record):
        assert list(Path(tmp_path).iterdir())
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quick(epochs=1, on_epoch=stop).fit(frame, digits()[2])
    quick(epochs=1).fit(frame, digits()[2])
    assert list(Path(tmp_path).iterdir()) == []


def test_a_random_state_without_a_seed_and_other_folds_give_other_labels(frame):
    _, _, sets = digits()
    one, two = (
        quick(epochs=1, random_state=np.random.RandomState(seed)).fit(frame, sets).table_
        for seed in (0, 1)
    )
    assert not np.array_equal(one.labels.confidence, two.labels.confidence)


@pytest.mark.parametrize(
    ("options", "data", "said"),
    [
        (
            {"estimator": LogisticRegression()},
            {},
            "The estimator is LogisticRegression(): give a Committee or PartialLabelClassifier.",
        ),
        ({"folds": -1}, {}, "folds is -1: it must be a whole number of at least 0."),
        (
            {"false_discoveries": 2},
            {},
            "false_discoveries is 2: it must be a number at least 0 and at most 1.",
        ),
        ({"workers": "two"}, {}, "workers is 'two': it must be a whole number of at least 1."),
        ({}, {"y": None}, "give the candidate sets."),
        (
            {},
            {"y": ["1|2", "3"]},
            "The data have 300 rows of features but 2 candidate sets: they must be the same rows.",
        ),
        ({}, {"groups": ["a"]}, "There is 1 group"),
        ({}, {"groups": ["a"] * N}, "which cannot be divided into 2 folds: use folds=0."),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_sentence(frame, options, data, said):
    message = refusal(
        lambda: quick(epochs=1).set_params(**options).fit(**{"X": frame, "y": digits()[2], **data})
    )
    assert said in message
    assert "\n" not in message


def test_it_is_cloned_and_configured_as_an_estimator():
    one = LabelCleaner(PartialLabelClassifier("proden", lr=0.1), folds=3, false_discoveries=0.1)
    other = clone(one).set_params(estimator__lr=0.2, folds=4)
    assert (
        one.get_params()["estimator__lr"],
        one.folds,
        other.get_params()["estimator__lr"],
        other.folds,
    ) == (0.1, 3, 0.2, 4)
    assert "folds=3" in repr(one)
    for ask in (
        lambda: one.predict([[0.0]]),
        lambda: one.review_queue(),
        lambda: one.report("page.html"),
        lambda: one.score([[0]], [0]),
    ):
        with pytest.raises(NotFittedError):
            ask()


CHECKED = LabelCleaner(PartialLabelClassifier("proden", "none", epochs=2, device="cpu"), folds=0)
SLOW = (
    "check_classifiers_train",
    "check_supervised_y_2d",
    "check_methods",
    "check_fit2d_1feature",
    "check_array_api_input",
)
CHECKS = [
    check
    for _, check in estimator_checks_generator(CHECKED)
    if not check.func.__name__.startswith(SLOW)
]


@pytest.mark.parametrize(
    "check",
    CHECKS,
    ids=lambda check: check.func.__name__ + "".join(f"-{v}" for v in check.keywords.values()),
)
def test_scikit_learns_own_checks_pass(check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(clone(CHECKED))
