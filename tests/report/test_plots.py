"""The figure of an estimated prior."""

import plotly.graph_objects as go
import pytest

from ltpll.candidates import Candidates
from ltpll.priors import estimate_prior
from ltpll.report.plots import prior_figure

ROWS = ["cat|dog", "dog", "cat|fox", "fox", "dog|fox|<b>", "dog"]


def test_a_prior_is_drawn_with_its_bounds_the_models_shares_and_the_truth():
    found = estimate_prior(Candidates.of(ROWS * 20))
    figure = prior_figure(found.record(), model=[0.4, 0.3, 0.2, 0.1], truth=[0.1, 0.2, 0.3, 0.4])
    go.Figure(figure)  # refuses what plotly does not know
    sets, model, truth = figure["data"]
    order = sorted(range(4), key=lambda c: -found.estimate[c])
    assert sets["x"] == pytest.approx([100 * found.estimate[c] for c in order], abs=1e-4)
    reach = sets["error_x"]
    assert [x + up for x, up in zip(sets["x"], reach["array"], strict=True)] == pytest.approx(
        [100 * found.upper[c] for c in order], abs=1e-4
    )
    assert [x - down for x, down in zip(sets["x"], reach["arrayminus"], strict=True)] == pytest.approx(
        [100 * found.lower[c] for c in order], abs=1e-4
    )
    names = [["&lt;b&gt;", "cat", "dog", "fox"][c] for c in order]
    assert sets["y"] == model["y"] == truth["y"] == names
    assert dict(zip(truth["y"], truth["x"], strict=True)) == {"&lt;b&gt;": 10, "cat": 20, "dog": 30, "fox": 40}
    assert found.regime in sets["name"]


def test_only_the_largest_classes_are_drawn_and_each_has_its_own_line():
    found = estimate_prior(Candidates.from_sets([[c % 60] for c in range(300)] + [[7]] * 3))
    figure = prior_figure(found.record(), most=40)
    (sets,) = figure["data"]
    assert len(set(sets["y"])) == 40
    assert sets["y"][0] == "7"
    assert figure["layout"]["height"] > 40 * 20
