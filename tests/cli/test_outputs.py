"""The files that commands write: never a file of a run, an input, or another kind of file."""

import inspect
import json
import os
import shutil
from pathlib import Path

import pytest
import typer

from ltpll.cli.outputs import OUTPUTS
from support.commands import ltpll_here as ltpll
from support.user_tables import feature_rows, write_csv


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("trained")
    write_csv(folder / "t.csv", ["id", "candidates", "u", "v"], feature_rows(20))
    (folder / "tree.csv").write_text("class,parent\na,all\nb,all\nc,all\n")
    before = Path.cwd()
    os.chdir(folder)
    try:
        ltpll(
            "train",
            "t.csv",
            "--set",
            "table.taxonomy=tree.csv",
            "--epochs",
            "1",
            "--folds",
            "0",
            "--out",
            "run",
            "--device",
            "cpu",
        )
    finally:
        os.chdir(before)
    return folder


@pytest.fixture
def here(trained, tmp_path, monkeypatch):
    """The folder of a table and its run, and what is in it."""
    folder = tmp_path / "here"
    shutil.copytree(trained, folder)
    monkeypatch.chdir(folder)
    (folder / "tree.csv").unlink()
    Path("tree.csv").symlink_to(trained / "tree.csv")  # whose absolute path is in the record
    os.link("t.csv", "hard.csv")
    Path("soft.csv").symlink_to("t.csv")
    Path("page.html").symlink_to("t.csv")
    return folder


def content(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            ["report", "run", "--out", "t.csv"],
            "t.csv is the table of the run run and would be overwritten",
        ),
        (["report", "run", "--out", "other.csv"], "must end in .html, .htm"),
        (["report", "run", "--out", "page.html"], "page.html is the table of the run run"),
        (["report", "run/result.json", "--out", "run/result.json"], "is a file of the run"),
        (["report", "run", "--out", "run/../tree.csv"], "is the taxonomy of the run run"),
        (["report", "run", "--out", "folder.html"], "is a folder"),
        (["clean", "run", "--out", "run/../t.csv"], "is the table of the run run"),
        (["clean", "run", "--out", "hard.csv"], "is the table of the run run"),
        (["clean", "run", "--out", "soft.csv"], "is the table of the run run"),
        (["review", "run", "--out", "t.csv"], "is the table of the run run"),
        (["predict", "run", "new.csv", "--out", "./new.csv"], "is an input of this command"),
        (
            ["predict", "run", "t.csv", "--features", "f.csv", "--out", "f.csv"],
            "is an input of this command",
        ),
        (["export", "run", "--onnx", "t.csv"], "is the table of the run run"),
        (["export", "run", "--onnx", "model.csv"], "must end in .onnx"),
    ],
    ids=" ".join,
)
def test_no_command_overwrites_an_input_a_run_or_another_kind_of_file(here, arguments, expected):
    (here / "folder.html").mkdir()
    for name in ("f.csv", "f.classes.csv", "new.csv"):
        shutil.copy("tree.csv", name)
    before = content(here)
    assert expected in ltpll(*arguments, status=2)
    assert content(here) == before


def test_the_table_of_a_run_is_known_from_another_folder(here, tmp_path, monkeypatch):
    before = content(here)
    monkeypatch.chdir(tmp_path)
    assert "is the table of the run here/run" in ltpll(
        "clean", "here/run", "--out", "here/t.csv", status=2
    )
    assert content(here) == before


def test_every_command_that_writes_files_checks_where():
    from ltpll.cli import app

    def commands(app):
        yield from (each.callback for each in app.registered_commands)
        for group in app.registered_groups:
            yield from commands(group.typer_instance)

    checked = {
        each.__name__: "check_outputs(context" in inspect.getsource(inspect.unwrap(each))
        for each in commands(app)
        if set(inspect.signature(inspect.unwrap(each)).parameters) & set(OUTPUTS)
    }
    assert [name for name, checks in checked.items() if not checks] == [
        "demo",  # whose three commands check
        "train",  # a table above says what it refuses
    ]
    assert len(checked) > 7
    assert isinstance(app, typer.Typer)


def test_a_page_replaces_an_earlier_one_and_lies_in_a_new_folder_or_behind_a_link(here):
    for out in ("page/r.html", "page/r.html"):
        ltpll("report", "run", "--out", out)
    Path("latest.html").symlink_to("page/later.html")
    ltpll("report", "run", "--out", "latest.html")
    assert (here / "latest.html").is_symlink()
    assert (here / "page" / "later.html").read_text().startswith("<!doctype html>")
    Path("c.csv").symlink_to("nowhere/x.csv")
    message = ltpll("clean", "run", "--out", "c.csv", status=2)
    assert message == f"There is no folder {here / 'nowhere'} to write c.csv to: create it first."
    assert not (here / "nowhere").exists()
    assert json.loads((here / "run" / "config.json").read_text())["experiment"] == "own"
