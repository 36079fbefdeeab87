"""Features of texts from the cache, resumed where they were interrupted, and written to a file."""

import csv
import shutil

import numpy as np
import pytest

from ltpll.cleaning.dataset import TableSource, read_examples
from ltpll.text import SentenceEncoder, embedding
from ltpll.text.embedding import embed_texts, read_texts
from support.commands import ltpll_here as ltpll
from support.refusals import refusal
from support.tiny_sentences import WORDS, write_tiny_encoder
from support.user_tables import write_csv

pytest.importorskip("transformers")
TEXTS = [" ".join(WORDS[i % 7 : 7 + i % 5]) for i in range(30)]


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return write_tiny_encoder(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def encoder(tiny):
    return SentenceEncoder.from_pretrained(tiny)


class StoppedError(Exception):
    pass


def counting(encoder, monkeypatch, stop_after=None):
    """The texts that the encoder is given; it fails at call `stop_after`."""
    encode, given, calls = encoder.encode, [], []

    def counted(texts, *rest, **how):
        calls.append(1)
        if len(calls) == stop_after:
            raise StoppedError
        given.extend(texts)
        return encode(texts, *rest, **how)

    monkeypatch.setattr(encoder, "encode", counted)
    return given


def embedded_texts(texts, encoder, cache, on_progress=None):
    """The features that are written to a file."""
    out = cache.parent / "texts.npy"
    found = embed_texts({"text": texts}, encoder, out, cache=cache, on_progress=on_progress)
    return np.array(found)


def test_every_text_is_encoded_once(encoder, tmp_path, monkeypatch):
    given = counting(encoder, monkeypatch)
    texts = [*TEXTS, "\ud800", ""]
    first = embedded_texts(texts, encoder, cache=tmp_path / "cache")
    assert sorted(given) == sorted(set(texts))
    seen = []
    again = embedded_texts(
        [*texts, "new"], encoder, cache=tmp_path / "cache", on_progress=lambda *p: seen.append(p)
    )
    assert given[-1] == "new"
    assert len(given) == len(set(texts)) + 1
    assert seen == [(33, 33)]
    np.testing.assert_array_equal(again[:-1], first)
    np.testing.assert_allclose(first, encoder.encode(texts), atol=1e-6)


def test_what_is_cut_is_counted_with_a_full_cache_too(encoder, tmp_path):
    for _ in range(2):
        embedded_texts(["wolf " * 50, "fox"], encoder, cache=tmp_path / "cache")
        assert encoder.n_cut == 1


def test_an_interrupted_job_resumes(encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(embedding, "BLOCK", 8)
    whole = embedded_texts(TEXTS, encoder, cache=tmp_path / "other")
    with monkeypatch.context() as patch:
        done = counting(encoder, patch, stop_after=3)
        with pytest.raises(StoppedError):
            embedded_texts(TEXTS, encoder, cache=tmp_path / "cache")
    rest = counting(encoder, monkeypatch)
    found = embedded_texts(TEXTS, encoder, cache=tmp_path / "cache")
    assert set(done).isdisjoint(rest)
    np.testing.assert_allclose(found, whole, atol=1e-6)


def test_another_encoder_has_its_own_features(encoder, tiny, tmp_path, monkeypatch):
    embedded_texts(TEXTS, encoder, cache=tmp_path / "cache")
    shutil.copytree(tiny, tmp_path / "other")
    (tmp_path / "other" / "sentence_bert_config.json").write_text('{"max_seq_length": 9}')
    other = SentenceEncoder.from_pretrained(tmp_path / "other")
    given = counting(other, monkeypatch)
    embedded_texts(TEXTS, other, cache=tmp_path / "cache")
    assert len(given) == len(set(TEXTS))


def test_answers_of_several_annotators_about_one_text_are_one_row(tmp_path):
    rows = [["a", "wolf", 1], ["b", "fox", 2], ["a", "wolf", 3], ["c", "fox", 4]]
    write_csv(tmp_path / "t.csv", ["id", "body", "n"], rows)
    found = read_texts(tmp_path / "t.csv", "body")
    assert found == {"id": ["a", "b", "c"], "text": ["wolf", "fox", "fox"]}
    write_csv(tmp_path / "t.csv", ["body"], [["wolf"], ["wolf"]])
    assert read_texts(tmp_path / "t.csv", "body") == {"text": ["wolf", "wolf"]}
    assert "did you mean 'body'?" in refusal(lambda: read_texts(tmp_path / "t.csv", "bdy"))


# ---- the command ---------------------------------------------------------------------------------


@pytest.fixture
def tickets(tiny, tmp_path, monkeypatch):
    """A table of texts with ids, and the tiny encoder in the folder `tiny`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LTPLL_CACHE", str(tmp_path / "cache"))
    shutil.copytree(tiny, tmp_path / "tiny")
    rows = [[f"r{i}", TEXTS[i], ("ash", "ash|birch")[i % 2]] for i in range(30)]
    write_csv(tmp_path / "t.csv", ["id", "body", "candidates"], rows)
    return tmp_path


EMBED = ("embed", "t.csv", "--text", "body", "--backbone", "tiny")


def test_a_column_of_texts_becomes_features_that_train_reads_by_id(tickets, encoder):
    printed = ltpll(*EMBED, "--out", "e.npy")
    assert "Wrote 30 rows of 16 features to e.npy" in printed
    assert "Next: ltpll train t.csv --features e.npy" in printed
    np.testing.assert_allclose(np.load("e.npy"), encoder.encode(TEXTS), atol=1e-6)
    with (tickets / "t.csv").open() as file:
        header, *rows = csv.reader(file)
    write_csv(tickets / "reversed.csv", header, rows[::-1])
    found = read_examples(TableSource(tickets / "reversed.csv", features=tickets / "e.npy")).x
    np.testing.assert_array_equal(found[::-1], np.load("e.npy"))


def test_without_ids_the_rows_are_taken_in_order(tickets):
    write_csv(tickets / "t.csv", ["body", "candidates"], [["wolf " * 50, "ash"], ["fox", "birch"]])
    assert "Too long to be read to their end: 1 text" in ltpll(*EMBED, "--out", "e.npy")
    examples = read_examples(TableSource(tickets / "t.csv", features=tickets / "e.npy"))
    np.testing.assert_array_equal(examples.x, np.load("e.npy"))


def test_parts_are_joined_from_the_cache(tickets, monkeypatch):
    for k in (1, 2, 3):
        printed = ltpll(*EMBED, "--out", f"{k}.npy", "--part", f"{k}/3")
        assert "run the command without --part" in printed
    monkeypatch.setattr(SentenceEncoder, "encode", None)
    ltpll(*EMBED, "--out", "e.npy")
    for k in (1, 2, 3):
        np.testing.assert_array_equal(np.load("e.npy")[k - 1 :: 3], np.load(f"{k}.npy"))


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["--images", "pictures"], "--images, --path, --on-error and --precision belong to"),
        (["--precision", "bfloat16"], "belong to pictures: leave them out with --text"),
        (["--text", "bdy"], "did you mean 'body'?"),
        (["--backbone", "none/at/all"], "There is no folder none/at/all"),
        (["--part", "4/3"], "--part is '4/3'"),
        (["--out", "e.csv"], "e.csv must end in .npy"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_what_cannot_be_embedded_is_refused_in_one_sentence(tickets, arguments, expected):
    assert expected in ltpll(*EMBED, "--out", "e.npy", *arguments, status=2)
    assert not (tickets / "e.npy").exists()
