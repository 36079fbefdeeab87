"""Features of texts from the cache, resumed where they were interrupted."""

import shutil

import numpy as np
import pytest

from ltpll.text import SentenceEncoder, embedding
from ltpll.text.embedding import store_texts
from support.tiny_sentences import WORDS, write_tiny_encoder

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
    """The features of texts, by way of the cache."""
    stored, digests = store_texts(texts, encoder, cache, on_progress)
    return np.array(stored.stored_features(digests))


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
