"""The files that commands write: never an input, or another kind of file."""

import inspect

import pytest

from ltpll.cli.outputs import OUTPUTS
from support.commands import research_here as research


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["bench", "engine", "--json", "t.csv"], "must end in .json"),
        (["tsne", "run", "--out", "other.csv"], "must end in .png"),
        (["compare", "run", "--out", "other.csv"], "must end in .html, .htm, .png"),
    ],
    ids=" ".join,
)
def test_no_command_overwrites_another_kind_of_file(tmp_path, monkeypatch, arguments, expected):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("mine")
    assert expected in research(*arguments, status=2)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


def test_every_command_that_writes_files_checks_where():
    from ltpll_research.cli import app

    def commands(app):
        yield from (each.callback for each in app.registered_commands)
        for group in app.registered_groups:
            yield from commands(group.typer_instance)

    checked = {
        each.__name__: "check_outputs(context" in inspect.getsource(each)
        for each in commands(app)
        if set(inspect.signature(each).parameters) & set(OUTPUTS)
    }
    assert [name for name, checks in checked.items() if not checks] == [
        "benchmark",
        "train",
    ]  # which write to folders that they name
    assert len(checked) > 5
