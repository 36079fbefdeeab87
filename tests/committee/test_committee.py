"""`Committee`, the estimator: what it learns from, predicts, saves and exports."""

import json
import pickle
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils.estimator_checks import estimator_checks_generator

from ltpll import Committee, PartialLabelClassifier
from ltpll.cleaning.prediction import onnx_difference
from ltpll.committee import SoftForest
from ltpll.committee.committee import said_of
from ltpll.evaluation.set_information import SetInformation, set_information
from ltpll.synthetic import four_squares, uniform_candidates
from ltpll.training.checkpoint import read_checkpoint, write_checkpoint
from support.refusals import refusal


def network(**options):
    how = {"epochs": 2, "batch_size": 32, "rebalancer": "mean-target", "device": "cpu"}
    return PartialLabelClassifier(**{"model": "linear", "threads": 1, **how, **options})


def small(*more, forest=True, **options):
    """A committee of a linear model and a forest of three trees."""
    members = [("linear", network()), *([("forest", SoftForest(trees=3))] if forest else []), *more]
    return Committee(members, **{"folds": 2, "device": "cpu", "threads": 1, **options})


def problem():
    x, y = four_squares([30, 20, 15, 10], seed=0)
    x = np.hstack([x * [3, 0.1] + [5, 0], np.arange(len(x))[:, None] % 3])
    return x, y, uniform_candidates(y, 4, 0.3, seed=0)


@pytest.fixture(scope="module")
def usual():
    """A committee of all the usual members."""
    x, _, sets = problem()
    return Committee(folds=2, steps=20, device="cpu", threads=1).fit(x, sets)


@pytest.fixture
def fitted():
    x, _, sets = problem()
    return small().fit(x, sets)


CHECKED = Committee([("linear", network(epochs=6)), ("forest", SoftForest(trees=2))], folds=2)
CHECKS = [check for _, check in estimator_checks_generator(CHECKED)]


@pytest.mark.parametrize(
    "check",
    CHECKS,
    ids=lambda check: check.func.__name__ + "".join(f"-{v}" for v in check.keywords.values()),
)
def test_scikit_learns_own_checks_pass(check):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(clone(CHECKED))


# ---- fitting -------------------------------------------------------------------------------------


def test_the_usual_members_learn_and_their_weights_sum_to_one(usual):
    x, y, sets = problem()
    assert len(usual.weights_) == 5
    assert sum(usual.weights_.values()) == pytest.approx(1)
    assert usual.score(x, y) > 0.8
    assert usual.score(x, sets) > 0.8
    assert usual.information_ == set_information(usual.out_of_fold_, sets)
    np.testing.assert_allclose(usual.class_prior_.sum(), 1)
    labels, confidence, second, _ = usual.transduce()
    assert all(label in sets.row(i) for i, label in enumerate(labels))
    assert (labels == y).mean() > 0.85
    assert (confidence >= 0).all()
    assert all(labels[i] != second[i] for i in range(len(x)) if len(sets.row(i)) > 1)


def test_the_largest_weights_are_told_in_a_sentence():
    weights = {"a": 0.0, "b": 0.55, "c": 0.25, "d": 0.12, "e": 0.08}
    found = SetInformation(0.5, 0.01, 1.0)
    knows = "Together they know 50% of what can be known about candidate sets (0.50 ± 0.01 nats)."
    assert said_of(weights, found) == f"Weights by held-out sets: b 55%, c 25%, d 12%. {knows}"
    grouped = said_of({"network on groups": 1.0}, found)
    assert grouped.endswith(
        f"{knows} Rows share their sets in groups, so the other rows of a group also count for a "
        "label."
    )
    even = {str(k): 0.05 for k in range(20)}
    assert said_of(even, found) == f"Weights by held-out sets: 0 most. {knows}"


def test_equal_seeds_give_equal_committees_and_others_other_folds():
    x, _, sets = problem()
    one, again, other = (small(random_state=seed).fit(x, sets) for seed in (0, 0, 1))
    np.testing.assert_array_equal(one.predict_proba(x), again.predict_proba(x))
    assert (one.out_of_fold_ != other.out_of_fold_).any()


def test_classifiers_of_scikit_learn_can_be_members():
    x, y, sets = problem()
    boosting = HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=5)
    one = small(("boosting", boosting)).fit(x, sets)
    assert set(one.weights_) == {"linear", "forest", "boosting"}
    assert one.weights_["boosting"] > 0
    assert one.score(x, y) > 0.6
    assert not hasattr(boosting, "classes_")
    assert "pickle this committee" in refusal(lambda: one.save("c.safetensors"))
    again = pickle.loads(pickle.dumps(one))
    np.testing.assert_array_equal(again.predict_proba(x), one.predict_proba(x))


def test_auto_among_members_stands_for_the_usual_ones():
    x, _, sets = problem()
    one = Committee(["auto", ("own", network())], folds=2, steps=2, device="cpu")
    names = [member.name for member in one.prepare_training(x, sets).members]
    assert len(names) == 6
    assert {"own", "random forest", "network, RECORDS"} < set(names)


def test_rows_of_a_group_are_predicted_by_members_that_saw_none_of_them():
    x, _, sets = problem()
    groups = [f"scene {i // 5}" for i in range(len(x))]
    splits = small().prepare_training(x, sets, groups).splits
    for others, rows in splits[:-1]:
        assert not {groups[i] for i in others} & {groups[i] for i in rows}
    assert small().fit(x, sets, groups).out_of_fold_.shape == (75, 4)


def test_fewer_groups_than_folds_are_a_fold_each():
    x, _, sets = problem()
    one = Committee(folds=5, steps=2, device="cpu").fit(x, sets, groups=np.arange(len(x)) % 3)
    assert one.out_of_fold_.shape == (75, 4)
    np.testing.assert_allclose(one.out_of_fold_.sum(1), 1, atol=1e-2)


def test_the_share_of_missing_labels_reaches_all_networks(monkeypatch):
    x, _, sets = problem()
    assert small().fit(x, sets).truth_missing_ == 0.0
    one = small(truth_missing=0.1)
    training = one.prepare_training(x, sets)
    one.decide_missing(training)
    assert one.truth_missing_ == 0.1
    assert training.members[0].classifier.truth_missing == 0.1
    estimated = "ltpll.committee.committee.estimate_missing"
    monkeypatch.setattr(estimated, lambda *_: [0.3] * 5)
    one.set_params(truth_missing="auto").decide_missing(training)
    assert one.truth_missing_ == pytest.approx(0.3)


# ---- predicting ----------------------------------------------------------------------------------


def test_the_goal_balanced_is_the_rule_of_bayes_for_even_shares(fitted):
    x, _, _ = problem()
    usual = fitted.predict_proba(x)
    joint = usual / fitted.class_prior_
    balanced = fitted.set_params(goal="balanced").predict_proba(x)
    np.testing.assert_allclose(balanced, joint / joint.sum(1, keepdims=True), rtol=1e-4)
    assert (fitted.predict(x) == fitted.classes_[balanced.argmax(1)]).all()


@pytest.mark.parametrize("goal", ["accuracy", "balanced"])
def test_each_goal_has_a_temperature_that_flattens_its_probabilities(fitted, goal):
    x, _, _ = problem()
    usual = fitted.set_params(goal=goal).predict_proba(x).astype(float)
    fitted.temperature_, fitted.balanced_temperature_ = (2.0, 5.0)[
        :: 1 if goal == "accuracy" else -1
    ]
    expected = np.sqrt(np.maximum(usual, np.finfo(np.float32).tiny))
    np.testing.assert_allclose(
        fitted.predict_proba(x), expected / expected.sum(1, keepdims=True), rtol=1e-4
    )


def test_every_kind_of_table_gives_the_same_predictions(fitted):
    import polars as pl
    import torch

    x, _, sets = problem()
    expected = fitted.predict_proba(x)
    for other in (x.tolist(), sparse.csr_matrix(x), torch.from_numpy(x)):
        np.testing.assert_array_equal(fitted.predict_proba(other), expected)
        np.testing.assert_array_equal(small().fit(other, sets).predict_proba(x), expected)
    frame = pd.DataFrame(x, columns=["width", "height", "kind"])
    named = small().fit(frame, sets)
    assert named.feature_names_in_.tolist() == ["width", "height", "kind"]
    for other in (frame, pl.from_pandas(frame)):
        np.testing.assert_array_equal(named.predict_proba(other), expected)
    with pytest.raises(ValueError, match="feature names"):
        named.predict(frame.rename(columns={"kind": "sort"}))


def test_what_float32_would_blur_is_learned_as_well(fitted):
    x, _, sets = problem()
    moved = small().fit(x + 1e9, sets)
    np.testing.assert_allclose(moved.predict_proba(x + 1e9), fitted.predict_proba(x), atol=0.02)


def test_names_of_classes_are_kept():
    x, _, sets = problem()
    names = np.asarray(["ant", "bee", "cat", "dog"])
    named = [[names[c] for c in sets.row(i)] for i in range(len(sets))]
    one = small().fit(x, named)
    assert one.classes_.tolist() == names.tolist()
    assert set(one.predict(x)) <= set(names)
    assert set(one.transduce()[0]) <= set(names)


# ---- saving --------------------------------------------------------------------------------------


def test_a_saved_committee_predicts_the_same(usual, tmp_path):
    x, _, _ = problem()
    usual.save(tmp_path / "c.safetensors")
    for again in (
        Committee.load(tmp_path / "c.safetensors", "cpu"),
        pickle.loads(pickle.dumps(usual)),
    ):
        for goal in ("accuracy", "balanced"):
            np.testing.assert_array_equal(
                again.set_params(goal=goal).predict_proba(x),
                usual.set_params(goal=goal).predict_proba(x),
            )
        for name in ("weights_", "choice_", "information_", "truth_missing_", "n_features_in_"):
            assert getattr(again, name) == getattr(usual, name), name
        for one, other in zip(again.transduce(), usual.transduce(), strict=True):
            np.testing.assert_array_equal(one, other)
    usual.set_params(goal="accuracy")


def test_a_clone_has_the_settings_and_has_learned_nothing(fitted):
    again = clone(fitted)
    assert not hasattr(again, "classes_")
    assert again.folds == 2
    assert [name for name, _ in again.members] == ["linear", "forest"]


def test_damaged_files_are_refused_in_a_sentence(fitted, tmp_path):
    path = tmp_path / "c.safetensors"
    fitted.save(path)
    tensors, values = read_checkpoint(path)
    shorter = {"members": values["members"][:1], "temperature": -1.0, "classes": [0, 1]}
    shorter |= {"information": [1.0], "weights": "many", "feature_names_in": ["a"]}
    shorter |= {"params": {"colour": 1}, "truth_missing": "never", "members": [["linear"]]}
    for name, value in shorter.items():
        write_checkpoint(path, tensors, {**values, name: value})
        assert "damaged" in refusal(lambda: Committee.load(path, "cpu")), name
    for name in tensors:
        if ".network." not in name:
            write_checkpoint(path, {k: one for k, one in tensors.items() if k != name}, values)
            refusal(lambda: Committee.load(path, "cpu"))
    beyond = {**tensors, "1.forest.feature": tensors["1.forest.feature"].clone().fill_(3)}
    write_checkpoint(path, beyond, values)
    assert "damaged" in refusal(lambda: Committee.load(path, "cpu"))
    write_checkpoint(path, tensors, {**values, "kind": "something else"})
    assert "not that of a committee" in refusal(lambda: Committee.load(path, "cpu"))
    path.write_bytes(path.read_bytes()[:-9])
    refusal(lambda: Committee.load(path, "cpu"))


# ---- refusals ------------------------------------------------------------------------------------


class Guess:
    """Neither a network nor a classifier that takes weights."""


@pytest.mark.parametrize(
    ("options", "data", "message"),
    [
        ({}, {"X": np.zeros((9, 3, 4, 4))}, "give images to PartialLabelClassifier"),
        ({}, {"y": None}, "give the candidate sets"),
        ({}, {"y": [[0], [1]]}, "inconsistent numbers of samples"),
        ({"folds": 1}, {}, "folds is 1: it must be a whole number of at least 2"),
        ({"folds": 2.5}, {}, "folds is 2.5"),
        ({"workers": 0}, {}, "workers is 0"),
        ({"goal": "best"}, {}, "The goal is 'best': choose 'balanced'"),
        ({"truth_missing": 2}, {}, "truth_missing is 2"),
        ({"members": "some"}, {}, "A member is 'some': give 'auto', or a pair"),
        ({"members": [("a", network(), 3)]}, {}, "give 'auto', or a pair"),
        ({"members": [(3, network())]}, {}, "give 'auto', or a pair"),
        ({"members": [("a", network()), ("a", SoftForest())]}, {}, "have the same name: rename"),
        ({"members": [("a", SoftForest())]}, {}, "needs a network"),
        ({"members": []}, {}, "needs a network"),
        ({"members": [("a", network()), ("b", KNeighborsClassifier())]}, {}, "fit takes sample_we"),
        ({"members": [("a", network()), ("b", Guess)]}, {}, "The member 'b' is"),
        ({}, {"groups": ["one"] * 75}, "in one group"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_sentence(options, data, message):
    x, _, sets = problem()
    one = small().set_params(**options)
    given = {"X": x, "y": sets, **data}
    with pytest.raises(ValueError, match=r"^[^\n]*$") as caught:
        one.fit(**given)
    assert message in str(caught.value)
    assert not hasattr(one, "weights_")


# ---- export --------------------------------------------------------------------------------------


def answers(path, x):
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    kinds = {"tensor(float)": np.float32, "tensor(double)": np.float64}
    return session.run(None, {"x": x.astype(kinds[session.get_inputs()[0].type])})


def softmax(logits):
    found = np.exp(logits - logits.max(1, keepdims=True))
    return found / found.sum(1, keepdims=True)


def test_the_exported_model_predicts_as_the_committee_does(usual, tmp_path):
    x, _, _ = problem()
    path = tmp_path / "model.onnx"
    again = pickle.loads(pickle.dumps(usual)).set_params(goal="balanced")
    again.temperature_, again.balanced_temperature_ = 3.0, 1.7
    weights = again.weights_
    assert weights["random forest"] > 0
    assert any("bins" in name and weight > 0 for name, weight in weights.items())
    again.to_onnx(path, ["width", "height", "kind"])
    for n in (1, 7, len(x)):
        logits, probabilities = answers(path, x[:n])
        np.testing.assert_allclose(probabilities, again.predict_proba(x[:n]), atol=1e-5)
        np.testing.assert_allclose(softmax(logits / 1.7), probabilities, atol=1e-5)
    assert onnx_difference(again, path) < 1e-4
    facts = json.loads(Path(f"{path}.json").read_text(encoding="utf-8"))
    assert facts["classes"] == [0, 1, 2, 3]
    assert facts["input"]["features"] == ["width", "height", "kind"]
    assert (facts["goal"], facts["temperature"]) == ("balanced", 1.7)
    np.testing.assert_allclose(facts["preprocessing"]["mean"], x.mean(0), rtol=1e-5)
    np.testing.assert_allclose(facts["preprocessing"]["std"], x.std(0), rtol=1e-5)


def test_logits_are_logarithms_of_probabilities_of_doubles_and_of_forests_alone(tmp_path):
    x, _, sets = problem()
    x, path = x + 1e9, tmp_path / "model.onnx"
    one = small().fit(x, sets)
    one._fitted = [member._replace(weight=1.0) for member in one._fitted[1:]]
    one.to_onnx(path)
    logits, probabilities = answers(path, x)
    np.testing.assert_allclose(probabilities, one.predict_proba(x), atol=1e-6)
    likely = probabilities > 1e-6
    np.testing.assert_allclose(np.exp(logits)[likely], probabilities[likely], rtol=1e-4)
    assert json.loads(Path(f"{path}.json").read_text())["input"]["type"] == "float64"
    assert onnx_difference(one, path) < 1e-4


def test_thresholds_of_exported_trees_divide_float32_numbers_exactly(tmp_path):
    """A threshold between two neighbours of float32, where rounding would cross one of them."""
    from ltpll.committee.onnx_export import forest_attributes

    low = np.float32(100)
    high = np.nextafter(low, np.float32(101))
    x = np.repeat([[low], [high]], 40, axis=0)
    forest = SoftForest(trees=9).fit(x, np.repeat(np.eye(2), 40, axis=0))
    between = forest.arrays()["threshold"][forest.arrays()["left"] >= 0]
    kept = forest_attributes(forest)["nodes_values"][forest.arrays()["left"] >= 0]
    assert len(kept) == 9
    for threshold, rounded in zip(between, kept, strict=True):
        for number in (low, high):
            assert (number <= threshold) == (number <= rounded)


def test_what_cannot_be_exported_is_refused_and_leaves_no_file(fitted, tmp_path):
    x, _, sets = problem()
    boosting = HistGradientBoostingClassifier(max_iter=3, min_samples_leaf=5)
    one = small(("boosting", boosting)).fit(x, sets)
    assert "The member 'boosting' cannot be exported" in refusal(
        lambda: one.to_onnx(tmp_path / "model.onnx")
    )
    assert "does not exist" in refusal(lambda: fitted.to_onnx(tmp_path / "nowhere" / "model.onnx"))
    assert not list(tmp_path.iterdir())
