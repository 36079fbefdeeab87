"""Proposition 1."""

import math
import random

import pytest
from typer.testing import CliRunner

from ltpll.candidates import Candidates
from ltpll.cli import app
from ltpll.data.synthetic import uniform_candidates
from ltpll.errors import InputError
from ltpll_research.bound import ambiguity_degree, prior_bound
from support.refusals import refusal


def test_the_bound_is_the_papers_formula_worked_out_by_hand():
    # ln 2 − ln 1.5 = 0.2876821, ln 2000 = 7.6009025, 2 ln 4 = 2.7725887, −ln 0.1 = 2.3025851, ln 2 = 0.6931472
    expected = 4 / (0.2876821 * 1000) * (3 * (7.6009025 + 2.7725887) + 2.3025851 + 0.6931472)
    assert prior_bound(1000, 4, 3, 0.5, 0.1) == pytest.approx(expected, rel=1e-6)


def test_more_examples_lower_it_and_more_of_anything_else_raises_it():
    base = {"n": 10_000, "n_classes": 10, "natarajan": 5, "ambiguity": 0.3, "delta": 0.05}
    value = prior_bound(**base)
    assert prior_bound(**{**base, "n": 20_000}) < value
    for change in ({"n_classes": 20}, {"natarajan": 6}, {"ambiguity": 0.5}, {"delta": 0.01}):
        assert prior_bound(**{**base, **change}) > value
    assert prior_bound(**{**base, "ambiguity": 0.999999}) > 1e5 * value


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"ambiguity": 1.0}, "below 1"),
        ({"ambiguity": -0.1}, "below 0"),
        ({"delta": 0.0}, "probability"),
        ({"n": 0}, "examples"),
        ({"n_classes": 1}, "two classes"),
    ],
)
def test_numbers_that_it_does_not_hold_for_are_refused(change, message):
    base = {"n": 10_000, "n_classes": 10, "natarajan": 5, "ambiguity": 0.3, "delta": 0.05}
    assert message in refusal(lambda: prior_bound(**{**base, **change}), InputError)


def test_the_ambiguity_degree_is_the_largest_share_of_a_wrong_label_in_a_class():
    sets = Candidates.from_sets([{0, 1}, {0, 1}, {0, 2}, {0}, {1, 2}, {1}, {2}], n_classes=3)
    assert ambiguity_degree(sets, [0, 0, 0, 0, 1, 1, 2]) == 0.5


@pytest.mark.parametrize("seed", range(5))
def test_the_ambiguity_degree_equals_a_plain_count(seed):
    rng = random.Random(seed)
    labels = [rng.randrange(6) for _ in range(40)]
    sets = [{true, *(c for c in range(6) if rng.random() < 0.3)} for true in labels]
    shares = []
    for a in set(labels):
        own = [s for s, true in zip(sets, labels, strict=True) if true == a]
        shares += [sum(b in s for s in own) / len(own) for b in range(6) if b != a]
    assert ambiguity_degree(Candidates.from_sets(sets, n_classes=6), labels) == pytest.approx(max(shares))


def test_the_ambiguity_degree_of_sets_without_wrong_labels_is_zero():
    assert ambiguity_degree(Candidates.from_sets([{0}, {1}], n_classes=2), [0, 1]) == 0


def test_the_ambiguity_degree_of_many_uniform_sets_is_about_their_probability():
    labels = [c for c in range(4) for _ in range(2000)]
    found = ambiguity_degree(uniform_candidates(labels, 4, 0.3, seed=0), labels)
    assert found == pytest.approx(0.3, abs=0.03)
    assert found > 0.3  # the largest of twelve shares


def test_the_command_prints_it_and_asks_for_what_is_missing():
    result = CliRunner().invoke(app, ["bound", "--n", "1000", "--classes", "4", "--natarajan", "3", "--eta", "0.5", "--delta", "0.1"])
    assert result.exit_code == 0
    assert f"{prior_bound(1000, 4, 3, 0.5, 0.1):.4g}" in result.output
    assert ("vacuous" in result.output) == (prior_bound(1000, 4, 3, 0.5, 0.1) > math.sqrt(2))
    missing = CliRunner().invoke(app, ["bound", "--natarajan", "3"])
    assert isinstance(missing.exception, InputError)
    assert "--from RUN" in str(missing.exception)
