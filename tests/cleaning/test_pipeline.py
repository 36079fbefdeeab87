"""Settings for tables: the estimator's defaults, a prior and a goal that fit; and a run whose rebalancer compares two ways first."""

import inspect
import json
from dataclasses import fields, replace

import numpy as np
import pytest
import torch

import ltpll.cleaning.pipeline as module
from ltpll.cleaning.dataset import TableSource, read_examples
from ltpll.cleaning.pipeline import COMPARISON, TrainingSettings, table_run, train_table_run
from ltpll.data.synthetic import neighbour_candidates
from ltpll.estimator import PartialLabelClassifier
from ltpll.training.callbacks import Callback, Progress
from support.refusals import refusal
from support.user_tables import feature_rows, write_csv

SHARES = {"cat": 0.75, "dog": [0.2, 0.3]}


def test_a_table_is_trained_with_the_defaults_of_the_estimator():
    defaults = {name: parameter.default for name, parameter in inspect.signature(PartialLabelClassifier).parameters.items()}
    settings = TrainingSettings()
    same = {one.name for one in fields(TrainingSettings)} - {"options", "prior", "backbone", "finetune", "seed", "folds", "prune"}
    assert {"method", "rebalancer", "extras", "goal", "lr"} <= same
    assert {name: getattr(settings, name) for name in same} == {name: defaults[name] for name in same}
    assert settings.classifier("cpu", "stop").options in (None, {})


@pytest.mark.parametrize("prior", ["average", "sets", SHARES], ids=str)
@pytest.mark.parametrize("rebalancer", ["auto", "anchor"])
def test_the_prior_is_an_option_of_the_rebalancer(prior, rebalancer):
    settings = TrainingSettings.from_mapping({"rebalancer": rebalancer, "prior": prior, "options": {rebalancer: {"warmup": 0.3}}})
    settings.check(("cat", "dog"))
    assert settings.classifier("cpu", "stop").options == {rebalancer: {"warmup": 0.3, "prior": prior}}
    assert settings.options == {rebalancer: {"warmup": 0.3}}


def test_the_classes_of_a_config_may_be_numbers():
    settings = TrainingSettings.from_mapping({"prior": {1: 0.5, 2: 0.5}})
    settings.check(("1", "2"))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"goal": "speed"}, "The goal is 'speed': choose balanced (every class counts the same) or accuracy (every example)."),
        ({"prior": "guess"}, "The prior is 'guess': choose auto, average, sets, or give the share of each class."),
        ({"prior": "sets", "rebalancer": "records"}, "The rebalancer 'records' takes no prior: choose auto or anchor"),
        ({"prior": SHARES, "rebalancer": "none"}, "The rebalancer 'none' takes no prior"),
        ({"prior": "average", "method": "solar"}, "The method 'solar' cannot be rebalanced"),
        ({"prior": {"cat": 1}}, "lacks 1 of 2 classes (dog)"),
    ],
)
def test_a_goal_or_prior_that_does_not_fit_is_refused(values, words):
    assert words in refusal(lambda: TrainingSettings.from_mapping(values).check(("cat", "dog")))


def test_a_prior_of_another_type_is_refused():
    assert "prior is 3: it must be text" in refusal(lambda: TrainingSettings.from_mapping({"prior": 3}))


def test_auto_compares_two_ways_once_and_all_folds_follow_its_choice(tmp_path, monkeypatch):
    labels = np.repeat(np.arange(8), 10)
    sets = neighbour_candidates(labels, 8, seed=0)
    x = labels + np.random.default_rng(0).normal(size=len(labels))
    rows = [f"{value:.3f},{'|'.join(str(label) for label in sets.row(i))}" for i, value in enumerate(x)]
    (tmp_path / "table.csv").write_text("\n".join(["size,candidates", *rows]))
    source, settings = TableSource(tmp_path / "table.csv"), TrainingSettings(method="proden", epochs=2, folds=2)
    examples = read_examples(source)
    names, compared, lines = [], [], []
    real = module.held_out_scores
    monkeypatch.setattr(module, "held_out_scores", lambda *args: compared.append(1) or real(*args))

    def train(**options):
        run = table_run(tmp_path / "run", settings, examples)
        train_table_run(run, source, examples, settings, device="cpu", workers=1, **options)
        return run

    class Interrupted(Progress):
        def start(self, part):
            names.append(part.name)
            if part.name == "fold 1 of 2":
                raise KeyboardInterrupt
            return super().start(part)

    with pytest.raises(KeyboardInterrupt):
        train(progress=Interrupted(0, lines.append))
    assert names == [*(f"comparison {k} of 6" for k in range(1, 7)), "training", "fold 1 of 2"]
    stored = json.loads((tmp_path / "run" / COMPARISON).read_text())
    run = train(progress=Progress(0, lines.append))
    assert len(compared) == 1
    # One progress of everything, also within epochs, which goes on where it was.
    shares = [int(line.partition("%")[0]) for line in lines]
    assert shares == sorted(shares)
    assert lines[-1].startswith("100% · finished in ")
    for name in (*names[:-1], "fold 1 of 2", "fold 2 of 2"):
        assert any(f" · {name}: epoch 0." in line or f" · {name}: epoch 1." in line for line in lines), name
    assert f"{stored['average']:.1%}" in run.result()["choice"]
    assert run.result()["prior"]["regime"] == "unclear"


@pytest.mark.parametrize("method", ["proden", "lw"])
def test_training_starts_from_the_targets_that_are_given_and_takes_them_for_no_evidence(tmp_path, method):
    rows = [[*row, "test" if i % 5 == 4 else "train"] for i, row in enumerate(feature_rows(30))]
    source = TableSource(write_csv(tmp_path / "t.csv", ["id", "candidates", "u", "v", "split"], rows))
    examples, settings = read_examples(source), TrainingSettings(method=method, rebalancer="none", epochs=1, folds=0)
    weighted = examples.candidates.with_weights(np.random.default_rng(0).uniform(0.1, 1, len(examples.candidates.labels)))
    seen = []

    class Look(Callback):
        def on_train_begin(self, trainer):
            seen.append((trainer.targets.on_candidates(torch.arange(24)).clone(), trainer.candidates.weights))

    started = replace(examples, start=weighted.weights.numpy())
    assert started.fingerprint() != examples.fingerprint()
    train_table_run(table_run(tmp_path / "run", settings, started), source, started, settings, device="cpu", callbacks=[Look()])
    targets, evidence = seen[0]
    assert evidence is None
    trained = np.flatnonzero(examples.training())
    for k, i in enumerate(trained.tolist()):
        mine = weighted.weights[weighted.offsets[i] : weighted.offsets[i + 1]]
        found = targets[k][: len(mine)]
        np.testing.assert_allclose(found / found.sum(), mine, rtol=1e-5)
