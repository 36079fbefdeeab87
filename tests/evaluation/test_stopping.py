"""Stopping by set information: the best epoch is kept, without true labels, also when resumed."""

import signal

import numpy as np
import pytest
import torch

from ltpll import CandidateKFold, Candidates, PartialLabelTrainer
from ltpll.evaluation.set_information import set_information
from ltpll.evaluation.stopping import KeepBestEpoch
from ltpll.methods import PRODEN
from ltpll.models import build_model
from ltpll.rebalancers import RECORDS
from ltpll.training.callbacks import Callback, Checkpoint
from support.refusals import refusal


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    y = rng.choice(4, 240, p=[0.6, 0.25, 0.1, 0.05])
    x = (rng.normal(size=(240, 6)) + 1.5 * np.eye(4, 6)[y]).astype(np.float32)
    sets = Candidates.from_matrix((rng.random((240, 4)) < 0.5) | (np.arange(4) == y[:, None]))
    train, held_out = next(CandidateKFold(4).split(x, sets))
    return x[train], sets.select(train), x[held_out], sets.select(held_out)


def trainer(epochs=12):
    model = build_model("mlp", seed=0, n_inputs=6, n_classes=4)
    return PartialLabelTrainer(model, PRODEN(), RECORDS(), epochs=epochs, batch_size=32, lr=0.3)


class Watched(Callback):
    """Keeps the probabilities of every epoch."""

    def __init__(self, x):
        self.x, self.found = x, []

    def on_epoch_end(self, trainer, record):
        logits = trainer.logits(self.x, "accuracy")
        self.found.append(torch.softmax(logits, 1).numpy())


def test_training_ends_with_the_epoch_that_knows_most_about_held_out_sets(rows):
    x, sets, x_held, held = rows
    watched, keep = Watched(x_held), KeepBestEpoch(x_held, held)
    fitted = trainer().fit(x, sets, callbacks=[watched, keep])
    expected = [set_information(found, held).nats for found in watched.found]
    recorded = [record["set_information"] for record in fitted.history]
    np.testing.assert_allclose(recorded, expected, rtol=1e-5)
    best = int(np.argmax(expected))
    assert keep.epoch == best + 1 < len(expected)
    after = torch.softmax(fitted.logits(x_held, "accuracy"), 1).numpy()
    np.testing.assert_allclose(after, watched.found[best], atol=1e-6)
    assert np.abs(after - watched.found[-1]).max() > 1e-3


def test_an_interrupted_training_keeps_the_same_epoch(rows, tmp_path):
    x, sets, x_held, held = rows
    whole = KeepBestEpoch(x_held, held)
    expected = trainer().fit(x, sets, callbacks=[whole])

    class Interrupt(Callback):
        def on_epoch_end(self, trainer, record):
            if trainer.epoch == whole.epoch + 1 and not self.done:
                self.done = True
                signal.raise_signal(signal.SIGINT)

        done = False

    interrupt, path = Interrupt(), tmp_path / "best.safetensors"

    def train():
        keep = KeepBestEpoch(x_held, held, path=path)
        checkpoint = Checkpoint(tmp_path / "checkpoint.safetensors")
        return keep, trainer().fit(x, sets, callbacks=[keep, interrupt, checkpoint])

    with pytest.raises(KeyboardInterrupt):
        train()
    keep, resumed = train()
    assert (keep.epoch, keep.information) == (whole.epoch, pytest.approx(whole.information))
    for name, tensor in expected.model.state_dict().items():
        torch.testing.assert_close(resumed.model.state_dict()[name], tensor)


def test_rows_and_sets_must_be_as_many(rows):
    _, _, x_held, held = rows
    assert "must be the same rows" in refusal(lambda: KeepBestEpoch(x_held[1:], held))
