"""docs/methods: every built-in part is documented whole, its page is up to date, and what the page
tells users to run runs.
"""

import inspect
import json
import re
import shlex
import tomllib
from pathlib import Path

import numpy as np
import pytest
import typer

from ltpll import PartialLabelClassifier, cli
from ltpll.candidates import Candidates
from ltpll.cleaning.pipeline import TrainingSettings
from ltpll.parts import build_parts
from ltpll.settings import with_settings
from ltpll_research import cli as research_cli
from ltpll_research.benchmark import Experiment
from tools import render_methods

ROOT = Path(__file__).resolve().parents[1]
PARTS = {part.info.name: part for part in render_methods.documented()}
PROGRAMS = {"ltpll": cli.app, "ltpll-research": research_cli.app}
ALL_PARTS = pytest.mark.parametrize("name", list(PARTS))
SETS = [[0, 1], [1], [0, 2], [2]] * 5


def page(name):
    return (ROOT / "docs" / "methods" / f"{name}.md").read_text(encoding="utf-8")


def code_block(name, language):
    return re.search(rf"```{language}\n(.*?)```", page(name), re.S)[1]


def test_pages_are_what_the_classes_and_the_records_say(capsys):
    assert render_methods.main(["--check"]) == 0, capsys.readouterr().out


def test_stale_pages_are_named_then_written_and_those_without_a_part_are_deleted(
    tmp_path, monkeypatch, capsys
):
    update = render_methods.update
    monkeypatch.setitem(update.__globals__, "ROOT", tmp_path)
    (tmp_path / "kept.md").write_text("new")
    (tmp_path / "gone.md").write_text("old")
    wanted = {
        tmp_path / "kept.md": "new",
        tmp_path / "folder" / "added.md": "new",
        tmp_path / "gone.md": None,
    }
    assert update(wanted, check=True) == 1
    assert capsys.readouterr().out == "out of date: folder/added.md, gone.md\n"
    assert update(wanted, check=False) == 0
    assert {
        str(path.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("*.md")
    } == {
        "kept.md": "new",
        "folder/added.md": "new",
    }
    assert update(wanted, check=True) == 0


@ALL_PARTS
def test_every_part_states_its_formula(name):
    part = PARTS[name]
    stated = re.findall(r"^(\w+) +(?:=|from)", part.sections["Formula"], flags=re.M)
    expected = {
        "method": {"loss", "targets"},
        "rebalancer": {"targets", "prediction"},
        "extra": {"term"},
    }[part.info.kind]
    assert expected <= set(stated) or part.sections["Formula"].startswith("as `anchor`")


@ALL_PARTS
def test_every_option_of_the_constructor_is_explained_and_no_other(name):
    part = PARTS[name]
    constructor = inspect.signature(part.cls.__init__).parameters.values()
    options = [
        p.name for p in constructor if p.name != "self" and p.kind is p.POSITIONAL_OR_KEYWORD
    ]
    assert list(part.arguments) == options
    assert all(meaning.endswith(".") for meaning in part.arguments.values())


@ALL_PARTS
def test_the_example_makes_a_classifier_with_the_part(name):
    part = PARTS[name]
    *setup, last = code_block(name, "python").replace("\n# ", " # ").strip().splitlines()
    space = {"X": np.random.default_rng(0).normal(size=(20, 2)), "sets": Candidates.of(SETS)}
    exec("\n".join(setup), space)
    made = eval(last.removeprefix("classifier = "), space)
    if not isinstance(made, PartialLabelClassifier):
        assert repr(made) == last.partition(" # ")[2]
        return
    method, rebalancer, extras = build_parts(made.method, made.rebalancer, made.extras)
    (own,) = [each for each in (method, rebalancer, *extras) if type(each) is part.cls]
    assert {key: own.get_params()[key] for key in part.example_options} == part.example_options


@ALL_PARTS
def test_the_commands_parse_and_build_the_part_with_the_options_of_the_config_file(name):
    config = {}
    if "```toml" in page(name):
        config = tomllib.loads(code_block(name, "toml"))["training"]["options"]
    for line in code_block(name, "sh").splitlines():
        program, command, *arguments = shlex.split(line)
        given = (
            typer.main.get_command(PROGRAMS[program])
            .commands[command]
            .make_context(command, arguments)
            .params
        )
        chosen = {key: given[key] for key in ("method", "rebalancer") if given[key]}
        extras = [word.partition("=")[2] for word in given.get("set_") or ()] + (
            given.get("extra") or []
        )
        chosen |= {"extras": tuple(extras), "options": config}
        if command == "train":
            settings, known = with_settings(TrainingSettings, chosen), {}
        else:
            settings, known = (
                Experiment.from_mapping({"data": given["data"], **chosen}),
                {"class_frequencies": [600, 300, 10]},
            )
        method, rebalancer, extras = build_parts(
            settings.method, settings.rebalancer, settings.extras, settings.options, **known
        )
        (own,) = [each for each in (method, rebalancer, *extras) if each.name == name]
        for option, value in config.get(name, {}).items():
            assert own.get_params()[option] == value
        assert rebalancer.name == "none" or not method.why_no_rebalancer


def test_a_part_counts_as_measured_if_and_only_if_a_record_names_it():
    named = set()
    for path in (ROOT / "results").rglob("*.json"):
        record = json.loads(path.read_text(encoding="utf-8"))
        config = record.get("config", {})
        if "tried" not in record:
            named |= {
                config.get("method"),
                config.get("rebalancer"),
                *config.get("extras", ()),
                *record.get("posthoc", ()),
            }
        named |= set(str(record.get("row", "")).split("+")) | {record.get("trained_with")}
    assert {name for name in PARTS if "Not measured yet." not in page(name)} == named & set(PARTS)


def test_the_figures_of_a_page_are_means_over_the_records():
    runs = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in (ROOT / "results" / "digits").glob("*.json")
    ]
    own = [
        run
        for run in runs
        if (run["config"]["method"], run["config"]["rebalancer"]) == ("proden", "records")
    ]
    accuracies = [100 * run["last"]["test"]["balanced_accuracy"] for run in own]
    recovered = [100 * run["last"]["target_recovery"] for run in own]
    figures = " | ".join(
        f"{np.mean(values):.1f} ± {np.std(values, ddof=1):.1f}"
        for values in (accuracies, recovered)
    )
    (row,) = [
        line
        for line in page("records").splitlines()
        if line.startswith("| proden + records | handwritten digits")
    ]
    assert f"| {len(own)} | {figures} | [studies](../studies.md) |" in row


@pytest.mark.parametrize("name", ["index", *PARTS])
def test_links_of_a_page_lead_to_pages(name):
    folder = ROOT / "docs" / "methods"
    for target in re.findall(r"\]\((?!https?://)([^)#]+)[^)]*\)", page(name)):
        assert (folder / target).exists(), target
    assert name == "index" or f"({name}.md)" in page("index")
