"""What reports and queues show of a row: short, harmless, and where it was in the table."""

import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from ltpll import ColumnEncoder, LabelCleaner, PartialLabelClassifier
from ltpll.cleaning import stored_tables as module
from ltpll.cleaning.dataset import TableSource, read_examples
from ltpll.cleaning.stored_tables import read_cleaned, shown_values
from ltpll.report.cleaning_page import render_cleaning_page
from ltpll.tables.read_tables import LabelTable
from support.browser import in_browser, is_owned, needs_browser, payloads
from support.cleaned_tables import cleaned_table
from support.commands import ltpll_here as ltpll

N = 30
PROSE = [f"Note {i}: two foxes and a badger were seen near the old mill" for i in range(N)]


def shown(columns, doubt=None):
    lists = {
        name: pd.Series(one, dtype=object) for name, one in columns.items() if type(one) is list
    }
    frame = pd.DataFrame({**columns, **lists})
    nothing = dict.fromkeys(("candidates", "labels", "splits", "paths", "features", "votes"))
    ids = frame.index.astype(str).to_numpy(dtype=object)
    table = LabelTable(ids=ids, feature_names=(), frame=frame, **nothing)
    return shown_values(table, np.zeros(len(frame)) if doubt is None else doubt)


def test_the_longest_text_comes_first_and_then_a_few_values_as_they_were_written():
    found = shown({"n": np.arange(N) / 4, "text": PROSE, "kind": ["a", "b", None] * 10})
    assert list(found) == ["text", "n", "kind"]
    assert found["text"].tolist() == PROSE
    assert found["n"][:3].tolist() == ["0", "0.25", "0.5"]
    assert found["kind"][:3].tolist() == ["a", "b", None]
    many = shown({f"c{k}": np.arange(N) + k for k in range(10)})
    assert list(many) == [f"c{k}" for k in range(6)]


def test_embeddings_and_constant_columns_are_not_shown():
    embedding = {f"e{k}": np.arange(N) * k for k in range(30)}
    assert list(shown({**embedding, "text": PROSE, "same": ["x"] * N})) == ["text"]


def test_texts_are_cut_and_lose_what_a_terminal_or_a_spreadsheet_obeys():
    long, odd = "word " * 200_000, "\x1b[31mred\x00\r\n\u202eleft\u2066 \ud800end\ufeff"
    found = shown({"text": [long, odd] * 15, "kind": [long[:70], "b"] * 15})
    assert [len(found["text"][0]), len(found["kind"][0])] == [300, 60]
    assert found["text"][0].endswith("…")
    assert not re.search(r"[\x00-\x1f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", found["text"][1])
    assert found["text"][1].startswith("[31mred left end")


def test_of_a_large_table_the_most_doubtful_rows_are_shown(monkeypatch):
    monkeypatch.setattr(module, "MOST_ROWS", 5)
    doubt = np.random.default_rng(0).random(N)
    found = shown({"text": PROSE}, doubt)["text"]
    kept = np.flatnonzero([one is not None for one in found])
    assert sorted(kept) == sorted(np.argsort(-doubt)[:5])
    assert found[kept].tolist() == [PROSE[i] for i in kept]


@needs_browser
def test_cards_show_the_row_and_hostile_cells_and_names_do_nothing(tmp_path, listener):
    attack = "".join(payloads(listener.server_port))
    table = cleaned_table()
    cells = np.asarray([f"cell {i} {attack}" for i in range(200)], dtype=object)
    table = replace(
        table, shown={attack: cells, "a quiet column": np.full(200, None, dtype=object)}
    )
    path = tmp_path / "page.html"
    path.write_text(render_cleaning_page(table), encoding="utf-8")
    page, errors = in_browser(path, tmp_path)
    assert "CONSOLE" not in errors
    assert not is_owned(page)
    assert listener.asked == []
    assert len(re.findall(r'<p class="shown"><span><b>', page)) == page.count("<article") == 20
    assert "a quiet column" not in page


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A run on texts, one of which is longer than what is read of it."""
    folder = tmp_path_factory.mktemp("shown")
    texts = [*PROSE[:-1], "a long text " * 1000]
    columns = {"id": [f"r{i}" for i in range(N)], "candidates": ["a|b", "b", "a"] * 10}
    pd.DataFrame({**columns, "text": texts, "size": range(0, 3 * N, 3)}).to_csv(
        folder / "t.csv", index=False
    )
    said = ltpll(
        *("train", folder / "t.csv", "--out", folder / "run", "--epochs", "1", "--folds", "2"),
        *("--device", "cpu", "--rebalancer", "none"),
    )
    assert "1 text is too long to be read to the end." in said
    return folder


def test_a_run_stores_what_is_shown_and_how_many_texts_were_cut(folder, tmp_path):
    table = read_cleaned(folder / "run")
    assert table.shown["text"][:-1].tolist() == PROSE[:-1]
    assert table.shown["size"][2] == "6"
    assert "1 text is too long" in ltpll("clean", folder / "run", "--out", tmp_path / "c.csv")
    ltpll("report", folder / "run", "--out", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "<li>1 text is too long to be read to the end.</li>" in page
    data = json.loads(re.search(r'id="data">(.*?)</script>', page)[1])
    assert data["examples"][0]["shown"] == [["text", PROSE[0]], ["size", "0"]]


@pytest.mark.filterwarnings("ignore::ltpll.InputWarning")
def test_a_column_that_is_only_shown_is_part_of_what_a_run_is(folder, tmp_path):
    table, found = pd.read_csv(folder / "t.csv").drop(columns="text"), []
    for word in ("first", "other"):
        path = tmp_path / f"{word}.csv"
        table.assign(note=[f"{word}-{i}" for i in range(N)]).to_csv(path, index=False)
        found.append(read_examples(TableSource(path, encoder=ColumnEncoder())))
    np.testing.assert_array_equal(found[0].x, found[1].x)
    assert found[0].fingerprint() == found[1].fingerprint()
    assert found[0].fingerprint_of_texts() != found[1].fingerprint_of_texts()


def test_a_cleaner_shows_the_rows_of_its_table(tmp_path):
    frame = pd.DataFrame({"text": PROSE, "size": np.arange(N) % 7}, index=range(100, 100 + N))
    sets = ["a|b", "b", "a"] * 10
    how = {"steps": 20, "device": "cpu", "rebalancer": "none"}
    cleaner = LabelCleaner(PartialLabelClassifier(**how), folds=2).fit(frame, sets)
    cleaner.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert page.count('"shown": [["text", ') == N
    plain = LabelCleaner(PartialLabelClassifier(**how), folds=2).fit(
        frame[["size"]].to_numpy(), sets
    )
    assert plain.table_.shown == {}
