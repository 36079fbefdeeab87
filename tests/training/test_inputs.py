"""Inputs that do not fit train to the same weights as those that do, and are never copied as a
whole."""

import os
import threading

import numpy as np
import pytest
import torch

from ltpll import PartialLabelClassifier
from ltpll.models import build_model
from ltpll.training import inputs
from ltpll.training.callbacks import Checkpoint
from ltpll.training.inputs import Inputs
from ltpll.validation import as_inputs
from ltpll.views import ImageViews
from support.tiny_backbones import coloured_pictures
from support.toy_training import assert_same, everything, trainer

CPU = torch.device("cpu")


@pytest.fixture
def streamed(monkeypatch):
    monkeypatch.setattr(inputs, "fits", lambda x, device: False)


def stored(tmp_path, x):
    """The pictures as a file that is opened for reading only."""
    np.save(tmp_path / "pictures.npy", x)
    return np.load(tmp_path / "pictures.npy", mmap_mode="r")


def made(method="proden", **options):
    views = ImageViews("photo", (0.5, 0.4, 0.3), (0.2, 0.3, 0.25))
    model = build_model("small-cnn", 0, n_classes=4, n_channels=3, width=4)
    return trainer(method, model=model, views=views, batch_size=8, chunk=16, **options)


def channels_first(x):
    return as_inputs(x, "training").permute(0, 3, 1, 2)


@pytest.mark.parametrize("layout", ["last", "first", "grey"])
def test_streamed_rows_are_the_rows_in_any_order_and_layout(tmp_path, layout, streamed):
    x = stored(tmp_path, coloured_pictures(30, 5)[0])
    pictures = {
        "last": lambda: channels_first(x),
        "first": lambda: as_inputs(np.ascontiguousarray(x.transpose(0, 3, 1, 2)), "training"),
    }
    held = pictures.get(layout, lambda: channels_first(x)[:, :1].expand(-1, 3, -1, -1))()
    rows, others = torch.tensor([7, 0, 29, 7]), torch.tensor([1, 2])
    streaming = Inputs(held, CPU)
    streaming.announce(rows)
    assert torch.equal(streaming[rows], held[rows])
    streaming.announce(rows)
    assert torch.equal(
        streaming[others], held[others]
    )  # announced rows that are not wanted after all
    assert torch.equal(streaming[rows], held[rows])


def test_of_streamed_rows_a_process_reads_its_own(streamed):
    x = torch.arange(1.0, 13.0).view(6, 2)
    rows, places = torch.tensor([5, 1, 4]), torch.tensor([0, 2])
    expected = torch.stack([x[5], torch.zeros(2), x[4]])
    streaming = Inputs(x, CPU)
    assert torch.equal(streaming.read(rows, places), expected)
    streaming.announce(rows, places)
    assert torch.equal(streaming.read(rows, places), expected)


@pytest.mark.parametrize("method", ["proden", "corr", "solar"])
def test_streamed_pictures_train_to_the_weights_and_targets_of_pictures_in_memory(
    tmp_path, method, monkeypatch
):
    x, _, candidates = coloured_pictures(42)
    resident = made(method).fit(channels_first(x), candidates)
    monkeypatch.setattr(inputs, "fits", lambda x, device: False)
    streaming = made(method).fit(channels_first(stored(tmp_path, x)), candidates)
    assert streaming.inputs.streamed
    assert_same(everything(streaming), everything(resident))
    for (ours, some), (theirs, others) in zip(
        streaming.plain_outputs(), resident.plain_outputs(), strict=True
    ):
        assert torch.equal(ours.logits[0], theirs.logits[0])
        assert torch.equal(some, others)


def test_streamed_training_resumes_within_an_epoch(tmp_path, streamed):
    x, _, candidates = coloured_pictures(42)
    pictures = channels_first(stored(tmp_path, x))
    whole = made().fit(pictures, candidates)
    for stop in (1, 2, 3):  # within and at the end of a chunk of two batches
        first = made()
        first.prepare(pictures, candidates)
        first.state.add_record(first.train_epoch())
        assert first.train_epoch(lambda first=first, stop=stop: first.step_of_epoch == stop) is None
        first.save(tmp_path / f"checkpoint-{stop}")
        second = made().fit(pictures, candidates, [Checkpoint(tmp_path / f"checkpoint-{stop}")])
        assert_same(everything(second), everything(whole))


def test_a_thread_reads_the_next_chunk_while_this_one_is_trained_on(streamed, monkeypatch):
    x, _, candidates = coloured_pictures(40)
    readers = []
    copied = Inputs._copied
    monkeypatch.setattr(
        Inputs,
        "_copied",
        lambda *arguments: (
            readers.append(threading.current_thread().name[:6]) or copied(*arguments)
        ),
    )
    made(epochs=1, drop_last=False).fit(channels_first(x), candidates)
    assert readers == ["MainTh", "inputs", "inputs"]  # 16, 16 and 8 rows


def test_a_file_is_never_copied_as_a_whole(tmp_path, monkeypatch):
    x, _, candidates = coloured_pictures(40)
    pictures = stored(tmp_path, x)
    address = pictures.ctypes.data
    monkeypatch.setattr(np, "require", None)
    assert as_inputs(pictures, "prediction").data_ptr() == address
    classifier = PartialLabelClassifier("proden", "none", epochs=1, device="cpu")
    fitting = classifier.prepare_training(pictures, candidates)
    trainer, held, _ = fitting
    assert held.shape == (40, 3, 16, 16)
    assert held.data_ptr() == address
    classifier.run_training(fitting)
    assert trainer.x.data_ptr() == address
    monkeypatch.undo()
    np.testing.assert_array_equal(classifier.predict_proba(pictures), classifier.predict_proba(x))
    assert classifier.predict_proba(x[::-1]).shape == (40, 4)  # an array that torch cannot share


def test_inputs_stream_if_they_take_more_than_their_share_of_memory(monkeypatch):
    x = torch.zeros(10, 3, 4, 4, dtype=torch.uint8)  # 480 bytes
    for size, streams in ((960, False), (959, True)):
        monkeypatch.setattr(
            os, "sysconf", lambda name, size=size: size if name == "SC_PAGE_SIZE" else 1
        )
        assert Inputs(x, CPU).streamed == streams
    gpu = torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (960, 10**9))
    assert inputs.fits(x, gpu)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (959, 10**9))
    assert not inputs.fits(x, gpu)
