"""Which runs an item needs, and which are done."""

import json

import pytest

from ltpll.errors import InputError, UnknownNameError
from ltpll.extras import EXTRAS
from ltpll.methods import METHODS
from ltpll.runs.run import marker_text
from ltpll_research.benchmark import Experiment
from ltpll_research.paper.catalog import ITEMS
from ltpll_research.paper.grid import Finished, experiments, parse_grid, parse_settings
from support.commands import research_here
from support.refusals import refusal


def record(seconds=10.0, hardware="a card", **settings):
    config = Experiment.from_mapping({"data": "cifar10", **settings}).config()
    return {"config": config, "environment": {"hardware": hardware}, "seconds": seconds}


def test_every_setting_with_the_first_seed_comes_before_any_with_the_second():
    runs = experiments(ITEMS["main"], 2, {}, {})
    assert [run.seed for run in runs] == [0] * 156 + [1] * 156
    assert len({json.dumps(run.config(), sort_keys=True) for run in runs}) == 312


def test_a_choice_and_changes_reach_the_runs():
    runs = experiments(
        ITEMS["main"],
        1,
        {"epochs": 5},
        parse_settings("dataset=cifar100 rho=50 q=0.05 method=corr"),
    )
    assert {(run.data, run.imbalance, run.ambiguity, run.method, run.epochs) for run in runs} == {
        ("cifar100", 50.0, 0.05, "corr", 5)
    }
    assert {run.rebalancer for run in runs} == {"none", "oracle-la", "records"}


def test_rows_that_are_not_built_are_left_out(monkeypatch):
    monkeypatch.setattr(
        "ltpll_research.paper.grid.METHODS",
        {name: cls for name, cls in METHODS.items() if name != "solar"},
    )
    monkeypatch.setattr(
        "ltpll_research.paper.grid.EXTRAS",
        {name: cls for name, cls in EXTRAS.items() if name != "bcl"},
    )
    assert ("bcl",) not in {run.extras for run in experiments(ITEMS["baselines"], 1, {}, {})}
    assert "solar" not in {run.method for run in experiments(ITEMS["mixup"], 1, {}, {})}


@pytest.mark.parametrize(
    ("text", "message", "kind"),
    [
        ("cifar10", "name=value", InputError),
        ("qq=1", "no setting 'qq'", UnknownNameError),
        ("q=many", "ambiguity is 'many': it must be a number", InputError),
        ("superclass=1", "it must be true or false", InputError),
        ("milestones=700,many", "it must be a whole number, or a list of such", InputError),
    ],
)
def test_an_invalid_choice_is_refused(text, message, kind):
    assert message in refusal(lambda: parse_settings(text), kind)


def test_a_choice_is_read_as_the_type_of_its_setting():
    assert parse_settings("superclass=true extras=mixup,sfn epochs=3 lr=1 milestones=1,2") == {
        "superclass": True,
        "extras": ("mixup", "sfn"),
        "epochs": 3,
        "lr": 1.0,
        "milestones": (1, 2),
    }


def test_a_finished_run_counts_whatever_its_precision_and_however_numbers_are_written():
    finished = Finished([record(precision="bfloat16", imbalance=100)])
    assert Experiment.from_mapping({"data": "cifar10", "imbalance": 100.0}) in finished
    assert Experiment.from_mapping({"data": "cifar10", "imbalance": 50}) not in finished


def test_a_run_of_an_earlier_edition_is_not_done_but_is_found_until_a_newer_one_is():
    new, old = record(seconds=2.0), record(seconds=1.0, edition=1)
    wanted = Experiment("cifar10")
    assert wanted not in Finished([old])
    assert Finished([old]).newest([wanted]) == [old]
    assert Finished([old, new]).newest([wanted]) == [new]
    assert Finished([]).newest([wanted]) == []


def test_of_two_records_of_one_experiment_the_first_counts():
    assert (
        Finished([record(seconds=1.0), record(seconds=2.0)]).get(Experiment("cifar10"))["seconds"]
        == 1.0
    )


def test_finished_runs_are_found_in_folders_of_runs_and_of_results(tmp_path):
    def write(path, **settings):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(
            json.dumps(
                {"format": "ltpll-run-1", "key": path.parent.name, **record(**settings), **figures}
            )
        )

    judged = {
        "balanced_accuracy": 0.5,
        "per_class": [0.5],
        "many": 0.5,
        "medium": None,
        "few": None,
    }
    figures = {"last": {"test": judged}, "best": {"test": {"test": judged}}}

    write(tmp_path / "runs" / "a" / "result.json", seed=0)
    (tmp_path / "runs" / "a" / "done").write_bytes(
        marker_text(tmp_path / "runs" / "a", ["result.json"])
    )
    write(tmp_path / "runs" / "b" / "result.json", seed=1)  # has no done marker
    write(tmp_path / "kept" / "c.json", seed=2)
    finished = Finished.under(tmp_path / "runs", tmp_path / "kept", tmp_path / "nothing")
    assert [
        Experiment.from_mapping({"data": "cifar10", "seed": seed}) in finished for seed in range(3)
    ] == [True, False, True]


def test_a_grid_has_every_combination_with_all_settings_of_a_seed_together():
    found = parse_grid("method=corr,proden seed=0-1,7 extras=mixup,sfn lr=0.1")
    assert [(one["seed"], one["method"]) for one in found] == [
        (seed, method) for seed in (0, 1, 7) for method in ("corr", "proden")
    ]
    assert {(one["extras"], one["lr"]) for one in found} == {(("mixup", "sfn"), 0.1)}
    assert "seed is '4-2'" in refusal(lambda: parse_grid("seed=4-2"))
    assert "seed is '0-99999999'" in refusal(lambda: parse_grid("seed=0-99999999"))


def test_set_cannot_replace_what_a_row_or_column_is(tmp_path):
    message = research_here("reproduce", "main", "--set", "imbalance=10", status=2)
    assert "--only imbalance=VALUE" in message
