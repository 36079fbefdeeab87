"""docs/migration.md: what it calls old is gone, and what it names instead exists."""

import importlib
import re

import pytest
from typer.main import get_command

from ltpll.cleaning.settings import TrainJob
from ltpll.cli import app
from ltpll.settings import settings_of
from ltpll_research.cli import app as research_app
from support.documents import ROOT

PAGE = (ROOT / "docs" / "migration.md").read_text(encoding="utf-8")


def rows_of(heading):
    """The names in code of both columns of the table below a heading."""
    section = re.search(rf"(?ms)^## {heading}\n(.*?)(?=^## |\Z)", PAGE)[1]
    found = re.findall(r"(?m)^\| (?!0\.2|---)(.+?) \| (.+?) \|$", section)
    return [tuple(re.findall(r"`([^`]+)`", cell) for cell in row) for row in found]


OLD_COMMANDS = [name for old, _ in rows_of("Commands") for name in old]
NEW_COMMANDS = [name for _, new in rows_of("Commands") for name in new if name.startswith("ltpll")]
OLD_NAMES = [name for old, _ in rows_of("Python") for name in old]
NEW_NAMES = [name for _, new in rows_of("Python") for name in new]


def options_of(words):
    """The options of the command that the words name; None if there is none."""
    command = get_command(research_app if words[0] == "ltpll-research" else app)
    for word in words[1:]:
        command = getattr(command, "commands", {}).get(word)
        if command is None or command.hidden:
            return None
    if hasattr(command, "commands"):
        return None
    return {name for one in command.params for name in (*one.opts, *one.secondary_opts)}


def exists(name):
    """Whether a dotted name can be imported, or is an attribute of what can."""
    words = name.split(".")
    for n in range(len(words), 0, -1):
        try:
            found = importlib.import_module(".".join(words[:n]))
        except ModuleNotFoundError:
            continue
        for word in words[n:]:
            if not hasattr(found, word):
                return False
            found = getattr(found, word)
        return True
    return False


@pytest.mark.parametrize("line", OLD_COMMANDS)
def test_an_old_command_or_option_is_gone(line):
    if line == "train --config":  # of another format
        return
    *command, option = line.split() if "--" in line else [*line.split(), None]
    options = options_of(["ltpll", *command])
    assert options is None or (option is not None and option not in options)


@pytest.mark.parametrize("line", NEW_COMMANDS)
def test_a_new_command_option_or_setting_exists(line):
    words = line.split()
    options = [word for word in words if word.startswith("--")]
    command = words[: words.index(options[0])] if options else words
    known = options_of(command)
    assert known is not None
    assert set(options) <= known
    if options == ["--set"]:
        assert words[-1].partition("=")[0] in settings_of(TrainJob)


def test_options_that_became_settings_have_their_names():
    for old, new in rows_of("Commands"):
        if "--set" not in " ".join(new) or old == ["train --feature-column"]:
            continue
        section = new[0].split()[-1].partition(".")[0]
        names = {one.split("--")[1].replace("-", "_") for one in old} - {"extra"}
        assert {f"{section}.{name}" for name in names} <= set(settings_of(TrainJob))


@pytest.mark.parametrize("name", OLD_NAMES)
def test_an_old_name_is_gone(name):
    assert not exists(name)


@pytest.mark.parametrize("name", NEW_NAMES)
def test_a_new_name_exists(name):
    assert exists(name)


def test_the_tables_are_read():
    assert len(OLD_COMMANDS) > 50
    assert len(OLD_NAMES) > 10
    assert not exists("ltpll.no_such_name")
    assert not exists("no_such_package.name")
    assert options_of(["ltpll", "data", "describe"]) is None
