"""Help shows the defaults of experiments, imports no heavy library, and names `ltpll train`."""

import re
import subprocess
import sys
from dataclasses import fields

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from ltpll_research.benchmark import RECIPES, Experiment
from ltpll_research.cli import app
from support.commands import research_here as research

HEAVY = {"torch", "numpy", "pandas", "pyarrow", "sklearn", "scipy", "PIL", "matplotlib", "plotly"}
IMAGES = "imbalance ambiguity method rebalancer epochs seed"


def lines_of(*command):
    """The line of every option in the help of a command."""
    result = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert result.exit_code == 0, result.output
    return dict(re.findall(r"^\W*(--[a-z-]+)(.*)$", result.output, re.M))


def all_commands(group, path=()):
    for name, command in group.commands.items():
        yield from (
            all_commands(command, (*path, name))
            if hasattr(command, "commands")
            else [((*path, name), command)]
        )


START = f"""
import sys
from ltpll_research.cli import app
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
    assert "reproduce" in result.stdout
    assert result.stdout.strip().splitlines()[-1] == "set()"


COMMANDS = list(all_commands(get_command(app)))


@pytest.mark.parametrize(
    ("path", "command"), COMMANDS, ids=[" ".join(path) for path, _ in COMMANDS]
)
def test_every_option_has_a_help_text_and_every_command_a_summary(path, command):
    assert command.help
    for option in command.params:
        assert option.help or option.name == "help", option.name


def test_help_shows_the_defaults_of_the_library():
    lines = lines_of("benchmark")
    defaults = {one.name: one.default for one in fields(Experiment)}
    for name in IMAGES.split():
        assert f"[default: ({defaults[name]})]" in lines["--" + name.replace("_", "-")]


def test_help_lists_every_recipe():
    shown = lines_of("benchmark")["--recipe"]
    assert all(name in shown for name in RECIPES)


def test_help_shows_the_default_of_a_pair_of_flags():
    assert (
        f"[default: ({'superclass' if Experiment.superclass else 'uniform'})]"
        in lines_of("benchmark")["--superclass"]
    )


def test_an_image_set_that_does_not_exist_is_named_with_what_was_meant():
    assert research("benchmark", "cifar11", status=2).startswith(
        "There is no image set 'cifar11'. Did you mean 'cifar10'?"
    )
