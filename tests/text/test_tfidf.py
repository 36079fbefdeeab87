"""TF-IDF against scikit-learn's own pipeline, what is saved, and texts from anywhere."""

import json
import warnings

import numpy as np
import pytest
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import Normalizer

from ltpll.text import TfidfText, tfidf
from support.refusals import refusal

WORDS = [
    "wolf",
    "fox",
    "jackal",
    "snow",
    "forest",
    "car",
    "wheel",
    "engine",
    "road",
    "garage",
    "the",
    "a",
    "of",
    "grey",
    "red",
    "fast",
]


def sentences(n, seed=0):
    rng = np.random.default_rng(seed)
    return [" ".join(rng.choice(WORDS, rng.integers(1, 12))) for _ in range(n)]


TEXTS = sentences(60)
HOSTILE = [
    "",
    " \t\n",
    "x" * 1_000_000,
    "word " * 200_000,
    "\x00\x01\x7f\x1b[31m",
    "\ud800 lone \udfff surrogates",
    "שלום עולם مرحبا",
    "👩‍👩‍👧 🎉🎉 e\u0301\u0301\u0301",
    "一二三四五六七八",
    "a,b;c|d",
]


def test_features_equal_those_of_scikit_learns_own_pipeline():
    union = make_union(
        TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True),
        TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), sublinear_tf=True),
    )
    truth = make_pipeline(union, TruncatedSVD(20, algorithm="arpack"), Normalizer()).fit(TEXTS)
    # All directions, so that the randomised SVD is exact.
    encoder = TfidfText(60).fit(TEXTS)
    new = sentences(15, seed=1)
    ours, expected = encoder.transform(new), truth.transform(new)
    ours = ours[:, :20] / np.linalg.norm(ours[:, :20], axis=1, keepdims=True)
    np.testing.assert_allclose(ours @ ours.T, expected @ expected.T, atol=1e-4)


def test_rows_have_length_one_and_blank_or_unknown_texts_give_zeros():
    features = TfidfText(10).fit(TEXTS).transform(["wolf in the snow", "", " \n", "ΩΩΩΩ"])
    assert features.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(features, axis=1), [1, 0, 0, 0], atol=1e-6)


@pytest.mark.parametrize(
    ("texts", "n"),
    [([], 0), ([""], 0), (["", " "], 0), (["one"], 1), (["same text"] * 9, 1), (TEXTS, 8)],
)
def test_there_are_fewer_features_than_wanted_if_texts_are_few_or_alike(texts, n):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        encoder = TfidfText(8).fit(texts)
        assert encoder.n_outputs == n
        assert encoder.transform(texts).shape == (len(texts), n)
        assert encoder.transform(["other", ""]).shape == (2, n)


def test_letters_without_words_suffice():
    encoder = TfidfText(2).fit(["a b", "c d", "e f"])  # one-letter words are not counted
    assert np.isfinite(encoder.transform(["a b"])).all()


def test_the_same_seed_gives_the_same_features():
    one, two, other = (TfidfText(5, seed=s).fit(TEXTS).transform(TEXTS) for s in (0, 0, 1))
    np.testing.assert_array_equal(one, two)
    assert not np.array_equal(one, other)


def test_vocabulary_and_directions_come_from_a_sample_of_many_texts(monkeypatch):
    monkeypatch.setattr(tfidf, "SAMPLE_TEXTS", 20)
    encoder = TfidfText(100).fit(TEXTS)
    assert 1 < encoder.n_outputs <= 20
    monkeypatch.setattr(tfidf, "SAMPLE_CHARACTERS", 100)
    assert TfidfText(100).fit(TEXTS).n_outputs < encoder.n_outputs


def test_a_first_text_that_is_longer_than_the_whole_sample_is_read(monkeypatch):
    monkeypatch.setattr(tfidf, "SAMPLE_CHARACTERS", 5)
    assert TfidfText().fit(["a longer text"]).n_outputs == 1


def test_hostile_texts_are_read_and_what_is_cut_is_counted():
    encoder = TfidfText(8).fit(TEXTS + HOSTILE)
    assert encoder.n_cut == 2
    found = encoder.transform(HOSTILE)
    assert encoder.n_cut == 2
    assert np.isfinite(found).all()
    restored = TfidfText.from_record(*as_saved(encoder))
    np.testing.assert_array_equal(restored.transform(HOSTILE), found)


@pytest.mark.parametrize(
    ("texts", "words"),
    [("one text", "one text"), ([1.5], "Row 0 of the texts is 1.5"), (["a", None], "Row 1")],
)
def test_what_is_not_a_list_of_texts_is_refused(texts, words):
    assert words in refusal(lambda: TfidfText().fit(texts))
    assert words in refusal(lambda: TfidfText().fit(TEXTS).transform(texts))


# ---- records -------------------------------------------------------------------------------------


def as_saved(encoder):
    values, arrays = encoder.record()
    return json.loads(json.dumps(values)), arrays


@pytest.mark.parametrize("texts", [TEXTS, [""], ["a b", "c d"]])
def test_a_record_restores_the_encoder_exactly(texts):
    encoder = TfidfText(6, max_features=50, seed=3).fit(texts)
    restored = TfidfText.from_record(*as_saved(encoder))
    np.testing.assert_array_equal(restored.transform(TEXTS), encoder.transform(TEXTS))
    assert as_saved(restored)[0] == as_saved(encoder)[0]


def drop(name):
    return lambda values, arrays: (values.pop(name, None), arrays.pop(name, None))


def put(name, value):
    def change(values, arrays):
        (arrays if name in arrays else values)[name] = value

    return change


@pytest.mark.parametrize(
    "damage",
    [
        *map(drop, ["format", "seed", "words", "characters", "idf", "components"]),
        put("format", "tfidf-text-9"),
        put("n_components", 0),
        put("n_components", "6"),
        put("seed", 1.5),
        put("words", None),
        put("words", ["wolf"]),
        put("characters", {"wol": 1}),
        put("idf", np.ones(3, np.float32)),
        put("idf", None),
        put("components", np.zeros((2, 3), np.float32)),
        put("components", "text"),
    ],
)
def test_a_damaged_record_is_refused(damage):
    values, arrays = as_saved(TfidfText(6, max_features=20).fit(TEXTS))
    damage(values, arrays)
    assert "text encoder is damaged" in refusal(lambda: TfidfText.from_record(values, arrays))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("name", ["idf", "components"])
def test_arrays_that_are_not_finite_are_refused(bad, name):
    values, arrays = as_saved(TfidfText(6, max_features=20).fit(TEXTS))
    wrong = arrays[name].copy()
    wrong.flat[0] = bad
    refusal(lambda: TfidfText.from_record(values, arrays | {name: wrong}))


@pytest.mark.parametrize("values", [None, [], {}, "text"])
def test_what_is_not_a_record_is_refused(values):
    refusal(lambda: TfidfText.from_record(values, {}))
