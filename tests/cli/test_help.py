"""Help is fast and grouped, and shows the defaults that the library uses."""

import re
import subprocess
import sys
from dataclasses import fields

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from ltpll.cleaning.dataset import TableSource
from ltpll.cleaning.pipeline import TrainingSettings
from ltpll.cli import app
from ltpll.tables.reading import Reading
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
    app(["--help"])
except SystemExit:
    pass
print({HEAVY} & sys.modules.keys())
"""


def test_help_imports_no_heavy_library():
    result = subprocess.run(
        [sys.executable, "-c", START], capture_output=True, text=True, check=True
    )
    assert "First steps" in result.stdout
    assert result.stdout.strip().splitlines()[-1] == "set()"


OWN = "method rebalancer prior goal model views epochs batch_size lr precision seed folds finetune on_error "
OWN += "candidates separator id path split"


@pytest.mark.parametrize(
    ("command", "dataclasses", "names"),
    [
        ("train", (TrainingSettings, TableSource, Reading), OWN),
        ("data describe", (Reading,), "separator"),
    ],
    ids=["train", "data describe"],
)
def test_help_shows_the_defaults_of_the_library(command, dataclasses, names):
    lines = lines_of(*command.split())
    defaults = {one.name: one.default for cls in dataclasses for one in fields(cls)}
    for name in names.split():
        assert f"[default: {defaults[name]}]" in lines["--" + name.replace("_", "-")]


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
    assert {"data", "train", "clean", "report", "review", "predict"} <= set(listed)


def test_a_table_on_the_command_line_overrides_the_one_in_the_config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text("data: other.csv\nepochs: 1\nfolds: 0\n")
    (tmp_path / "t.csv").write_text("id,candidates,u\na,x|y,1\nb,y,2\nc,x,3\n")
    ltpll("train", "t.csv", "--config", "c.yaml", "--device", "cpu", "--out", "run")
    assert (tmp_path / "run" / "done").exists()
