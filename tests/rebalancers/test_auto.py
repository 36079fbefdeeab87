"""What auto chooses for sets of each origin, what it says, and what the choice does."""

import numpy as np
import pytest
import torch

from ltpll.candidates import Candidates
from ltpll.models import Classifier
from ltpll.rebalancers import Auto
from ltpll.rebalancers.auto import PRECISE
from ltpll.synthetic import uniform_candidates
from ltpll.targets import initial_targets
from ltpll_research.set_origins import grouped_candidates, neighbour_candidates
from support.problems import BetweenEpochs

LONG_TAIL = np.repeat(np.arange(5), [400, 200, 100, 50, 25])


def started(
    candidates: Candidates, auto: Auto | None = None, scores: dict[str, float] | None = None
) -> Auto:
    auto = auto or Auto()
    auto.scores = scores
    auto.attach(Classifier(torch.nn.Identity(), torch.nn.Linear(3, candidates.n_classes)))
    auto.start_training(BetweenEpochs(candidates, initial_targets(candidates)))
    return auto


def assert_holds_nothing(auto: Auto) -> None:
    assert auto.lift == "none"
    assert (auto.lower <= 0.5 / 100).all()
    assert (auto.upper == 1).all()


def test_grouped_sets_are_held_at_their_average():
    candidates, _ = grouped_candidates(120, [5, 4, 3, 2, 1], seed=0)
    auto = started(candidates)
    assert auto.because.startswith("Class shares are fixed at the average of the sets, because")
    np.testing.assert_allclose(auto.lower.numpy(), auto.prior_.centre, rtol=1e-5)
    np.testing.assert_array_equal(auto.lower.numpy(), auto.upper.numpy())


def test_independent_sets_are_held_exactly_if_the_estimate_is_precise_or_else_in_bounds():
    precise = started(uniform_candidates(np.repeat(LONG_TAIL, 10), 5, 0.5, seed=0))
    assert precise.prior_.expected_error < PRECISE
    assert precise.because.startswith("Class shares are fixed at the most likely ones, because")
    np.testing.assert_array_equal(precise.lower.numpy(), precise.upper.numpy())
    vague = started(uniform_candidates(LONG_TAIL[::4], 5, 0.6, seed=0))
    assert vague.prior_.expected_error > PRECISE
    assert vague.because.startswith(
        "Class shares are kept between bounds around the most likely ones, because"
    )
    assert (vague.lower < vague.upper).any()
    assert vague.lift == "warm-up"


def test_targets_are_left_alone_where_many_rows_have_one_label_or_the_origin_is_unclear():
    single = started(uniform_candidates(LONG_TAIL, 5, 0.1, seed=0))
    assert single.because.startswith("Targets are not rebalanced, because 6")
    assert single.because.endswith("% of the rows have a single label.")
    unclear = started(neighbour_candidates(np.repeat(np.arange(20), 20), 20, seed=0))
    assert unclear.because.startswith(
        "Class shares are left alone, and labels that often share sets support each other, because "
        "it is "
    )
    known = started(Candidates.of([[label] for label in LONG_TAIL]))
    assert known.because == "Every row has a single label, so targets need no rebalancing."
    for auto in (single, unclear, known):
        assert_holds_nothing(auto)


@pytest.mark.parametrize(("average", "held"), [(0.7, True), (0.5, False)])
def test_where_the_sets_leave_it_open_the_better_score_on_held_out_rows_decides(average, held):
    auto = started(
        neighbour_candidates(np.repeat(np.arange(20), 20), 20, seed=0),
        scores={"plain": 0.6, "average": average},
    )
    assert (
        f"gave {average:.3f} nats about held-out sets, and shares left alone 0.600" in auto.because
    )
    if held:
        average = started(
            neighbour_candidates(np.repeat(np.arange(20), 20), 20, seed=0), Auto(prior="average")
        )
        np.testing.assert_allclose(auto.lower.numpy(), average.prior_.estimate, rtol=1e-5)
        np.testing.assert_array_equal(auto.lower.numpy(), auto.upper.numpy())
    else:
        assert_holds_nothing(auto)


def test_what_the_user_says_is_held_whatever_the_sets_say():
    candidates = neighbour_candidates(np.repeat(np.arange(4), 30), 4, seed=0, reach=1)
    shares = started(candidates, Auto(prior=[4, 3, 2, 1]))
    np.testing.assert_allclose(shares.lower.numpy(), [0.4, 0.3, 0.2, 0.1], rtol=1e-6)
    average = started(candidates, Auto(prior="average"))
    assert average.because == "Class shares are fixed at the average of the sets, as requested."
    assert "as requested" in started(candidates, Auto(prior="sets")).because
    assert not Auto(prior="average").is_undecided(candidates)
