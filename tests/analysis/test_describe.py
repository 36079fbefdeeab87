"""What candidate sets say of themselves, against loops, and the command as a user meets it."""

import json
import tracemalloc
from itertools import combinations

import numpy as np
import pytest
from typer.testing import CliRunner

from ltpll.analysis import (
    describe,
    pairs,
)
from ltpll.candidates import Candidates
from ltpll.cli import app, main
from ltpll.errors import InputError, UnknownNameError
from ltpll.priors import estimate_prior
from ltpll.priors.distinct_sets import distinct_sets
from ltpll.runs.run import Run
from support.candidate_sets import long_tailed, random_sets
from support.commands import ltpll
from support.refusals import refusal

# ---- counting ------------------------------------------------------------------------------------


def test_pairs_are_those_of_a_double_loop():
    candidates, _ = random_sets(300, 6)
    rows = [candidates.row(i) for i in range(300)]
    sets = distinct_sets(candidates)
    found = pairs(sets, candidates.classes, 100)
    naive = {}
    for a, b in combinations(range(6), 2):
        count = sum(a in row and b in row for row in rows)
        expected = sum(a in row for row in rows) * sum(b in row for row in rows) / 300
        if count:
            naive[a, b] = (count, pytest.approx(expected), pytest.approx(count / expected))
    assert {
        pair.classes: (pair.sets, pair.expected, pair.times) for pair in found.most_frequent
    } == naive
    assert found.n == len(naive)
    counts = [pair.sets for pair in found.most_frequent]
    assert counts == sorted(counts, reverse=True)
    assert pairs(sets, candidates.classes, 3).most_frequent == found.most_frequent[:3]


def test_a_pair_that_belongs_together_stands_out_and_independent_ones_do_not():
    independent, _ = long_tailed()
    assert describe(independent).pairs.n_above == 0
    dense = independent.dense().numpy()
    dense[:, 7] |= dense[:, 2] & (np.arange(len(dense)) % 2 == 0)
    found = describe(Candidates.from_matrix(dense)).pairs
    assert found.most_above.classes == (2, 7)
    assert found.most_above.times > 1.1


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
    assert found.pairs.most_frequent[0].classes == ("cat", "dog")


# ---- ambiguity -----------------------------------------------------------------------------------


def test_the_wrong_label_rate_needs_no_labels_and_is_the_share_of_wrong_labels_that_joined():
    candidates, labels = random_sets(100)
    joined = sum(label != true for i, true in enumerate(labels) for label in candidates.row(i))
    assert describe(candidates).wrong_label_rate == pytest.approx(joined / (100 * 4))


# ---- the prior -----------------------------------------------------------------------------------


def test_the_prior_is_that_of_estimate_prior_and_true_labels_add_its_errors():
    candidates, labels = long_tailed()
    found = describe(candidates, labels)
    assert found.prior.as_record() == estimate_prior(candidates).as_record()
    truth = np.bincount(labels) / len(labels)
    for name in ("estimate", "em", "average"):
        assert found.errors[name] == pytest.approx(
            sum(abs(a - b) for a, b in zip(getattr(found.prior, name), truth, strict=True))
        )
    inside = [
        low <= share <= high
        for low, share, high in zip(found.prior.lower, truth, found.prior.upper, strict=True)
    ]
    assert found.errors["within_bounds"] == np.mean(inside)
    assert found.true_imbalance == 50
    assert describe(candidates).errors is None


def test_where_everything_is_known_no_label_is_ambiguous():
    found = describe(Candidates.of([[0]] * 6 + [[1]] * 3 + [[2]] * 2), [0] * 6 + [1] * 3 + [2] * 2)
    assert found.prior.regime == "known"
    assert found.errors["estimate"] == pytest.approx(0, abs=1e-12)
    assert found.true_imbalance == 3


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
    assert found["class_counts"] is None


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
ROWS_WITH_LABELS = [
    f"{i},{'|'.join(row)},{label}" for i, (row, label) in enumerate(zip(ROWS, LABELS, strict=True))
]


@pytest.mark.parametrize("column", ["label", "truth"])
def test_true_labels_in_the_table_are_known(tmp_path, column):
    path = tmp_path / "t.csv"
    path.write_text("\n".join([f"id,candidates,{column}", *ROWS_WITH_LABELS]))
    numbers = [("cat", "dog", "fox").index(label) for label in LABELS]
    named = [] if column == "label" else ["--label", "truth"]
    assert without_source(as_json(path, *named)) == plain(describe(Candidates.of(ROWS), numbers))
    assert "true labels are known" in call(path, *named).output


def test_labels_of_some_rows_are_counted(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("\n".join(["id,candidates,label", *ROWS_WITH_LABELS[:2], "3,fox|cat,"]))
    found = as_json(path)
    assert (found["n_labelled"], found["class_counts"], found["errors"]) == (2, None, None)
    assert "3 examples, 3 classes; true labels are known for 2 of them" in call(path).output


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
    expected = plain(
        describe(Candidates.of(ROWS), [("cat", "dog", "fox").index(label) for label in LABELS])
    )
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
            "--label",
            "d",
        ],
        "classes.csv": ["--class-columns", "is_*"],
        "scores.csv": ["--probability-columns", "p_*", "--set", "table.mass=0.999"],
    }.items():
        truth = [] if "--label" in options else ["--label", "truth"]
        assert without_source(as_json(tmp_path / name, *options, *truth)) == expected, name
    pairs = as_json(tmp_path / "scores.csv", "--probability-columns", "p_*", "--top-k", "2")
    assert pairs["size_counts"] == {"2": 5}


def test_what_is_printed_of_one_pair_is_in_the_singular(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("sets\n" + "a|b\n" * 40 + "c|d\n" + "a\nb\n" * 10 + "c\nd\n" * 100)
    shown = " ".join(call(path, "--top", "1").output.split())
    assert "1 more pair shares sets." in shown
    assert "1 of 2 pairs, above all" in shown


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
    "a folder without a run": (["."], "not a run folder"),
    "a result of something else": (["other.json"], "none of the JSON files that are understood"),
    "a separator of a run": ([".", "--separator", ";"], "says how a file is read"),
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
    "true labels of a run": ([".", "--label", "x"], "says how a file is read"),
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


def test_a_run_of_research_is_called_what_it_is(tmp_path):
    made = Run(tmp_path, {"experiment": "images"})
    made.start()
    assert "it is a benchmark run, not a run on a table" in str(call(made.folder).exception)


def test_sets_whose_pairs_would_fill_the_memory_are_refused_at_once():
    message = refusal(lambda: describe(Candidates.of([range(100_000), [0, 1]])))
    assert message.startswith(
        "A row has 100,000 candidates, and pairs of classes are counted in rows of at most 16,384:"
    )


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
    assert f"{len(candidates):,} examples, 60 classes; true labels are not known." in lines
    assert "Smaller classes not shown: 56" in result.stdout
    assert "1,766 more pairs share sets" in result.stdout
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
