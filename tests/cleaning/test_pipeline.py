"""Settings for tables: the estimator's defaults, a prior and a goal that fit; and a run whose
rebalancer compares two ways first.
"""

import inspect
import signal
from contextlib import suppress
from dataclasses import fields, replace

import numpy as np
import pytest

import ltpll.estimator as module
from ltpll.cleaning.dataset import TableSource, read_examples
from ltpll.cleaning.pipeline import Execution, TrainingSettings, table_run, train_table_run
from ltpll.estimator import PartialLabelClassifier
from ltpll.runs.run import Run
from ltpll.runs.run_files import RunFile
from ltpll.settings import with_settings
from ltpll.tables.reading import Reading
from ltpll.training.callbacks import Progress
from ltpll_research.set_origins import neighbour_candidates
from support.refusals import refusal
from support.user_tables import write_csv

SHARES = {"cat": 0.75, "dog": [0.2, 0.3]}
ON_CPU = Execution("cpu", threads=1, workers=1)


def test_a_table_is_trained_with_the_defaults_of_the_estimator():
    defaults = {
        name: parameter.default
        for name, parameter in inspect.signature(PartialLabelClassifier).parameters.items()
    }
    settings = TrainingSettings()
    same = {one.name for one in fields(TrainingSettings)} - {
        "learner",
        "options",
        "prior",
        "backbone",
        "finetune",
        "seed",
        "folds",
    }
    assert {"method", "rebalancer", "extras", "goal", "lr"} <= same
    assert {name: getattr(settings, name) for name in same} == {
        name: defaults[name] for name in same
    }
    assert settings.classifier(Execution("cpu")).options in (None, {})


@pytest.mark.parametrize("prior", ["average", "sets", SHARES], ids=str)
@pytest.mark.parametrize("rebalancer", ["auto", "anchor"])
def test_the_prior_is_an_option_of_the_rebalancer(prior, rebalancer):
    settings = with_settings(
        TrainingSettings,
        {"rebalancer": rebalancer, "prior": prior, "options": {rebalancer: {"warmup": 0.3}}},
    )
    settings.check(("cat", "dog"))
    assert settings.classifier(Execution("cpu")).options == {
        rebalancer: {"warmup": 0.3, "prior": prior}
    }
    assert settings.options == {rebalancer: {"warmup": 0.3}}


def test_the_classes_of_a_config_may_be_numbers():
    settings = with_settings(TrainingSettings, {"prior": {1: 0.5, 2: 0.5}})
    settings.check(("1", "2"))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        (
            {"goal": "speed"},
            "goal is 'speed': it must be balanced or accuracy.",
        ),
        (
            {"prior": "guess"},
            "The prior is 'guess': choose auto, average, sets, or give the share of each class.",
        ),
        (
            {"prior": "sets", "rebalancer": "records"},
            "The rebalancer 'records' takes no prior: choose auto or anchor",
        ),
        ({"prior": SHARES, "rebalancer": "none"}, "The rebalancer 'none' takes no prior"),
        ({"prior": "average", "method": "solar"}, "The method 'solar' cannot be rebalanced"),
        ({"prior": {"cat": 1}}, "each of the 2 classes: dog is missing"),
    ],
)
def test_a_goal_or_prior_that_does_not_fit_is_refused(values, words):
    assert words in refusal(lambda: with_settings(TrainingSettings, values).check(("cat", "dog")))


def test_a_prior_of_another_type_is_refused():
    assert "prior is 3: it must be text" in refusal(
        lambda: with_settings(TrainingSettings, {"prior": 3})
    )


def unclear_table(path, seed=0):
    """A table whose sets leave "auto" undecided, so that it compares two ways of training."""
    labels = np.repeat(np.arange(8), 10)
    sets = neighbour_candidates(labels, 8, seed=seed)
    x = labels + np.random.default_rng(seed).normal(size=len(labels))
    rows = [
        f"{value:.3f},{'|'.join(str(label) for label in sets.row(i))}" for i, value in enumerate(x)
    ]
    path.write_text("\n".join(["size,candidates", *rows]))
    return TableSource(path)


def test_auto_compares_two_ways_once_and_all_folds_follow_its_choice(tmp_path, monkeypatch):
    source, settings = (
        unclear_table(tmp_path / "table.csv"),
        TrainingSettings(method="proden", epochs=2, folds=2),
    )
    examples = read_examples(source)
    names, compared, lines = [], [], []
    real = module.held_out_scores
    monkeypatch.setattr(module, "held_out_scores", lambda *args: compared.append(1) or real(*args))

    def train(**options):
        run = table_run(tmp_path / "run", settings, examples)
        train_table_run(run, source, examples, settings, execution=ON_CPU, **options)
        return run

    class Interrupted(Progress):
        def start_part(self, part, *others):
            names.append(part.name)
            if part.name == "fold 1 of 2":
                raise KeyboardInterrupt
            return super().start_part(part, *others)

    with pytest.raises(KeyboardInterrupt):
        train(progress=Interrupted(0, lines.append))
    assert names == [*(f"comparison {k} of 6" for k in range(1, 7)), "training", "fold 1 of 2"]
    kept = RunFile.COMPARISON_FOLDS.found_in(tmp_path / "run")
    run = train(progress=Progress(0, lines.append))
    assert (len(kept), len(compared)) == (6, 2)  # the second time, by what was kept
    assert not RunFile.COMPARISON_FOLDS.found_in(tmp_path / "run")
    # One progress of everything, also within epochs, which goes on where it was.
    shares = [int(line.partition("%")[0]) for line in lines if "% · " in line]
    assert shares == sorted(shares)
    assert lines[-1].startswith("100% · finished in ")
    for name in (*names[:-1], "fold 1 of 2", "fold 2 of 2"):
        assert any(
            f" · {name}: epoch 0." in line or f" · {name}: epoch 1." in line for line in lines
        ), name
    assert "nats about held-out sets" in run.result()["choice"]
    assert run.result()["prior"]["regime"] == "unclear"


@pytest.mark.parametrize(
    ("n", "groups", "folds", "said"),
    [
        (2, "", 5, "2 rows cannot be divided into 2 folds"),
        (3, "", 2, "3 rows cannot be divided into 2 folds"),
        (4, "pppq", 3, "4 rows in 2 groups cannot be divided into 2 folds"),
        (5, "", 5, "must leave rows with different candidates"),
        (6, "", 6, "must leave rows with different candidates and different features"),
        (2, "", 0, None),
        (3, "", 5, None),
        (4, "ppqq", 2, None),
    ],
)
def test_too_few_rows_for_folds_are_refused_before_training(tmp_path, n, groups, folds, said):
    rows = [["abc"[i % 3], i, i % 2, *groups[i : i + 1]] for i in range(n)]
    if n == 5:
        rows = [["a|b" if i else "a", *row[1:]] for i, row in enumerate(rows)]
    if n == 6:
        rows = [[row[0], int(i == 0), 1] for i, row in enumerate(rows)]
    table = write_csv(
        tmp_path / "t.csv", ["candidates", "u", "v", *(["g"] if groups else [])], rows
    )
    source = TableSource(table, Reading(group="g" if groups else None))
    settings = replace(QUICK, rebalancer="none", folds=folds)
    if said is None:
        assert trained(tmp_path / "run", source, settings).done
    else:
        assert said in refusal(lambda: trained(tmp_path / "run", source, settings))
        assert not (tmp_path / "run").exists()


QUICK = TrainingSettings(method="proden", epochs=2, folds=2)


def trained(folder, source, settings=QUICK, fresh=False, **options):
    """A run in this folder, which is trained to its end."""
    examples = read_examples(source)
    run = table_run(folder, settings, examples)
    run.check_folder(afresh=fresh)
    if fresh:
        run.delete_run()
    train_table_run(run, source, examples, settings, execution=ON_CPU, **options)
    return run


class StopsIn(Progress):
    """Interrupts the training of some part, if there is one, after its first step."""

    def __init__(self, name, number=signal.SIGINT):
        super().__init__(write=lambda line: None)
        self.name, self.number, self.started = name, number, []

    def start_part(self, part, *others):
        self.started.append(part.name)
        return super().start_part(part, *others)

    def on_step_end(self, trainer):
        if self.part.name == self.name:
            self.name = ""
            signal.raise_signal(self.number)


def outcome(run):
    """What a run has found, without times."""
    record = {
        name: value
        for name, value in run.result().items()
        if name not in ("seconds", "views_per_second")
    }
    timed = ("metrics.jsonl", "result.json", "done")  # or with checksums of files with times
    return record, {
        path.name: path.read_bytes() for path in run.folder.iterdir() if path.name not in timed
    }


def test_a_run_that_is_trained_from_the_start_on_another_table_compares_anew(tmp_path):
    first, second = (unclear_table(tmp_path / f"{seed}.csv", seed) for seed in (0, 1))
    trained(tmp_path / "run", first)
    source = replace(second, table=(tmp_path / "1.csv").replace(tmp_path / "0.csv"))
    again, other = (
        trained(tmp_path / "run", source, fresh=True),
        trained(tmp_path / "other", source),
    )
    assert outcome(again) == outcome(other)


def test_the_files_of_equal_runs_are_equal_except_for_times(tmp_path):
    source = unclear_table(tmp_path / "table.csv")
    one, other = (outcome(trained(tmp_path / name, source)) for name in ("one", "other"))
    assert {
        "classifier.safetensors",
        "checkpoint.safetensors",
        "fold-1.safetensors",
        "examples.parquet",
    } <= one[1].keys()
    assert one == other


def test_an_interrupted_comparison_goes_on_where_it_was_to_the_same_result(tmp_path):
    source = unclear_table(tmp_path / "table.csv")
    whole = trained(tmp_path / "whole", source)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "cut", source, progress=StopsIn("comparison 3 of 6"))
    kept = sorted(path.name for path in (tmp_path / "cut").iterdir())
    assert kept == [
        "checkpoint-comparison-3.safetensors",
        "comparison-1.safetensors",
        "comparison-2.safetensors",
        "config.json",
    ]
    assert "different: seed" in refusal(
        lambda: trained(tmp_path / "cut", source, replace(QUICK, seed=1))
    )
    resumed = StopsIn("")
    cut = trained(tmp_path / "cut", source, progress=resumed)
    assert resumed.started[0] == "comparison 3 of 6"
    assert outcome(cut) == outcome(whole)


def test_an_interrupted_estimate_of_missing_labels_goes_on_where_it_was_to_the_same_result(
    tmp_path,
):
    rng = np.random.default_rng(0)
    true = rng.integers(0, 4, 80)
    sets = [
        sorted(
            {int(c) for c in rng.integers(0, 4, 2)}
            | ({int(label)} if rng.random() < 0.7 else set())
        )
        for label in true
    ]
    rows = [
        ["|".join(map(str, labels)), *row]
        for labels, row in zip(sets, rng.normal(4 * np.eye(4)[true]).tolist(), strict=True)
    ]
    source = TableSource(write_csv(tmp_path / "t.csv", ["candidates", *"abcd"], rows))
    settings = replace(QUICK, rebalancer="none", folds=0, truth_missing="auto")
    whole = trained(tmp_path / "whole", source, settings)
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path / "cut", source, settings, progress=StopsIn("estimate 2 of 3"))
    resumed = StopsIn("")
    cut = trained(tmp_path / "cut", source, settings, progress=resumed)
    assert resumed.started[0] == "estimate 2 of 3"
    assert outcome(cut) == outcome(whole)


@pytest.mark.parametrize("part", ["comparison 2 of 6", "training", "fold 2 of 2", ""])
def test_every_file_of_a_run_is_declared_whenever_it_was_interrupted(tmp_path, part):
    source = unclear_table(tmp_path / "table.csv")
    with suppress(KeyboardInterrupt):
        trained(tmp_path / "run", source, progress=StopsIn(part))
    names = [path.name for path in (tmp_path / "run").iterdir()]
    assert names
    assert [name for name in names if not any(file.matches(name) for file in RunFile)] == []
    Run.open(tmp_path / "run").delete_run()
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["config.json"]
