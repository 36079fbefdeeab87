"""docs/get-started.md: every kind of table that it shows is trained on by the command below it; and
what comes out is explained in docs/own-data.md.
"""

import io
import re
import shlex
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from ltpll.cleaning.results import class_columns, cleaned_columns
from support.cleaned_tables import cleaned_table
from support.commands import ltpll_here as ltpll
from support.documents import ROOT
from support.tiny_backbones import make_efficientnets_shallow, write_efficientnet

PAGE = (ROOT / "docs" / "get-started.md").read_text(encoding="utf-8")
KINDS = re.findall(
    r"(?ms)^### (?P<title>[^\n]+)\n.*?^```csv\n(?P<table>.*?)^```\n.*?^```\n(?P<command>ltpll .*?)\n```",
    PAGE,
)
QUICK = ["--epochs", 1, "--folds", 0, "--device", "cpu"]
SAID = {
    "Numbers and categories": "(4 columns: 1 category, 1 date, 2 numbers), 3 classes",
    "Text": "(2 columns: 2 texts), 4 classes",
    "Photos": "3 classes",
    "Several annotators": "(2 features), 3 classes",
}


def larger(table, folder):
    """The rows of a table many times, each a little different, and the pictures that they name."""
    shown = pd.read_csv(io.StringIO(table))
    rng = np.random.default_rng(0)
    parts = []
    for k in range(15):
        part = shown.copy()
        for name, column in part.items():
            if name == "id":
                part[name] = column + f"-{k}"
            elif name == "path":
                part[name] = [path.replace(".jpg", f"-{k}.jpg") for path in column]
            elif name == "seen":
                part[name] = (pd.to_datetime(column) + pd.Timedelta(days=k)).dt.strftime("%Y-%m-%d")
            elif name in ("subject", "body"):
                part[name] = [f"{text} Number {k} of {i}" for i, text in enumerate(column)]
            elif column.dtype.kind == "f":
                part[name] = (column + rng.normal(0, 0.1, len(column))).round(3)
        parts.append(part)
    found = pd.concat(parts)
    for path in found.get("path", []):
        (folder / "photos" / path).parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 255, (40, 40, 3), dtype=np.uint8)).save(
            folder / "photos" / path
        )
    return found


def test_four_kinds_are_shown():
    assert [title for title, _, _ in KINDS] == list(SAID)


@pytest.mark.parametrize(("title", "table", "command"), KINDS, ids=[kind[0] for kind in KINDS])
def test_the_command_of_a_kind_of_table_trains_on_it(title, table, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LTPLL_CACHE", str(tmp_path / "cache"))
    program, train, name, *words = shlex.split(command)
    assert (program, train) == ("ltpll", "train")
    if "efficientnet-lite0" in words:  # a small one of the kind is faster
        make_efficientnets_shallow(monkeypatch)
        write_efficientnet(tmp_path / "small.safetensors")
        words[words.index("efficientnet-lite0")] = tmp_path / "small.safetensors"
    larger(table, tmp_path).to_csv(name, index=False)
    said = ltpll(train, name, *words, *QUICK)
    assert SAID[title] in said
    assert "Next: ltpll clean run" in said
    assert ("NEW.csv --images FOLDER" in said) == ("--images" in words)


def test_a_folder_for_each_set_needs_no_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (folder,) = set(re.findall(r"`ltpll train (photos)`", PAGE))
    names = re.findall(r"`photos/([^`]+)`", PAGE)
    assert len(names) == 2
    for name in names:
        (tmp_path / folder / name).mkdir(parents=True)
        for k in range(20):
            Image.new("RGB", (16, 16), (k, 99, 7)).save(tmp_path / folder / name / f"{k}.png")
    said = ltpll("train", folder, *QUICK, "--set", "data.side=8", "--out", "run")
    assert "40 examples" in said
    assert "2 classes, 1.5 candidates per set" in said


def test_your_own_data_explains_every_column_that_clean_writes():
    page = (ROOT / "docs" / "own-data.md").read_text(encoding="utf-8")
    section = re.search(r"(?ms)^## What I get\n(.*?)^## ", page)[1]
    tables = re.findall(r"(?m)^\| column \| what it says \|\n((?:\|.*\n)+)", section)
    rows, classes = (set(re.findall(r"(?m)`(\w+)`(?=[^|]*\|.*\|$)", one)) for one in tables)
    table = cleaned_table()
    record = {**table.record, "information_by_class": [0.0] * len(table.classes)}
    written = class_columns(replace(table, record=record))
    assert classes == set(written) - {"class"}
    known = {"id", "candidates", "votes", "true_label", "split", "path", "group", "reviewed"}
    assert set(cleaned_columns(table)) - known <= rows
