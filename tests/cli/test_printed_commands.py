"""The commands that are printed to be copied: a shell takes every path in them for one word."""

import ast
import re
import shlex
from pathlib import Path

import pytest
from typer.main import get_command

from ltpll import cli
from ltpll.cleaning.settings import TrainJob
from ltpll.cli import app
from ltpll.settings import settings_of
from support.commands import ltpll_here as ltpll
from support.user_tables import feature_rows, write_csv

NAME = "it's mine; $(x) & more"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / NAME
    folder.mkdir()
    write_csv(folder / "a b.csv", ["id", "candidates", "u", "v"], feature_rows(60))
    return folder


def words(printed, start):
    line = next(line for line in printed.splitlines() if line.startswith(start))
    return shlex.split(line.removeprefix(start).replace("; ltpll", " ; ltpll"))


def test_every_printed_command_can_be_pasted_into_a_shell(folder):
    table, run = f"{NAME}/a b.csv", f"{NAME}/run 1"
    assert words(ltpll("demo", "--only-table", "--out", NAME), "Next: ") == [
        *("ltpll", "train", f"{NAME}/digits.csv"),
        *("--out", f"{NAME}/run"),
    ]
    quick = ("--epochs", "1", "--folds", "0", "--device", "cpu")
    assert words(ltpll("train", table, "--out", run, *quick), "Next: ").count(run) == 4
    following = words(ltpll("review", run, "--out", f"{NAME}/r v.html"), "ltpll train")
    assert following[:3] == [table, "--reviewed", f"{run}/answers.csv"]


def test_every_option_and_setting_that_a_message_names_is_one():
    """Of the words after `--` in the strings of the package, and of names such as `table.label`."""
    commands = get_command(app).commands.values()
    known = {option for each in commands for one in each.params for option in one.opts}
    known |= {"--help", "--version", "--check", "--local-dir", "--recipe"}  # of other programs
    settings = settings_of(TrainJob)
    wrong = []
    for file in sorted(Path(cli.__file__).parents[1].rglob("*.py")):
        if file.name in ("environment.py", "__init__.py"):  # options of git; names of modules
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                named = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", node.value)) - known
                found = re.findall(r"(?<![\w./])(?:data|table|training|run)\.[a-z_]+", node.value)
                named |= {one for one in found if one not in settings and "\n" not in node.value}
                wrong += [f"{file.name}:{node.lineno}: {one}" for one in sorted(named)]
    assert not wrong, "\n".join(wrong)
