"""Exclusions, scores and empty cells of a table become sets, or one sentence."""

import numpy as np
import pytest

from ltpll.tables import set_columns
from ltpll.tables.read_tables import read_table
from ltpll.tables.reading import Reading
from support.refusals import refusal


def written(folder, content):
    path = folder / "t.csv"
    path.write_text(content)
    return path


def test_probabilities_become_weights_of_the_sets_they_make(tmp_path):
    path = written(tmp_path, "p_a,p_b,p_c\n0.64,0.36,0\n0.1,0.2,0.7\n0,0,0\n")
    reading = Reading(probability_columns=("p_*",), top_k=2, empty="all")
    found = read_table(path, reading).candidates
    assert [found.row(i) for i in range(3)] == [[0, 1], [1, 2], [0, 1, 2]]
    expected = np.asarray([0.64, 0.36, 0.2, 0.7]) ** 0.25
    np.testing.assert_allclose(found.weights[:2], expected[:2] / expected[:2].sum(), rtol=1e-5)
    np.testing.assert_allclose(found.weights[4:], 1 / 3, rtol=1e-5)
    ignored = read_table(
        path, Reading(probability_columns=("p_*",), top_k=2, empty="all", scores="none")
    ).candidates
    assert ignored.weights is None
    assert ignored.labels.tolist() == found.labels.tolist()


def test_scores_in_a_later_batch_must_be_scores_too(tmp_path, monkeypatch):
    monkeypatch.setattr("ltpll.tables.streaming.BLOCK", 1 << 10)
    rows = [f'"{{""cat"": 0.{i}, ""dog"": 0.5}}",{i}' for i in range(1, 400)]
    assert (
        read_table(written(tmp_path, "candidates,x\n" + "\n".join(rows) + "\n")).candidates.weights
        is not None
    )
    path = written(tmp_path, "candidates,x\n" + "\n".join([*rows, "fox,1"]) + "\n")
    assert "Row 400" in refusal(lambda: read_table(path))


@pytest.mark.parametrize(
    ("options", "start"),
    [
        ({"annotators": "union", "empty": "all"}, "empty is for candidate sets"),
        ({"scores": "best"}, "scores is 'best': it must be weights or none"),
    ],
)
def test_rules_that_cannot_hold_are_refused_in_one_sentence(tmp_path, options, start):
    path = written(tmp_path, "candidates,place,x\ncat|dog,north,1\ncat,south,2\n")
    assert refusal(lambda: read_table(path, Reading(**options))).startswith(start)


def test_sets_that_do_not_fit_into_memory_are_refused_before_they_are_made(tmp_path, monkeypatch):
    monkeypatch.setattr("ltpll.tables.memory_limits.available_memory", lambda: 100_000)
    path = written(tmp_path, "candidates\n" + "".join(f"c{i}\n" for i in range(100)) + "*\n" * 100)
    message = refusal(lambda: read_table(path))
    assert "10,100 candidates" in message
    monkeypatch.setattr(set_columns, "BYTES_PER_LABEL", 1)
    assert len(read_table(path).candidates.labels) == 10_100
