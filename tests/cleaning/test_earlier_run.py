"""Targets from an earlier run, against its stored shares, row by row."""

from dataclasses import replace

import numpy as np
import pytest

from ltpll.candidates import Candidates
from ltpll.cleaning.dataset import Examples
from ltpll.cleaning.pipeline import candidate_shares, starting_from
from ltpll.cleaning.results import candidates_of
from ltpll.tables.read_tables import LabelTable
from support.cleaned_tables import cleaned_table
from support.refusals import refusal


def examples_of(run, rows):
    """Some rows of a run's table, in the given order."""
    table = LabelTable(
        run.ids[rows], candidates_of(run).select(rows), None, None, None, None, (), None
    )
    return Examples(table, np.zeros((len(rows), 1), dtype=np.float32), [])


def test_shares_are_those_of_label_and_runner_up_and_sum_to_one():
    run = cleaned_table()
    shares = candidate_shares(run)
    for i in range(len(run.ids)):
        mine = dict(
            zip(
                run.candidates[run.offsets[i] : run.offsets[i + 1]].tolist(),
                shares[run.offsets[i] : run.offsets[i + 1]],
                strict=True,
            )
        )
        found = run.labels
        label = found.confidence[i] / (1 - found.suspicion[i])
        assert mine[found.label[i]] == pytest.approx(label, rel=1e-3)
        if len(mine) > 1:
            assert mine[found.runner_up[i]] == pytest.approx(label - found.margin[i], abs=1e-3)
            assert sum(mine.values()) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("weighted", [False, True])
def test_first_targets_mix_the_shares_of_the_run_with_the_weights_of_the_examples(weighted):
    run, rows = cleaned_table(), np.random.default_rng(0).permutation(200)[:120]
    examples = examples_of(run, rows)
    if weighted:
        weights = np.random.default_rng(1).uniform(0.1, 1, len(examples.candidates.labels))
        examples = replace(
            examples,
            table=replace(examples.table, candidates=examples.candidates.with_weights(weights)),
        )
    reviewed = np.zeros(120, dtype=bool)
    reviewed[7] = True
    ids = examples.table.ids.copy()
    ids[9] = "a new example"
    examples = replace(examples, table=replace(examples.table, reviewed=reviewed, ids=ids))
    before, found, shares = (
        examples.candidates,
        starting_from(examples, run, 0.6),
        candidate_shares(run),
    )
    assert found.candidates is before
    for k, i in enumerate(rows.tolist()):
        place = slice(*before.offsets[k : k + 2].tolist())
        given = (
            before.weights[place].numpy()
            if weighted
            else np.full(place.stop - place.start, 1 / (place.stop - place.start))
        )
        mine = shares[run.offsets[i] : run.offsets[i + 1]]
        trust = 0.0 if k in (7, 9) else 0.6
        np.testing.assert_allclose(
            found.start[place], (1 - trust) * given + trust * mine / mine.sum(), rtol=1e-4
        )


def test_a_run_on_another_table_is_refused():
    run = cleaned_table()
    examples = examples_of(run, np.arange(5))
    other = replace(examples.table, ids=np.asarray(list("vwxyz"), dtype=object))
    assert "none of the 5 examples" in refusal(
        lambda: starting_from(replace(examples, table=other), run)
    )
    other = replace(examples.table, candidates=Candidates.of(["x|y"] * 5))
    assert "other classes" in refusal(lambda: starting_from(replace(examples, table=other), run))
