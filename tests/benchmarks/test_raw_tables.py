"""The benchmark of raw tables: its sets, its rivals, its columns and its table of results."""

import json
import statistics

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.model_selection import KFold
from sklearn.tree import DecisionTreeClassifier

from benchmarks import raw_tables
from benchmarks.raw_tables import (
    Answer,
    Table,
    annotators,
    balanced_accuracy,
    best_classes,
    by_crowdlab,
    dense,
    draw,
    em,
    fit_weighted,
    load,
    look_alikes,
    measure,
    missing_runs,
    native,
    nearest_classes,
    read_records,
    results_table,
    sparse,
)


def made_up(n=240, seed=0):
    """Rows with a number that has gaps, a word, a date, prose, and a label that they tell."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n)
    size = y + rng.normal(0, 0.3, n)
    size[::17] = np.nan
    colour = np.where(rng.random(n) < 0.8, np.asarray(["red", "green", "blue"])[y], "red")
    return pd.DataFrame(
        {
            "size": size,
            "colour": colour,
            "seen": pd.date_range("2020-02-28", periods=n, freq="31h").strftime("%Y-%m-%d %H:%M"),
            "note": [
                f"row {i} seen near tree {label} with bird{i % 31} and beetle{i % 37}"
                for i, label in enumerate(y)
            ],
            "kind": np.asarray(["ant", "bee", "cat"])[y],
        }
    )


# ---- candidate sets ------------------------------------------------------------------------------


def test_annotators_err_by_class_and_someone_is_right_if_the_truth_is_added():
    y = np.random.default_rng(1).integers(0, 6, 3000)
    with_truth = annotators(y, 6, np.random.default_rng(0), truth_added=True)
    without = annotators(y, 6, np.random.default_rng(0), truth_added=False)
    right = [any(vote == label for vote in row) for row, label in zip(without, y, strict=True)]
    assert 0.85 < np.mean(right) < 1
    np.testing.assert_array_equal(with_truth[right], without[right])
    assert (with_truth == y[:, None]).any(1).all()
    accuracy = np.asarray([(without[y == label] == label).mean(0) for label in range(6)])
    assert (accuracy.mean(0)[:-1] > accuracy.mean(0)[1:]).all()
    assert np.ptp(accuracy, axis=0).min() > 0.05


def test_the_nearest_classes_are_those_with_the_nearest_standardised_means():
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"a": rng.normal(size=60), "b": 100 * rng.normal(size=60)})
    y = np.arange(60) % 5
    scaled = {name: (x[name] - x[name].mean()) / x[name].std() for name in x}
    found = nearest_classes(x, y, 5)
    for one in range(5):
        distance = {
            other: sum((c[y == one].mean() - c[y == other].mean()) ** 2 for c in scaled.values())
            for other in range(5)
            if other != one
        }
        assert found[one].tolist() == sorted(distance, key=distance.get)


def test_look_alikes_join_with_their_probabilities_and_no_others_do():
    nearest = np.asarray([[1, 2, 3], [0, 2, 3], [3, 1, 0], [2, 1, 0]])
    y = np.repeat(np.arange(4), 2500)
    sets = look_alikes(y, nearest, np.random.default_rng(0), (0.6, 0.2))
    assert sets[np.arange(len(y)), y].all()
    for one in range(4):
        first, second, last = sets[y == one].mean(0)[nearest[one]]
        assert (first, second, last) == (
            pytest.approx(0.6, abs=0.04),
            pytest.approx(0.2, abs=0.04),
            0,
        )


def test_the_best_two_or_three_classes_and_the_truth_are_candidates():
    rng = np.random.default_rng(0)
    scores, y = rng.random((500, 6)), rng.integers(0, 6, 500)
    sizes = set()
    for row, label, found in zip(scores, y, best_classes(scores, y, rng, 0.0), strict=True):
        best = sorted(range(6), key=lambda k: -row[k])
        ways = [set(best[:k]) | {label} for k in (2, 3)]
        assert set(np.flatnonzero(found)) in ways
        sizes.add(len(set(np.flatnonzero(found))))
    assert sizes == {2, 3, 4}
    lacking = ~best_classes(scores, y, rng, 0.04)[np.arange(500), y]
    assert lacking.sum() == 20


def test_weak_models_never_score_the_rows_that_they_were_fitted_on(monkeypatch):
    fitted, scored = [], []

    def spy(x, y, x_others, n_classes):
        fitted.extend(x["note"])
        scored.extend(x_others["note"])
        return np.ones((len(x_others), n_classes))

    monkeypatch.setattr(raw_tables, "weak_scores", spy)
    x, y, classes = load(Table(made_up, "kind", "weak model"))
    problem = draw(Table(made_up, "kind", "weak model"), x, y, classes, seed=0)
    parts = [set(fitted), set(scored), set(problem.x_test["note"])]
    assert [len(part) for part in parts] == [24, 144, 72]
    assert len(set.union(*parts)) == 240
    assert problem.x["note"].tolist() == scored


def test_rows_of_rare_classes_are_left_out_and_large_tables_are_cut(monkeypatch):
    monkeypatch.setattr(raw_tables, "MOST_ROWS", 100)

    def read():
        frame = made_up()
        frame.loc[frame.index[:3], "kind"] = "yak"
        return frame

    x, y, classes = load(Table(read, "kind", "annotators"))
    assert classes == ["ant", "bee", "cat"]
    assert 97 <= len(x) == len(y) <= 100
    assert "kind" not in x


# ---- rivals --------------------------------------------------------------------------------------


def naive_fit(model, x, weights):
    rows, labels, own = [], [], []
    for row in range(len(x)):
        for label in range(weights.shape[1]):
            if weights[row, label] > 1e-3:
                rows.append(x[row])
                labels.append(label)
                own.append(weights[row, label])
    return model.fit(np.asarray(rows), labels, sample_weight=own)


@pytest.mark.parametrize("folds", [0, 3])
def test_em_is_the_naive_loop(folds):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 90)
    x = rng.normal(size=(90, 2)) + y[:, None]
    sets = rng.random((90, 3)) < 0.4
    sets[np.arange(90), y] = True
    fitted, weights = em(LogisticRegression(), x, sets, rounds=3, folds=folds)
    naive = np.asarray([row / row.sum() for row in sets])
    for turn in range(3):
        scores = np.zeros((90, 3))
        every = [(np.arange(90), np.arange(90))]
        if folds:
            every = KFold(folds, shuffle=True, random_state=turn).split(x)
        for kept, held in every:
            model = naive_fit(LogisticRegression(), x[kept], naive[kept])
            scores[held] = model.predict_proba(x[held])
        for row in range(90):
            inside = [scores[row, label] * sets[row, label] for label in range(3)]
            naive[row] = np.asarray(inside) / sum(inside)
    np.testing.assert_allclose(weights, naive, atol=1e-6)
    last = naive_fit(LogisticRegression(), x, naive)
    np.testing.assert_allclose(fitted.predict_proba(x), last.predict_proba(x), atol=1e-6)
    assert (weights.argmax(1) == y).mean() > (sets / sets.sum(1, keepdims=True))[
        range(90), y
    ].mean()


def test_labels_without_weight_are_unknown_to_a_model_but_not_to_its_probabilities():
    weights = np.asarray([[1, 0, 0], [0, 0, 1]] * 3, dtype=float)
    x = weights[:, :1]
    found = raw_tables.probabilities(fit_weighted(DecisionTreeClassifier(), x, weights), x, 3)
    np.testing.assert_array_equal(found, weights)


def test_predictions_for_balanced_accuracy_are_those_divided_by_the_estimated_prior():
    y = np.asarray([0] * 80 + [1] * 20)
    x = np.random.default_rng(0).normal(size=(100, 1)) + y[:, None]
    weights = np.eye(2)[y]
    model = fit_weighted(LogisticRegression(), x, weights)
    answer = raw_tables.answer_of(model, x, weights, y)
    odds = model.predict_proba(x)
    np.testing.assert_array_equal(answer.predicted, [int(b > a) for a, b in odds])
    by_prior = [int(b / 0.2 > a / 0.8) for a, b in odds]
    np.testing.assert_array_equal(answer.balanced, [answer.predicted, by_prior])
    assert sum(by_prior) > answer.predicted.sum() > 0


def test_balanced_accuracy_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    y, predicted = rng.integers(0, 4, (2, 100))
    assert balanced_accuracy(y, predicted) == pytest.approx(balanced_accuracy_score(y, predicted))
    assert balanced_accuracy(np.asarray([0, 0, 1]), np.asarray([0, 2, 1])) == 0.75


def test_crowdlab_finds_what_most_votes_and_the_columns_say():
    pytest.importorskip("cleanlab")
    table = Table(made_up, "kind", "annotators")
    problem = draw(table, *load(table), seed=0)
    answer = by_crowdlab("crowdlab", problem, 0)
    most = [statistics.mode(row) for row in problem.votes.tolist()]
    assert (answer.recovered == problem.y).mean() > (np.asarray(most) == problem.y).mean() + 0.05
    assert (answer.predicted == problem.y_test).mean() > 0.8


# ---- columns -------------------------------------------------------------------------------------


def test_trees_get_gaps_categories_dates_as_numbers_and_prose_as_components():
    x = made_up().drop(columns="kind")
    train, test = x[:200], x[200:].reset_index(drop=True)
    test.loc[0, "colour"] = "pink"
    found, of_test = native(train, test)
    assert list(found.columns) == list(of_test.columns)
    assert found["size"].isna().tolist() == train["size"].isna().tolist()
    assert found["colour"].astype(object).tolist() == train["colour"].tolist()
    assert of_test["colour"].isna().tolist() == [True, *[False] * 39]
    when = pd.to_datetime(train["seen"])
    assert found["seen hour"].tolist() == when.dt.hour.tolist()
    assert found["seen day_of_week"].tolist() == when.dt.day_of_week.tolist()
    assert found["seen year"].is_monotonic_increasing
    assert sum(name.isdigit() for name in found.columns) == 50
    assert "note" not in found


def test_other_models_get_scaled_numbers_and_a_column_for_each_level():
    x = made_up().drop(columns=["kind", "seen", "note"])
    found, of_test = dense(x[:200], x[200:])
    filled = x["size"][:200].fillna(x["size"][:200].median())
    np.testing.assert_allclose(found[:, 0], (filled - filled.mean()) / filled.std(ddof=0))
    levels = pd.get_dummies(x["colour"][200:]).to_numpy()
    np.testing.assert_array_equal(of_test[:, -3:], levels)
    np.testing.assert_allclose(sparse(x[:200], x[200:])[1].toarray(), of_test)


def test_a_table_of_prose_alone_has_a_column_for_each_word():
    x = made_up()[["note"]]
    found, of_test = sparse(x[:200], x[200:])
    words = {word for note in x["note"][:200] for word in note.split() if len(word) > 1}
    often = [word for word in words if sum(word in note.split() for note in x["note"][:200]) > 1]
    assert found.shape == (200, len(often))
    assert of_test.shape == (40, len(often))
    assert dense(x[:200], x[200:])[0].shape[0] == 200


# ---- records and results -------------------------------------------------------------------------


def test_a_record_has_every_figure_and_what_the_table_was(monkeypatch):
    monkeypatch.setitem(raw_tables.TABLES, "made up", Table(made_up, "kind", "look-alikes"))
    record = measure("made up", "em-logistic", 1)
    assert (record["n"], record["n_test"], record["columns"], record["classes"]) == (168, 72, 4, 3)
    assert record["lacking"] == 0
    assert 1 < record["set_size"] < 3
    assert all(record[figure] > 0.8 for figure in ("accuracy", "balanced_accuracy", "recovery"))
    assert record["cpu_seconds"] > 0
    assert json.loads(json.dumps(record))["environment"]["commit"]


def test_balanced_accuracy_is_the_best_of_the_predictions_for_it(monkeypatch):
    monkeypatch.setitem(raw_tables.TABLES, "made up", Table(made_up, "kind", "look-alikes"))

    def rival(row, problem, seed):
        wrong, right = np.zeros_like(problem.y_test), problem.y_test
        return Answer(wrong, [wrong, right], problem.y)

    monkeypatch.setitem(raw_tables.ROWS, "made up", ("made up", rival))
    record = measure("made up", "made up", 0)
    assert record["accuracy"] < 0.5
    assert (record["balanced_accuracy"], record["recovery"]) == (1, 1)


def test_runs_with_a_record_are_not_repeated_and_crowdlab_needs_votes(tmp_path):
    (tmp_path / "yeast-crowdlab-0.json").write_text("{}")
    missing = missing_runs(tmp_path, ["yeast", "cities"], ["crowdlab", "em-forest"], [0, 1])
    assert [what[1:] for what in missing] == [
        ("yeast", "em-forest", 0),
        ("cities", "em-forest", 0),
        ("yeast", "crowdlab", 1),
        ("yeast", "em-forest", 1),
        ("cities", "em-forest", 1),
    ]


def test_the_table_marks_the_best_and_subtracts_the_best_rival(tmp_path):
    figures = {"em-forest": (0.5, 0.7), "em-logistic": (0.6, 0.6), "ltpll": (0.7, 0.75)}
    for row, values in figures.items():
        for seed, value in enumerate(values):
            record = {"table": "cities", "row": row, "seed": seed, "cpu_seconds": 100 * value}
            record |= dict.fromkeys(("accuracy", "balanced_accuracy", "recovery"), value)
            (tmp_path / f"cities-{row}-{seed}.json").write_text(json.dumps(record))
    more = {"table": "cities", "row": "ltpll", "seed": 2, "accuracy": 0.0}  # no other row has it
    (tmp_path / "cities-ltpll-2.json").write_text(json.dumps(more))
    lines = results_table(read_records(tmp_path)).splitlines()
    assert lines[0].endswith("| **ltpll** (default) | lead |")
    assert lines[2] == "| cities | 60.0 ± 0.0 | 60.0 ± 14.1 | **72.5 ± 3.5** | +12.5 |"
    assert lines[3] == "| mean | 60.0 | 60.0 | 72.5 | +12.5 |"
    assert lines[-2] == "| cities | **60.0 ± 0.0** | **60.0 ± 14.1** | 72.5 ± 3.5 |"
