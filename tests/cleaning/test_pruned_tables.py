"""Tables whose candidate sets are pruned before training: which rows vote and change."""

import numpy as np

from ltpll import prune_candidates
from ltpll.cleaning.dataset import TableSource, read_examples
from ltpll.cleaning.pruned_tables import prune_examples
from support.commands import ltpll_here
from support.refusals import refusal
from support.user_tables import feature_rows, write_csv, write_trees


def test_held_out_rows_neither_vote_nor_change(tmp_path):
    rows = feature_rows()
    split = ["test" if i % 3 == 0 else "train" for i in range(len(rows))]
    cells = [[*row, s] for row, s in zip(rows, split, strict=True)]
    table = write_csv(tmp_path / "t.csv", ["id", "candidates", "u", "v", "split"], cells)
    examples = read_examples(TableSource(table))
    found = prune_examples(examples)
    training = np.flatnonzero([s == "train" for s in split])
    x, sets = examples.x[training], [rows[i][1] for i in training]
    alone = prune_candidates(x, sets).candidates
    left = [found.examples.candidates.row(i) for i in range(len(rows))]
    assert [left[i] for i in training] == [alone.row(k) for k in range(len(training))]
    assert all(left[i] == examples.candidates.row(i) for i in range(0, len(rows), 3))
    assert len(found.examples.candidates.labels) < len(examples.candidates.labels)


def test_pictures_are_refused(tmp_path):
    write_trees(tmp_path, n=8)
    pictures = TableSource(tmp_path / "labels.csv", images=tmp_path / "pictures")
    message = refusal(lambda: prune_examples(read_examples(pictures)))
    assert "give a pretrained network" in message


def test_pruning_is_not_combined_with_answers(tmp_path):
    write_csv(tmp_path / "t.csv", ["id", "candidates", "a"], [(i, "cat|dog", i) for i in range(40)])
    write_csv(tmp_path / "r.csv", ["id", "answer"], [(0, "cat")])
    message = ltpll_here(
        "train",
        tmp_path / "t.csv",
        "--set",
        "training.prune=true",
        "--reviewed",
        tmp_path / "r.csv",
        "--out",
        tmp_path / "run",
        status=2,
    )
    assert "leave training.prune out" in message
