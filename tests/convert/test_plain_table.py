"""Files of other programs as plain tables: training reads the same from both."""

import numpy as np
import pytest

from ltpll.convert.open import read_as_plain_table, read_label_table
from ltpll.tables.reading import Reading
from ltpll.tables.writers import write_table
from support.commands import ltpll_here as ltpll
from support.labelled_json import annotation, task, written
from support.refusals import refusal
from support.user_tables import rows_of


def label_studio(names, *, truth=False):
    votes = [(7, 1, [0]), (7, 2, [1]), (7, 3, [0]), (8, 1, [0, 2]), (9, 3, [2]), (9, 2, [2])]
    tasks = []
    for number in (9, 7, 8):
        given = [
            annotation(f"ann {by}", *(names[one] for one in ones))
            for of, by, ones in votes
            if of == number
        ]
        if truth and number == 8:
            given.append(annotation("judge", names[2], ground_truth=True))
        tasks.append(task(number, f"/data/local-files/?d=photos/{number}.jpg", *given))
    return tasks


def speciesnet(names):
    scores = np.random.default_rng(0).dirichlet(np.ones(3), 20).tolist()
    return {
        "predictions": [
            {"filepath": f"{i}.jpg", "classifications": {"classes": names, "scores": row}}
            for i, row in enumerate(scores)
        ]
    }


PLAIN, ODD = ["red fox", "dog", "16"], ["a|b", "16:9", "=c, d"]
SOURCES = {
    "votes": (label_studio(PLAIN), Reading()),
    "votes of odd names": (label_studio(ODD), Reading()),
    "votes and true labels": (label_studio(PLAIN, truth=True), Reading()),
    "scores": (speciesnet(PLAIN), Reading()),
    "scores of odd names": (speciesnet(ODD), Reading()),
    "the highest scores": (speciesnet(PLAIN), Reading(top_k=2)),
}


def check_same(found, expected):
    assert found.ids.tolist() == expected.ids.tolist()
    assert found.candidates.classes == expected.candidates.classes
    for name in ("offsets", "labels", "weights", "groups"):
        one, other = (getattr(table.candidates, name) for table in (found, expected))
        assert (one is None and other is None) or np.array_equal(one, other), name
    for name in ("labels", "groups", "paths", "features"):
        one, other = (getattr(table, name) for table in (found, expected))
        assert (one is None and other is None) or np.array_equal(one, other), name
    if expected.votes is not None:
        for name in ("rows", "annotators", "labels", "names"):
            assert np.array_equal(getattr(found.votes, name), getattr(expected.votes, name)), name


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
@pytest.mark.parametrize("case", SOURCES)
def test_training_reads_the_same_from_the_source_and_from_its_table(tmp_path, case, suffix):
    content, reading = SOURCES[case]
    source, table = written(tmp_path, content), tmp_path / f"t{suffix}"
    made = read_as_plain_table(source, reading)
    write_table(table, made.columns)
    check_same(read_label_table(table, made.reading), read_label_table(source, reading))


def test_the_command_prints_how_to_train_on_its_table(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = written(tmp_path, label_studio(PLAIN, truth=True))
    printed = ltpll("convert", source, "--out", "votes.csv")
    assert "Read as a file of Label Studio." in printed
    assert "Wrote 7 rows to votes.csv: task, worker, annotation, path, label" in printed
    how = "--images FOLDER --annotators union --set table.annotation=annotation --out run"
    assert f"Next: ltpll train votes.csv {how}" in printed
    first = rows_of(tmp_path / "votes.csv")[0]
    assert (first["task"], first["worker"], first["annotation"]) == ("9", "ann 3", "16")


def test_what_is_no_file_of_another_program_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("id,candidates\n1,a|b\n")
    assert "tables are read by ltpll train as they are" in refusal(
        lambda: read_as_plain_table(tmp_path / "t.csv", Reading())
    )
    source = written(tmp_path, label_studio(PLAIN))
    for arguments, words in {
        ("t.csv", "--out", "t.csv"): "would be overwritten",
        (source, "--out", "t.json"): "must end in .csv, .tsv, .parquet",
        (source, "--top-k", "2", "--out", "x.csv"): "top_k does not apply to",
        (written(tmp_path, {"a": 1}, "x.json"), "--out", "x.csv"): "none of the JSON files",
        ("none.json", "--out", "x.csv"): "There is no file",
    }.items():
        assert words in ltpll("convert", *arguments, status=2)
    assert not (tmp_path / "x.csv").exists()
