import json

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from ltpll import Candidates, ColumnEncoder, InputError, InputWarning, PartialLabelClassifier
from ltpll.text import TfidfText

RNG = np.random.default_rng(0)
N = 200


def encoded(table, **how):
    encoder = ColumnEncoder(**how)
    found = encoder.fit_transform(table)
    return pd.DataFrame(found, columns=encoder.get_feature_names_out())


def mixed():
    """One column of each kind, with gaps."""
    words = ["a", "quick", "brown", "fox", "over", "the", "lazy", "dog", "and", "cat"]
    return pd.DataFrame(
        {
            "size": np.where(RNG.random(N) < 0.1, np.nan, RNG.normal(5, 2, N)),
            "colour": RNG.choice(["red", "green", "blue", None], N),
            "seen": pd.Timestamp("2024-01-01") + pd.to_timedelta(RNG.integers(0, 900, N), "D"),
            "note": [" ".join(RNG.choice(words, 8)) for _ in range(N)],
        }
    )


def test_numbers_are_scaled_as_scikit_learn_does():
    table = RNG.normal(3, 2, (N, 2))
    np.testing.assert_allclose(
        ColumnEncoder().fit_transform(table), StandardScaler().fit_transform(table), atol=1e-6
    )


def test_numbers_that_differ_by_little_beside_their_size_keep_their_differences():
    x = RNG.normal(size=N)
    found = [ColumnEncoder().fit_transform((x + shift)[:, None]) for shift in (0, 1.7e9)]
    np.testing.assert_allclose(found[0], found[1], atol=1e-5)


def test_gaps_have_the_median_and_a_column_of_their_own():
    found = encoded(pd.DataFrame({"x": [1.0, 2.0, np.nan, 9.0], "y": [1, 2, 3, 5]}))
    assert found.columns.tolist() == ["x", "x (missing)", "y"]
    assert found["x (missing)"].tolist() == [0, 0, 1, 0]
    assert found["x"][2] == found["x"][1]


def test_a_few_huge_numbers_are_replaced_by_ranks():
    x = np.concatenate([np.arange(1.0, 500), [1e9]])
    found = encoded(pd.DataFrame({"x": RNG.permutation(x)}))["x"]
    assert found.abs().max() < 2
    assert found.std() == pytest.approx(1, abs=0.05)


def test_categories_are_one_hot_as_scikit_learn_does():
    table = pd.DataFrame({"c": RNG.choice(list("abcd"), N)})
    found = encoded(table)
    known = OneHotEncoder(sparse_output=False).fit(table)
    expected = pd.DataFrame(known.transform(table), columns=known.get_feature_names_out(["c"]))
    expected.columns = [name.replace("c_", "c=") for name in expected]
    pd.testing.assert_frame_equal(found[expected.columns], expected, check_dtype=False)


def test_of_two_levels_one_says_all():
    assert encoded(pd.DataFrame({"b": [True, False] * 9})).columns.tolist() == ["b=True"]


def test_rare_levels_share_a_column_with_unseen_ones():
    table = pd.DataFrame({"c": ["a"] * 50 + ["b"] * 40 + ["rare"] * 2 + ["rarer"]})
    encoder = ColumnEncoder().fit(table)
    assert encoder.get_feature_names_out().tolist() == ["c=a", "c=b", "c (other)", "c (frequency)"]
    found = encoder.transform(pd.DataFrame({"c": ["rare", "new", "a", None]}))
    assert found[:, :3].tolist() == [[0, 0, 1], [0, 0, 1], [1, 0, 0], [0, 0, 0]]


def test_ten_thousand_levels_become_few_columns():
    table = pd.DataFrame(
        {"c": RNG.zipf(1.3, 20_000).clip(max=10_000).astype(str), "x": range(20_000)}
    )
    assert len(encoded(table, kinds={"c": "category", "x": "number"}).columns) < 70


@pytest.mark.parametrize(
    "written",
    ["%Y-%m-%d", "%d/%m/%Y", "%m/%d/%Y", "%d.%m.%Y", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%SZ"],
)
def test_dates_are_read_as_they_are_written(written):
    times = pd.Timestamp("2021-03-05") + pd.to_timedelta(RNG.integers(0, 40_000, N), "h")
    days = times if "%H" in written else times.normalize()
    as_text = encoded(pd.DataFrame({"t": days.strftime(written)}))
    as_dates = encoded(pd.DataFrame({"t": days}))
    if "%M" in written and "%S" not in written:
        as_dates = encoded(pd.DataFrame({"t": days.floor("min")}))
    pd.testing.assert_frame_equal(as_text, as_dates, atol=1e-3)


def test_the_parts_of_a_date_go_round():
    t = pd.date_range("2020-01-01", "2022-12-31", freq="7h")
    found = encoded(pd.DataFrame({"t": t}))
    angle = 2 * np.pi * (t.hour.to_numpy() / 24)
    np.testing.assert_allclose(found["t (sine of the day)"], np.sin(angle), atol=1e-4)
    assert {"t (sine of the year)", "t (cosine of the week)"} <= set(found.columns)


def test_texts_are_those_of_their_encoder():
    table = mixed()[["note"]]
    expected = TfidfText().fit(table["note"].tolist()).transform(table["note"].tolist())
    np.testing.assert_allclose(ColumnEncoder().fit_transform(table), expected, atol=1e-6)


def test_kinds_are_recognised_and_said_in_one_line():
    encoder = ColumnEncoder().fit(mixed())
    assert encoder.describe() == "4 columns: 1 category, 1 date, 1 number, 1 text"
    assert np.isfinite(encoder.transform(mixed())).all()


@pytest.mark.parametrize(
    ("values", "why"),
    [
        ([f"row-{i}" for i in range(N)], "ids"),
        (range(N), "running number"),
        (["same"] * N, "the same"),
        ([None] * N, "the same"),
    ],
)
def test_columns_that_say_nothing_are_left_out_with_a_sentence(values, why):
    table = pd.DataFrame({"x": RNG.normal(size=N), "odd": values})
    with pytest.warns(InputWarning, match=f"1 column is left out: 'odd' .*{why}"):
        encoder = ColumnEncoder().fit(table)
    assert list(encoder.columns_) == ["x"]


def test_kinds_can_be_named_also_by_patterns():
    table = pd.DataFrame({"zip_a": RNG.integers(0, 5, N), "zip_b": RNG.integers(0, 5, N), "x": 1.5})
    table["x"] = RNG.normal(size=N)
    found = ColumnEncoder({"zip_*": "category", "x": "ignore"}).fit(table)
    assert found.describe() == "2 columns: 2 categories"


REFUSED = {
    "mixed types": ({"x": [*range(30), "many"]}, "but also 'many'"),
    "two orders": ({"t": ["13/01/2024", "01/13/2024"] * 5}, "have two orders"),
    "infinite": ({"x": [1.0, np.inf, 2.0]}, "Row 2 has an infinite value"),
    "huge": ({"x": [1.0, 1e308, -1e308]}, "Row 2 has an infinite value, or one beyond"),
    "lists": ({"x": [[1], [2]] * 5}, "lists or other objects"),
    "nothing": ({"x": ["a"] * 5}, "No column tells the rows apart"),
}


@pytest.mark.filterwarnings("ignore::ltpll.InputWarning")
@pytest.mark.parametrize("case", REFUSED)
def test_columns_that_cannot_be_used_are_refused_in_one_sentence(case):
    columns, words = REFUSED[case]
    with pytest.raises(InputError, match=words):
        ColumnEncoder().fit(pd.DataFrame(columns))


NEW = {
    "words for numbers": ({"size": ["big"] * N}, "Row 1 holds 'big' in the column 'size'"),
    "words for dates": ({"seen": ["soon"] * N}, "in the column 'seen' of dates"),
    "another order": ({"seen": ["12/31/2024"] * N}, "Row 1 holds '12/31/2024'"),
}


@pytest.mark.parametrize("case", NEW)
def test_what_changed_since_training_is_refused_in_one_sentence(case):
    columns, words = NEW[case]
    encoder = ColumnEncoder().fit(mixed())
    with pytest.raises(InputError, match=words):
        encoder.transform(mixed().assign(**columns))
    with pytest.raises(InputError, match="no column seen"):
        encoder.transform(mixed().drop(columns="seen"))


@pytest.mark.parametrize("numbers", ["scaled", "bins"])
def test_a_record_gives_the_same_encoder(numbers):
    table = mixed()
    encoder = ColumnEncoder(numbers=numbers).fit(table)
    values, arrays = encoder.record()
    again = ColumnEncoder.from_record(json.loads(json.dumps(values)), arrays)
    np.testing.assert_array_equal(again.transform(table), encoder.transform(table))
    assert again.describe() == encoder.describe()


@pytest.mark.parametrize("name", ["center", "kind", "levels"])
def test_a_damaged_record_is_refused(name):
    values, arrays = ColumnEncoder().fit(mixed()).record()
    text = json.dumps(values).replace(f'"{name}": ', f'"{name}": "x", "other": ')
    with pytest.raises(InputError):
        ColumnEncoder.from_record(json.loads(text), arrays)


def test_tables_of_polars_are_read_alike():
    table = mixed()
    of_polars = ColumnEncoder().fit_transform(pl.from_pandas(table))
    np.testing.assert_allclose(of_polars, ColumnEncoder().fit_transform(table), atol=1e-6)


@pytest.mark.parametrize("first", ["%d/%m/%Y", "%m/%d/%Y"])
def test_days_and_months_are_not_swapped_in_silence(first):
    days = pd.date_range("2024-01-01", periods=N)
    encoder = ColumnEncoder().fit(pd.DataFrame({"t": days.strftime(first)}))
    other = {"%d/%m/%Y": "%m/%d/%Y", "%m/%d/%Y": "%d/%m/%Y"}[first]
    with pytest.raises(InputError, match="in the column 't' of dates"):
        encoder.transform(pd.DataFrame({"t": days.strftime(other)}))


def test_languages_without_spaces_are_prose_and_names_are_not():
    letters = [chr(0x4E00 + i) for i in range(N)]
    prose = pd.DataFrame({"note": [f"两只狼在{one}的森林里奔跑" for one in letters]})
    encoder = ColumnEncoder().fit(prose)
    assert encoder.describe() == "1 column: 1 text"
    assert encoder.transform(prose).any(1).all()
    unknown = encoder.transform(pd.DataFrame({"note": ["قطة كبيرة تنام", "", None]}))
    assert not unknown.any()  # no known letters
    names = pd.DataFrame({"name": [f"王{one}" for one in letters], "x": range(0, 2 * N, 2)})
    with pytest.warns(InputWarning, match="'name'"):
        assert list(ColumnEncoder().fit(names).columns_) == ["x"]


def test_no_column_varies_more_than_a_few_numbers_do():
    """Which is why classifiers must not standardise each output."""
    encoder = ColumnEncoder().fit(mixed())
    found = encoder.transform(mixed()).var(0)
    sizes = [len(one.names) for one in encoder.columns_.values()]
    sums = {
        name: part.sum()
        for name, part in zip(encoder.columns_, np.split(found, np.cumsum(sizes)[:-1]), strict=True)
    }
    assert sizes[-1] > 50
    assert 0.4 < min(sums.values()) < max(sums.values()) < 4


def test_long_texts_are_counted():
    texts = [f"{i} foxes and a few badgers" for i in range(N - 1)]
    table = pd.DataFrame({"note": [*texts, "many more foxes " * 1000]})
    encoder = ColumnEncoder().fit(table)
    encoder.transform(table)
    assert encoder.n_cut == 1
    encoder.transform(table[:5])
    assert encoder.n_cut == 0


def test_a_text_of_a_megabyte_in_a_column_of_categories_has_a_short_name():
    table = pd.DataFrame({"c": ["a" * 1_000_000, "b", "c"] * 10})
    assert max(map(len, ColumnEncoder().fit(table).get_feature_names_out())) < 250


def test_it_stands_in_front_of_a_classifier():
    table = mixed()
    sets = Candidates.of([{i % 3, (i + 1) % 3} for i in range(N)])
    model = make_pipeline(ColumnEncoder(), PartialLabelClassifier(epochs=1, rebalancer="none"))
    assert model.fit(table, sets).predict(table).shape == (N,)


@pytest.mark.filterwarnings("ignore::ltpll.InputWarning")
@parametrize_with_checks([ColumnEncoder()])
def test_it_is_a_transformer_of_scikit_learn(estimator, check):
    check(estimator)


def test_a_column_that_pandas_calls_categorical_is_one_whatever_its_cells_are():
    children = pd.Series(["1", "2", "3", "more"] * 10)
    frame = pd.DataFrame({"children": children.astype("category")})
    encoder = ColumnEncoder().fit(frame)
    assert encoder.describe() == "1 column: 1 category"
    codes = encoder.transform(frame)
    for level in ("1", "2", "3", "more"):  # rows of a level are alike, and unlike all others
        rows = (children == level).to_numpy()
        assert len(np.unique(codes[rows], axis=0)) == 1
    assert len(np.unique(codes, axis=0)) == 4


def test_few_different_numbers_and_words_are_levels_and_a_stray_word_is_refused():
    doors = ["2", "3", "4", "5 or more"] * 10
    encoder = ColumnEncoder().fit(pd.DataFrame({"doors": doors}))
    assert encoder.describe() == "1 column: 1 category"
    assert "doors=5 or more" in encoder.get_feature_names_out()
    for stray in (["2", "3", "4", "3"] * 10 + ["fuor"], [*map(str, range(40)), *["many"] * 8]):
        with pytest.raises(InputError, match="holds numbers in"):
            ColumnEncoder().fit(pd.DataFrame({"doors": stray}))
