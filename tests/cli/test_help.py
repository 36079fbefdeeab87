"""Help is fast and grouped, and shows the defaults that the library uses."""

import json
import re
import subprocess
import sys

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from ltpll.cleaning.settings import FRONT, TrainJob
from ltpll.cli import app
from ltpll.part_info import built_in_parts
from ltpll.parts import describe_parts
from ltpll.settings import settings_of
from support.commands import ltpll_here as ltpll

HEAVY = {"torch", "numpy", "pandas", "pyarrow", "sklearn", "scipy", "PIL", "matplotlib", "plotly"}


def help_of(*command):
    """The help of a command on a wide terminal."""
    result = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert result.exit_code == 0, result.output
    return result.output


def lines_of(*command):
    """The line of every option in the help of a command."""
    found = re.findall(r"^\W*(--[a-z-]+)(.*)$", help_of(*command), re.M)
    assert found
    return dict(found)


def all_commands(group, path=()):
    for name, command in group.commands.items():
        yield from (
            all_commands(command, (*path, name))
            if hasattr(command, "commands")
            else [((*path, name), command)]
        )


COMMANDS = [
    (path, command) for path, command in all_commands(get_command(app)) if not command.hidden
]


START = f"""
import sys
from ltpll.cli import app
try:
    app(sys.argv[1:])
except SystemExit:
    pass
print({HEAVY} & sys.modules.keys())
"""


@pytest.mark.parametrize("command", ["--help", "train --help", "list"])
def test_help_and_the_list_of_parts_import_no_heavy_library(command):
    result = subprocess.run(
        [sys.executable, "-c", START, *command.split()], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip().splitlines()[-1] == "set()"


@pytest.mark.parametrize(
    ("command", "error"),
    [
        ("train bad.csv", "Row 2 below the header of bad.csv has no candidate label"),
        ("describe bad.csv --candidates c", "bad.csv has no column called 'c'"),
    ],
)
def test_errors_in_a_table_come_before_torch_and_scikit_learn(tmp_path, command, error):
    (tmp_path / "bad.csv").write_text("id,candidates,u\na,x|y,1\nb,,2\n")
    start = START.replace("app(sys.argv[1:])", "app(sys.argv[1:], standalone_mode=False)")
    start = start.replace(
        "except SystemExit:\n    pass", "except Exception as error:\n    print(error)"
    )
    words = [sys.executable, "-c", start, *command.split()]
    said = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert error in said
    assert not re.search("torch|sklearn", said.splitlines()[-1])


def test_the_list_of_parts_is_read_from_the_source_as_it_is_imported():
    imported = [one for one in describe_parts() if one.file.startswith("ltpll/")]
    assert [vars(one) for one in built_in_parts()] == [vars(one) for one in imported]


def test_help_shows_the_defaults_of_the_settings_and_says_what_they_are():
    lines = " ".join(help_of("train").replace("│", " ").split())
    for name in FRONT:
        one = settings_of(TrainJob)[name]
        assert one.help in lines
        assert one.default in (None, ()) or f"[default: {one.default}]" in lines


def test_train_shows_at_most_26_options_and_all_commands_90():
    count = {path: len(command.params) for path, command in COMMANDS}
    arguments = {
        path: sum(one.param_type_name == "argument" for one in command.params)
        for path, command in COMMANDS
    }
    options = {path: n - arguments[path] + 1 for path, n in count.items()}  # one for --help
    assert options[("train",)] <= 26
    assert sum(options.values()) + 2 <= 90  # and --version and --help of the program


def test_an_option_that_is_a_setting_of_the_file_only_is_explained():
    message = ltpll("train", "t.csv", "--batch-size", "3", status=2)
    assert message.endswith("give it with --set training.batch_size=VALUE.")
    assert "No such option: --epoch" in ltpll("train", "t.csv", "--epoch", "3", status=2)


def test_a_written_config_lists_every_setting_and_trains(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("id,candidates,u\na,x|y,1\nb,y,2\nc,x,3\n")
    quick = ("--set", "training.lr=0.1", "--epochs", "1", "--folds", "0", "--device", "cpu")
    assert "Wrote ltpll.toml" in ltpll("train", "t.csv", *quick, "--write-config")
    text = (tmp_path / "ltpll.toml").read_text()
    assert "\nlr = 0.1\n" in text
    assert '\n# batch_size = "auto"\n' in text
    assert "exists already" in ltpll("train", "t.csv", "--write-config", status=2)
    ltpll("train", "--config", "ltpll.toml")
    config = json.loads((tmp_path / "ltpll-runs" / "t" / "config.json").read_text())
    assert (config["lr"], config["epochs"], config["folds"]) == (0.1, 1, 0)


@pytest.mark.parametrize(
    ("path", "command"), COMMANDS, ids=[" ".join(path) for path, _ in COMMANDS]
)
def test_every_option_has_a_help_text_and_every_command_a_summary(path, command):
    assert command.help
    for option in command.params:
        assert option.help or option.name == "help", option.name


def test_the_commands_of_a_users_journey_are_in_one_group():
    panel = next(
        panel
        for panel in re.split(r"(?=^(?:╭─|\+-))", help_of(), flags=re.M)
        if "Your own data" in panel
    )
    listed = re.findall(r"^\W*([a-z]+) ", panel, re.M)
    assert {"describe", "train", "clean", "report", "review", "predict"} <= set(listed)


def test_a_table_on_the_command_line_overrides_the_one_in_the_config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.toml").write_text(
        'data.table = "other.csv"\n[training]\nepochs = 1\nfolds = 0\n'
    )
    (tmp_path / "t.csv").write_text("id,candidates,u\na,x|y,1\nb,y,2\nc,x,3\n")
    ltpll("train", "t.csv", "--config", "c.toml", "--device", "cpu", "--out", "run")
    assert (tmp_path / "run" / "done").exists()
