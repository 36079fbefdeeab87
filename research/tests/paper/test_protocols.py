"""The protocols of the systems: their runs, how rows name them, and what fewer epochs leave."""

import json
import re

import pytest

from ltpll.methods import METHODS
from ltpll.training.trainer import STEP_FACTOR, step_rate
from ltpll_research.benchmark import Experiment, build_trainer, draw_problem
from ltpll_research.paper.catalog import CIFAR10, CIFAR100, ITEMS, published, with_equal_lengths
from ltpll_research.paper.grid import (
    Finished,
    experiment_of,
    experiments,
    parse_settings,
    shortened,
)
from ltpll_research.paper.protocols import PROTOCOLS
from support.commands import research, research_here
from support.pictures import coloured_images


def lines(label):
    return [line for line in ITEMS["systems"].lines if line.label == label]


def experiment(label, column=CIFAR10):
    (line,) = lines(label)
    cell = next(cell for cell in line.cells if cell.setting["data"] == column["data"])
    return experiment_of(cell.setting, {}, 0)


@pytest.mark.parametrize(
    ("label", "column", "epochs", "estimation", "views", "milestones"),
    [
        ("solar, prior estimation, then 800 epochs", CIFAR10, 900, 100, "paper", ()),
        ("solar, prior estimation, then 800 epochs", CIFAR100, 820, 20, "paper", ()),
        (
            "solar + la, SoLar's protocol, prior estimation, then 1000 epochs",
            CIFAR10,
            1100,
            100,
            "flip-crop",
            (701, 801, 901),
        ),
        (
            "solar, SoLar's protocol, prior estimation, then 1000 epochs",
            CIFAR100,
            1020,
            20,
            "flip-crop",
            (701, 801, 901),
        ),
        ("htc, HTC's protocol", CIFAR10, 800, 0, "flip-crop", (701,)),
        ("htc", CIFAR100, 800, 0, "paper", ()),
        ("deacon, DEACON's protocol, 850 epochs", CIFAR10, 850, 0, "flip-crop", (701,)),
        ("pico", CIFAR10, 800, 0, "paper", ()),
        ("corr + records", CIFAR10, 800, 0, "paper", ()),
    ],
)
def test_every_system_is_trained_as_it_was_published(
    label, column, epochs, estimation, views, milestones
):
    made = experiment(label, column)
    method = METHODS[made.method](**made.options.get(made.method, {}))
    assert (made.epochs, made.views, made.milestones) == (epochs, views, milestones)
    assert made.schedule == ("step" if milestones else "cosine")
    assert method.restart(epochs) == estimation
    assert (made.lr, made.batch_size, made.weight_decay) == (0.01, 256, 1e-3)


@pytest.mark.parametrize(
    ("label", "ends"),
    [
        ("solar, SoLar's protocol, prior estimation, then 1000 epochs", (700, 800, 900)),
        ("htc, HTC's protocol", (700, 800)),
        ("deacon, DEACON's protocol, 850 epochs", (700, 850)),
    ],
)
def test_learning_rates_fall_where_the_authors_code_lowers_them(label, ends):
    """Their code multiplies the rate by 0.1 for every number that the epoch, from 0, exceeds."""
    made = experiment(label)
    epochs = made.epochs - METHODS[made.method]().restart(made.epochs)
    rates = [step_rate(epoch, made.milestones, made.lr) for epoch in range(epochs)]
    theirs = [0.01 * 0.1 ** sum(epoch > end for end in ends) for epoch in range(epochs)]
    assert rates == pytest.approx(theirs)


def test_the_published_numbers_are_those_of_each_protocol():
    numbers = {line.label: line.cells[0].published for line in ITEMS["systems"].lines}
    assert numbers["solar, SoLar's protocol, prior estimation, then 1000 epochs"] == 74.16
    assert numbers["solar + la, SoLar's protocol, prior estimation, then 1000 epochs"] == 80.88
    assert numbers["deacon, DEACON's protocol, 850 epochs"] == 85.78
    table = published()["mixup"]
    (printed,) = [row["values"] for row in table["rows"] if row["method"] == "solar"]
    (solar,) = lines("solar, prior estimation, then 800 epochs")
    assert [cell.published for cell in solar.cells] == [
        printed[table["columns"].index(column)] for column in (CIFAR10, CIFAR100)
    ]


def test_systems_share_their_runs_with_the_tables_of_the_paper():
    shared = [dict(setting) for setting in ITEMS["mixup"].settings]
    (solar,) = lines("solar, prior estimation, then 800 epochs")
    assert all(dict(cell.setting) in shared for cell in solar.cells)


@pytest.mark.parametrize("item", ITEMS.values(), ids=list(ITEMS))
def test_rows_of_different_length_say_so(item):
    """Rows of one column with the same label are trained equally long."""
    for number in range(len(item.columns)):
        for line in item.lines:
            epochs = experiment_of(line.cells[number].setting, {}, 0).epochs
            assert epochs == Experiment.epochs or line.label.endswith(" epochs")
    assert len({line.label for line in item.lines}) == len(item.lines)


def test_the_settings_of_the_papers_own_protocol_are_the_defaults():
    assert PROTOCOLS["records"].settings_for("cifar10") == {}
    assert not [line.label for line in ITEMS["main"].lines if line.protocol != PROTOCOLS["records"]]


@pytest.mark.parametrize("protocol", PROTOCOLS.values(), ids=list(PROTOCOLS))
def test_the_summary_of_a_protocol_has_the_numbers_and_views_of_its_settings(protocol):
    system = protocol.name.removeprefix("records-") if protocol.name != "records" else "corr"
    needed, possible = set(), {Experiment.lr, STEP_FACTOR, Experiment.lr * STEP_FACTOR}
    for column in (CIFAR10, CIFAR100):
        setting = {
            **column,
            "method": system,
            "rebalancer": "none",
            **protocol.settings_for(column["data"]),
        }
        made = experiment_of(setting, {}, 0)
        estimation = METHODS[system](**made.options.get(system, {})).restart(made.epochs)
        needed |= {made.epochs - estimation, *made.milestones} | (
            {estimation} if estimation else set()
        )
        usual = Experiment("cifar10")
        of_run, of_paper = ({one.lr, one.batch_size} for one in (made, usual))
        needed |= of_run - of_paper
        if system == "alim":
            needed.add(METHODS[system](**made.options[system]).estimate_from)
        assert ("flip and crop" in protocol.summary) == (made.views == "flip-crop")
    words = re.sub(r"[A-Za-z]+-\d+", "", protocol.summary).replace(",0", "0")
    found = {float(number) for number in re.findall(r"\d+(?:\.\d+)?", words)}
    assert needed <= found <= needed | possible


# ---- fewer epochs ----------------------------------------------------------------------------


def test_with_another_number_of_epochs_milestones_and_stated_stages_keep_their_shares():
    made = experiment_of(
        {
            **CIFAR10,
            "method": "solar",
            "rebalancer": "none",
            "extras": [],
            **PROTOCOLS["solar"].settings,
        },
        {"epochs": 200},
        0,
    )
    assert (made.epochs, made.options, METHODS["solar"]().restart(200)) == (
        200,
        {},
        50,
    )  # the method's own choice, a quarter
    assert made.milestones == (105, 120, 135)  # of the 150 that remain
    hundred = {
        **CIFAR100,
        "method": "solar",
        "rebalancer": "none",
        "extras": [],
        **PROTOCOLS["solar"].settings_for("cifar100"),
    }
    fifth = shortened(hundred, 204)
    assert fifth["options"]["solar"] == {
        "estimation_epochs": 4,
        "quota": [0.2, 0.5],
        "rates": [0.05, 0.01],
    }
    assert fifth["milestones"] == [140, 160, 180]
    assert hundred["options"]["solar"]["estimation_epochs"] == 20
    assert shortened(hundred, 1020) == hundred


@pytest.mark.parametrize("epochs", [1, 2, 3, 5, 10, 37])
def test_every_row_can_be_trained_in_few_epochs(epochs):
    images = coloured_images()
    changes = {"epochs": epochs, "width": 2, "imbalance": 4}
    for made in experiments(
        ITEMS["systems"], 1, changes, parse_settings("method=solar")
    ) + experiments(ITEMS["systems"], 1, changes, parse_settings("method=htc")):
        trainer = build_trainer(made, draw_problem(made, images), device="cpu")
        assert (trainer.epochs, trainer.milestones) == (epochs, made.milestones)


def test_rows_that_are_all_trained_equally_long_do_not_state_a_length():
    labels = [line.label for line in with_equal_lengths(ITEMS["systems"]).lines]
    assert labels[:4] == [
        "solar",
        "solar + la",
        "solar, SoLar's protocol",
        "solar + la, SoLar's protocol",
    ]
    assert not any("epochs" in label for label in labels)


def test_a_change_of_the_schedule_replaces_that_of_every_protocol():
    made = experiments(ITEMS["systems"], 1, {"schedule": "cosine"}, {})
    assert {run.milestones for run in made} == {()}
    assert {run.epochs for run in made} == {800, 820, 850, 900, 1020, 1100}


def test_runs_of_two_protocols_are_not_mixed_up():
    labels = [
        "solar, prior estimation, then 800 epochs",
        "solar, SoLar's protocol, prior estimation, then 1000 epochs",
    ]
    ours, theirs = map(experiment, labels)
    finished = Finished([{"config": ours.config()}])
    assert ours in finished
    assert theirs not in finished


def test_runs_are_chosen_and_listed_by_their_protocol(tmp_path):
    result = research(
        "reproduce",
        "systems",
        "--dry-run",
        "--only",
        "schedule=step dataset=cifar10",
        "--device",
        "cpu",
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stderr
    listed = [
        line.split("missing: ")[1] for line in result.stdout.splitlines() if "missing: " in line
    ]
    assert listed == [
        "CIFAR-10-LT ρ=100 q=0.5, solar, views flip-crop, epochs 1100, schedule step, seed 0",
        "CIFAR-10-LT ρ=100 q=0.5, htc, views flip-crop, schedule step, seed 0",
        "CIFAR-10-LT ρ=100 q=0.5, deacon, views flip-crop, epochs 850, schedule step, seed 0",
    ]


def test_runs_with_the_authors_draw_are_named_by_it(tmp_path):
    changes = ["--set", "draw=authors", "--only", "dataset=cifar10 method=htc schedule=step"]
    result = research(
        "reproduce", "systems", "--dry-run", *changes, "--device", "cpu", cwd=tmp_path
    )
    assert "htc, views flip-crop, schedule step, draw authors, seed 0" in result.stdout


def test_a_table_with_runs_of_another_protocol_explains_it_below(tmp_path, monkeypatch):
    figures = {
        "balanced_accuracy": 0.7,
        "per_class": [0.7],
        "many": 0.7,
        "medium": None,
        "few": None,
    }
    rows = dict.fromkeys(("test", "la"), figures)
    best = {row: {"epoch": 1, row: figures} for row in rows}
    for key, label in (
        ("a", "solar, SoLar's protocol, prior estimation, then 1000 epochs"),
        ("b", "corr + records"),
    ):
        record = {
            "format": "ltpll-run-1",
            "key": key,
            "config": experiment(label).config(),
            "posthoc": ["la"],
            "last": rows,
            "best": best,
        }
        (tmp_path / "kept").mkdir(exist_ok=True)
        (tmp_path / "kept" / f"{key}.json").write_text(json.dumps(record))
    (tmp_path / "kept" / "audit.json").write_text('{"format": "ltpll-audit-1"}')  # not a record
    monkeypatch.chdir(tmp_path)
    message = research_here(
        "reproduce", "systems", "--dry-run", "--results", ".", "--device", "cpu", status=2
    )
    assert message.startswith("There are no results directly in .: give the folder that holds them")
    shown = research_here(
        "reproduce", "systems", "--dry-run", "--results", "kept", "--device", "cpu"
    )
    assert (
        f"SoLar's protocol, prior estimation, then 1000 epochs: {PROTOCOLS['solar'].summary}."
        in shown
    )
    assert PROTOCOLS["htc"].summary not in shown
