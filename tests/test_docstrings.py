"""Every example in a docstring of src/ltpll runs, and prints what it shows."""

import doctest
import importlib
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import ltpll
from ltpll import extras, methods, rebalancers, synthetic
from ltpll.cleaning.dataset import TableSource, read_examples
from ltpll.cleaning.pipeline import TrainingSettings, table_run, train_table_run
from support.user_tables import feature_rows, write_csv

SRC = Path(ltpll.__file__).parents[1]
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
MOST_SKIPPED = 5  # examples that need a file, a GPU or the network that no test has

# What a reader of an example is told to import first (docs/reference/index.md).
ASSUMED = {
    name: getattr(package, name)
    for package in (ltpll, methods, rebalancers, extras, synthetic)
    for name in package.__all__
}
ASSUMED |= {"np": np, "torch": torch, "nn": torch.nn, "Path": Path}


def files_with_examples():
    found = {file.relative_to(SRC).as_posix(): file for file in sorted(SRC.rglob("*.py"))}
    return [name for name, file in found.items() if ">>> " in file.read_text(encoding="utf-8")]


FILES = files_with_examples()


def docstrings(file):
    """The docstrings of a module that have examples, each with the names that a reader has: those
    assumed and the module's own.
    """
    module = importlib.import_module(
        file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    )
    own = {
        name: value
        for name, value in vars(module).items()
        if getattr(value, "__module__", None) == module.__name__
    }
    found = doctest.DocTestFinder(exclude_empty=True).find(
        module, extraglobs=None, globs=ASSUMED | own
    )
    return [one for one in found if one.examples]


@pytest.fixture(scope="session")
def finished_run(tmp_path_factory):
    """A folder with birds.csv and its finished run in ltpll-runs/birds."""
    folder = tmp_path_factory.mktemp("documented")
    table = write_csv(folder / "birds.csv", ["id", "candidates", "x", "y"], feature_rows())
    source, settings = TableSource(table), TrainingSettings(epochs=1, folds=2)
    examples = read_examples(source)
    train_table_run(
        table_run(folder / "ltpll-runs" / "birds", settings, examples), source, examples, settings
    )
    return folder


@pytest.fixture
def reader(tmp_path, monkeypatch):
    """The current folder, with two pictures in photos/ and a table in birds.csv."""
    (tmp_path / "photos").mkdir()
    for name, grey in (("a.jpg", 50), ("b.jpg", 200)):
        Image.new("RGB", (24, 16), (grey, grey, grey)).save(tmp_path / "photos" / name)
    write_csv(tmp_path / "birds.csv", ["id", "candidates", "x", "y"], feature_rows())
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("file", FILES)
def test_examples_run_and_print_what_they_show(file, reader, request):
    runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
    printed = []
    for docstring in docstrings(file):
        if "ltpll-runs" in docstring.docstring and not Path("ltpll-runs").exists():
            shutil.copytree(request.getfixturevalue("finished_run"), reader, dirs_exist_ok=True)
        runner.run(docstring, out=printed.append)
    assert not runner.failures, "".join(printed)


def test_hardly_any_example_is_skipped():
    text = "".join((SRC / file).read_text(encoding="utf-8") for file in FILES)
    assert text.count("+SKIP") <= MOST_SKIPPED
