"""What candidate sets say of themselves, against loops, and the command as a user meets it."""

import json
import tracemalloc

import numpy as np
import pytest
from typer.testing import CliRunner

from ltpll.analysis import describe
from ltpll.candidates import Candidates
from ltpll.cli import app, main
from ltpll.errors import InputError, UnknownNameError
from ltpll.priors import estimate_prior
from support.candidate_sets import long_tailed, random_sets
from support.commands import ltpll

# ---- counting ------------------------------------------------------------------------------------


def test_sizes_appearances_and_names():
    found = describe(Candidates.of([{"cat", "dog"}, {"cat"}, {"dog", "fox", "cat"}, {"cat"}]))
    assert (found.n_examples, found.n_classes, found.mean_size) == (4, 3, 7 / 4)
    assert found.size_counts == {1: 2, 2: 1, 3: 1}
    assert dict(zip(found.classes, found.appearances, strict=True)) == {
        "cat": 4,
        "dog": 2,
        "fox": 1,
    }
    assert found.recurring == 0.5
    assert found.distinct_sets == 3


# ---- ambiguity -----------------------------------------------------------------------------------


def test_the_wrong_label_rate_needs_no_labels_and_is_the_share_of_wrong_labels_that_joined():
    candidates, labels = random_sets(100)
    joined = sum(label != true for i, true in enumerate(labels) for label in candidates.row(i))
    assert describe(candidates).wrong_label_rate == pytest.approx(joined / (100 * 4))


# ---- the prior -----------------------------------------------------------------------------------


def test_the_prior_is_that_of_estimate_prior():
    candidates, _ = long_tailed()
    found = describe(candidates)
    assert found.prior.as_record() == estimate_prior(candidates).as_record()


def test_where_everything_is_known_no_label_is_ambiguous():
    found = describe(Candidates.of([[0]] * 6 + [[1]] * 3 + [[2]] * 2))
    assert found.prior.regime == "known"
    np.testing.assert_allclose(found.prior.estimate, np.array([6, 3, 2]) / 11)


def test_one_row_is_described_too():
    assert describe(Candidates.of([{0, 1}])).n_examples == 1


def test_memory_grows_with_the_labels_and_not_with_rows_times_classes():
    rng = np.random.default_rng(0)
    n, n_classes, size = 20_000, 20_000, 4
    candidates = Candidates.from_flat(
        np.arange(n + 1) * size, rng.integers(0, n_classes, n * size), n_classes
    )
    tracemalloc.start()
    try:
        describe(candidates)
        assert (
            tracemalloc.get_traced_memory()[1] < n * n_classes
        )  # bytes: an eighth of a dense matrix
    finally:
        tracemalloc.stop()


# ---- the command ---------------------------------------------------------------------------------


def call(*arguments):
    return CliRunner().invoke(app, ["describe", *(str(argument) for argument in arguments)])


def as_json(*arguments):
    result = call(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.output)


def plain(description):
    """A description as JSON has it."""
    return json.loads(json.dumps(description.record()))


def without_source(record):
    return {key: value for key, value in record.items() if key != "source"}


ROWS = [["cat", "dog"], ["dog"], ["fox", "cat"], ["cat"], ["cat", "dog", "fox"]]
MATRIX = np.asarray([[1, 1, 0], [0, 1, 0], [1, 0, 1], [1, 0, 0], [1, 1, 1]])
TABLES = {
    "strings.csv": "file,sets\n"
    + "".join(f"{i}.png,{'|'.join(row)}\n" for i, row in enumerate(ROWS)),
    "blanks.csv": "sets\n" + "".join(f" {' | '.join(row)} \n" for row in ROWS),
    "marked.csv": "\ufefffile,sets\n"
    + "".join(f"{i}.png,{'|'.join(row)}\n" for i, row in enumerate(ROWS)),
    "strings.tsv": "file\tsets\n"
    + "".join(f"{i}.png\t{'|'.join(row)}\n" for i, row in enumerate(ROWS)),
    "lists.csv": "file,sets\n" + "".join(f'{i}.png,"{row}"\n' for i, row in enumerate(ROWS)),
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_described_by_its_column_of_sets(tmp_path, name):
    path = tmp_path / name
    path.write_text(TABLES[name], encoding="utf-8")
    found = as_json(path, "--candidates", "sets")
    assert without_source(found) == plain(describe(Candidates.of(ROWS)))
    assert found["source"] == str(path)


def test_column_and_separator_are_taken(tmp_path):
    path = tmp_path / "two.csv"
    path.write_text("a;,b,b;c\nx|y,p;q,1\nz|y,q,2\n")
    assert as_json(path, "--candidates", "a;")["classes"] == ["x", "y", "z"]
    assert as_json(path, "--candidates", "b", "--separator", ";")["classes"] == ["p", "q"]


def test_a_column_of_groups_settles_where_the_sets_come_from(tmp_path):
    rng = np.random.default_rng(0)
    sets = ["a|b", "b|c", "a|c|d", "d"]
    rows = [
        (sets[kind], picture)
        for picture, kind in enumerate(rng.integers(0, 4, 60))
        for _ in range(len(sets[kind].split("|")))
    ]
    path = tmp_path / "pictures.csv"
    path.write_text(
        "picture,candidates\n"
        + "".join(f"{rows[i][1]}.png,{rows[i][0]}\n" for i in rng.permutation(len(rows)))
    )
    found = as_json(path, "--group", "picture")["prior"]
    assert (found["regime"], found["evidence"][0]["what"]) == (
        "co-occurrence",
        "rows with their group's set",
    )
    assert as_json(path)["prior"]["regime"] != "co-occurrence"


LABELS = ["cat", "dog", "fox", "cat", "dog"]


def test_sets_are_read_in_every_way_that_train_reads_them(tmp_path):
    rng = np.random.default_rng(0)
    votes = [(i, "uv"[k % 2], name) for i, row in enumerate(ROWS) for k, name in enumerate(row)]
    texts = {
        "crowd.csv": "image,annotator,choice,truth\n"
        + "".join(f"{i}.png,{who},{name},{LABELS[i]}\n" for i, who, name in votes),
        "other.csv": "a,b,c,d\n"
        + "".join(f"{i}.png,{who},{name},{LABELS[i]}\n" for i, who, name in votes),
        "classes.csv": "is_cat,is_dog,is_fox,truth\n"
        + "".join(f"{a},{b},{c},{LABELS[i]}\n" for i, (a, b, c) in enumerate(MATRIX)),
        "scores.csv": "p_cat,p_dog,p_fox,truth\n",
    }
    for i, row in enumerate(MATRIX):
        shares = row * (1 + rng.random(3)) + 1e-6
        texts["scores.csv"] += (
            ",".join(f"{share / shares.sum():.9f}" for share in shares) + f",{LABELS[i]}\n"
        )
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    expected = plain(describe(Candidates.of(ROWS)))
    for name, options in {
        "crowd.csv": ["--annotators", "union"],
        "other.csv": [
            "--annotators",
            "union",
            "--set",
            "table.task=a",
            "--set",
            "table.worker=b",
            "--set",
            "table.annotation=c",
        ],
        "classes.csv": ["--class-columns", "is_*"],
        "scores.csv": ["--probability-columns", "p_*", "--set", "table.mass=0.999"],
    }.items():
        assert without_source(as_json(tmp_path / name, *options)) == expected, name
    pairs = as_json(tmp_path / "scores.csv", "--probability-columns", "p_*", "--top-k", "2")
    assert pairs["size_counts"] == {"2": 5}


def test_parquet_is_read(tmp_path):
    pytest.importorskip("pyarrow")
    import pandas as pd

    pd.DataFrame(
        {"id": range(5), "sets": ROWS, "text": ["|".join(row) for row in ROWS]}
    ).to_parquet(tmp_path / "t.parquet")
    for column in ("sets", "text"):
        found = as_json(tmp_path / "t.parquet", "--candidates", column)
        assert without_source(found) == plain(describe(Candidates.of(ROWS)))


def test_a_damaged_parquet_file_is_refused(tmp_path):
    (tmp_path / "t.parquet").write_bytes(b"PAR1")
    result = call(tmp_path / "t.parquet")
    assert isinstance(result.exception, InputError)
    assert "cannot be read as Parquet" in str(result.exception)


REFUSED = {
    "no file": (["cifar11"], "There is no file cifar11"),
    "no such file": (["none.csv"], "There is no file none.csv"),
    "a folder without pictures": (["."], "There are no pictures in ."),
    "a result of something else": (["other.json"], "none of the JSON files that are understood"),
    "two sources of sets": (
        ["ok.csv", "--candidates", "b", "--class-columns", "a"],
        "cannot be read from the column 'b': omit --candidates",
    ),
    "a task without annotations": (
        ["ok.csv", "--set", "table.task=a"],
        "task needs annotators",
    ),
    "unclear annotations": (
        ["ok.csv", "--annotators", "union"],
        "name the columns with the settings table.task",
    ),
    "an array": (["m.npy"], "m.npy is not a table"),
    "no such column of groups": (["ok.csv", "--group", "c"], "no column"),
    "no column of the usual name": (["ok.csv"], "no column called 'candidates': it has a, b"),
    "no such column": (["ok.csv", "--candidates", "c"], "no column called 'c': it has a, b"),
    "two such columns": (["twice.csv", "--candidates", "a"], "several columns called 'a'"),
    "an empty file": (["empty.csv"], "is empty: it has no header"),
    "only a header": (["header.csv"], "no rows below a header"),
    "a short row": (["short.csv"], "has 2 columns, but row 2 below it has 1"),
    "a row without a set": (
        ["hole.csv"],
        "Row 2 below the header of hole.csv has no candidate label",
    ),
    "no text": (["binary.csv"], "UTF-8"),
    "an open quote": (["quote.csv"], "cannot be read as a table"),
    "an empty separator": (["ok.csv", "--separator", ""], "separator is empty"),
    "lists without commas": (["numpy.csv"], "which is not a list"),
    "one class": (["same.csv"], "only 1 class"),
}


@pytest.fixture
def bad_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = {
        "sets.xlsx": "x",
        "other.json": "{}",
        "ok.csv": "a,b\n1,x|y\n2,y\n",
        "twice.csv": "a,a\nx|y,x|z\n",
        "empty.csv": "",
        "header.csv": "a,candidates\n",
        "short.csv": "a,candidates\n1,x|y\n2\n",
        "hole.csv": "a,candidates\n1,x|y\n2,\n",
        "quote.csv": 'a,candidates\n1,"x|y\n',
        "numpy.csv": "a,candidates\n1,\"['x' 'y']\"\n",
        "same.csv": "a,candidates\n1,x|x\n",
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe\x00")
    np.save(tmp_path / "m.npy", MATRIX)


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_described_is_refused_in_one_sentence(bad_files, case):
    arguments, fragment = REFUSED[case]
    result = call(*arguments)
    assert type(result.exception) in (InputError, UnknownNameError), result.output
    message = str(result.exception)
    assert fragment in message
    assert "\n" not in message
    assert message.endswith(".")


def typed(*arguments):
    return ltpll("describe", *arguments, COLUMNS="80")


def test_a_refusal_is_exit_status_2_and_no_traceback(tmp_path):
    result = typed(tmp_path / "none.csv")
    assert result.returncode == 2
    assert result.stderr.startswith("error: There is no file")
    assert len(result.stderr.strip().splitlines()) == 1
    assert result.stdout == ""


def test_what_is_printed_fits_80_columns_and_says_what_is_left_out(tmp_path):
    candidates, _ = long_tailed(60, 400, 10, 0.05)
    names = [f"a [long] class name that does not fit, number {c}" for c in range(60)]
    path = tmp_path / "many.csv"
    path.write_text(
        "sets\n"
        + "".join(
            "|".join(names[c] for c in candidates.row(i)).replace(",", ";") + "\n"
            for i in range(len(candidates))
        )
    )
    result = typed(path, "--top", "4")
    assert result.returncode == 0, result.stderr
    lines = result.stdout.splitlines()
    assert max(len(line) for line in lines[1:]) <= 80  # the first line is the path
    assert f"{len(candidates):,} examples, 60 classes." in lines
    assert "Smaller classes not shown: 56" in result.stdout
    assert "[long]" in result.stdout
    assert (
        "Estimate: EM, the most likely prior, with bounds of 2 standard deviations."
        in result.stdout
    )
    assert "of the rows share their set with another row." in result.stdout


def test_single_labels_are_suspected_of_another_separator(tmp_path):
    path = tmp_path / "semicolons.csv"
    path.write_text("sets\ncat;dog\ndog\ncat;dog\n")
    result = call(path)
    assert "--separator" in result.output
    assert "No set is ambiguous: every set has a single label" in result.output


def test_names_and_columns_that_a_terminal_would_obey_are_shown_without_their_power(
    tmp_path, monkeypatch, capsys
):
    path = tmp_path / "t.csv"
    path.write_text(
        "candidates,x\n\x1b[2Jcat|\x1b]0;owned\x07dog|[red]fox,1\n\x1b[2Jcat|\u202ecow,2\n",
        encoding="utf-8",
    )
    result = call(path, "--candidates", "candidates")
    assert result.exit_code == 0, result.output
    assert "[red]fox" in result.output
    assert [letter for letter in result.output if not letter.isprintable() and letter != "\n"] == []
    path.write_text("\x1b[2Jcandidates,\x1b]0;owned\x07\na,b\n")
    monkeypatch.setattr("sys.argv", ["ltpll", "describe", str(path), "--candidates", "sets"])
    with pytest.raises(SystemExit):
        main()
    shown = capsys.readouterr().err
    assert "has no column called 'sets'" in shown
    assert "\x1b" not in shown
