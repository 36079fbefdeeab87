"""With thousands of classes nothing takes memory for every example and every class, measured in a
process of its own.
"""

import json
from pathlib import Path

import pytest
import torch

from ltpll.methods import METHODS
from ltpll.models import build_model
from ltpll.network.predictor import prediction_batch_size
from ltpll.rebalancers import REBALANCERS
from ltpll.training.trainer import PartialLabelTrainer
from ltpll.validation import as_inputs
from support.fork_server import shared_fork_server

MEASURED = """
import json, sys
from pathlib import Path
import numpy as np, torch
from benchmarks.targets import draw_sets
from ltpll.candidates import Candidates
from ltpll.evaluation.during_training import Evaluate
from ltpll.methods import METHODS
from ltpll.models import build_model
from ltpll.rebalancers import REBALANCERS
from ltpll.targets import CandidateTargets
from ltpll.training.trainer import PartialLabelTrainer
from ltpll.targets import transduce

torch.set_num_threads(1)

def megabytes(name):
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) * 1024 / 1e6

def most_more(work):
    "By how much the most memory so far is above what there was before."
    before = megabytes("VmRSS")
    kept = work()
    return megabytes("VmHWM") - before, kept

def trained(n, n_classes):
    x = np.random.default_rng(0).normal(size=(n, 16)).astype(np.float32)
    sets = draw_sets(n, n_classes, 5, uneven=True)
    y = sets[1][sets[0][:-1]].astype(np.int64)
    model = build_model("mlp", 0, n_inputs=16, n_classes=n_classes, hidden=(16,))
    trainer = PartialLabelTrainer(
        model, METHODS["proden"](), REBALANCERS["records"](),
        epochs=1, warmup_epochs=0, batch_size=min(256, n), lr=0.1, device="cpu",
    )
    trainer.fit(x, Candidates.from_flat(*sets, n_classes), callbacks=[Evaluate(x[:1000], y[:1000], y)])
    return trainer, transduce(trainer.targets, trainer.candidates), trainer.predict(x[: n // 4])

def inaturalist():
    candidates = Candidates.from_flat(*sets, 8142)
    targets = CandidateTargets(candidates)
    index = torch.arange(256)
    targets[index] = candidates[index] * targets[index]
    return candidates, targets

trained(300, 50)  # what is loaded with the first training is no part of the next
sets = draw_sets(437_513, 8142, 5, uneven=False)
stored, (candidates, targets) = most_more(inaturalist)
assert len(targets.values) == 5 * 437_513
del candidates, targets, sets
training, _ = most_more(lambda: trained(10_000, 8142))
print(json.dumps({"stored": stored, "training": training}))
"""


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    if not Path("/proc/self/status").exists():
        pytest.skip("this system does not say how much memory a process has")
    folder = tmp_path_factory.mktemp("memory")
    log, errors = folder / "log", folder / "errors"
    status, printed = shared_fork_server().call(
        "interrupted_runs.execute", MEASURED, log=log, errors=errors
    )
    assert status == 0, errors.read_text()
    return json.loads(printed)


def test_candidates_and_targets_of_inaturalists_size_take_less_than_120_mb_building_included(
    measured,
):
    assert 14 < measured["stored"] <= 120


def test_training_judging_cleaning_and_predicting_take_far_less_than_a_matrix_of_examples_by_classes(
    measured,
):
    assert 0 < measured["training"] < 10_000 * 8142 * 4 / 1e6 / 2


@pytest.mark.parametrize(
    ("n_classes", "expected"), [(10, 2048), (1024, 2048), (8192, 256), (10**7, 1)]
)
def test_fewer_examples_are_predicted_at_once_when_there_are_many_classes(n_classes, expected):
    assert prediction_batch_size(torch.zeros(5, 16), n_classes) == expected


def test_predictions_in_parts_are_those_of_all_logits_at_once(monkeypatch):
    g = torch.Generator().manual_seed(0)
    x = as_inputs(torch.randn(50, 4, generator=g), "test")
    model = build_model("mlp", 0, n_inputs=4, n_classes=6, hidden=(8,))
    trainer = PartialLabelTrainer(
        model, METHODS["proden"](), REBALANCERS["records"](), epochs=2, batch_size=16, device="cpu"
    )
    trainer.fit(x, [{i % 6, (i + i // 6) % 6} for i in range(50)])
    whole = trainer.logits(x)
    monkeypatch.setattr("ltpll.network.predictor.MAX_LOGITS", 7 * 6)
    assert [len(part.logits[0]) for part in trainer.predictor.chunks(x)] == [7] * 7 + [1]
    torch.testing.assert_close(trainer.logits(x), whole)
    assert trainer.predict(x).tolist() == whole.argmax(1).tolist()
