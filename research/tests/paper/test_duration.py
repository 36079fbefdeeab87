"""Estimates of how long runs will take."""

import pytest

from ltpll.synthetic import class_sizes
from ltpll_research.benchmark import Experiment
from ltpll_research.paper.duration import Pace, pixels_processed
from ltpll_research.paper.grid import Finished


def record(seconds, hardware="a card", **settings):
    config = Experiment.from_mapping({"data": "cifar10", **settings}).config()
    return {"config": config, "environment": {"hardware": hardware}, "seconds": seconds}


def test_time_is_proportional_to_the_pixels_processed():
    config = Experiment.from_mapping(
        {"data": "cifar10", "imbalance": 50, "epochs": 7, "method": "corr"}
    ).config()
    assert pixels_processed(config) == class_sizes(5000, 10, 50).sum() * 2 * 1024 * 7
    finished = Finished(
        [
            record(seconds=10.0, epochs=100),
            record(seconds=1.0, epochs=100, seed=1, hardware="a faster card"),
        ]
    )
    runs = [Experiment.from_mapping({"data": "cifar10", "epochs": 200})]
    assert Pace.of(finished, "a card").seconds(runs) == pytest.approx(20.0)
    elsewhere = Pace.of(finished, "no card")
    assert (elsewhere.hardware, elsewhere.seconds(runs)) == ("a faster card", pytest.approx(2.0))
    assert Pace.of(Finished([]), "a card").seconds(runs) is None
