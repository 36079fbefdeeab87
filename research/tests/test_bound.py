"""Proposition 1."""

import math

import pytest
from typer.testing import CliRunner

from ltpll_research.cli import app
from ltpll_research.cli.bound import prior_bound


def test_the_bound_is_the_papers_formula_worked_out_by_hand():
    # ln 2 − ln 1.5 = 0.2876821, ln 2000 = 7.6009025, 2 ln 4 = 2.7725887, −ln 0.1 = 2.3025851, ln 2
    # = 0.6931472
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
    "change", ["--eta 1", "--eta -0.1", "--delta 0", "--n 0", "--classes 1", "--natarajan 0"]
)
def test_numbers_that_it_does_not_hold_for_are_refused(change):
    usual = "bound --n 1000 --classes 4 --natarajan 3 --eta 0.5"
    result = CliRunner().invoke(app, [*usual.split(), *change.split()])
    assert result.exit_code == 2
    assert f"Invalid value for '{change.split()[0]}'" in result.output


def test_the_command_prints_it_and_asks_for_what_is_missing():
    result = CliRunner().invoke(
        app,
        [
            "bound",
            "--n",
            "1000",
            "--classes",
            "4",
            "--natarajan",
            "3",
            "--eta",
            "0.5",
            "--delta",
            "0.1",
        ],
    )
    assert result.exit_code == 0
    assert f"{prior_bound(1000, 4, 3, 0.5, 0.1):.4g}" in result.output
    assert ("vacuous" in result.output) == (prior_bound(1000, 4, 3, 0.5, 0.1) > math.sqrt(2))
    assert CliRunner().invoke(app, ["bound", "--natarajan", "3"]).exit_code == 2
