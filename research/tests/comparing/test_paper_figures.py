"""The figures of the paper that its runs show: what `reproduce` draws for them."""

import numpy as np
import pytest

from ltpll_research.benchmark import Experiment
from ltpll_research.comparing import pictures
from ltpll_research.comparing.systems import compare_systems
from ltpll_research.paper.catalog import ITEMS
from ltpll_research.paper.grid import Finished, experiments


def record(experiment, n_classes=4):
    rng = np.random.default_rng(experiment.seed)
    row = {"balanced_accuracy": rng.random(), "per_class": rng.random(n_classes).tolist()}
    row["mean_prediction"] = rng.random(n_classes).tolist()
    return {
        "key": str(hash(str(experiment))),
        "config": experiment.config(),
        "class_counts": [40, 30, 20, 10],
        "last": {"test": row, "prior": rng.random(n_classes).tolist()},
        "best": {"test": {"test": row}},
        "curves": {"epoch": [10, 20], "prior_distance": rng.random(2).tolist()},
        "snapshots": {
            "epoch": [10, 20, 30],
            "mean_prediction": {"test": rng.random((3, n_classes)).tolist()},
        },
    }


@pytest.mark.parametrize(
    ("name", "panel"),
    [
        ("average-prediction", "average prediction by class after epoch 10 (%)"),
        ("prior", "distance of the prior from the class frequencies (%)"),
        ("per-class", "test accuracy by class (%)"),
    ],
)
def test_a_figure_has_the_means_of_its_runs_over_seeds(monkeypatch, name, panel):
    drawn = {}
    monkeypatch.setattr(
        pictures, "_draw_lines", lambda axis, what, lines, colours: drawn.setdefault(what, lines)
    )
    wanted = experiments(ITEMS[name], 2, {"epochs": 30}, {"rebalancer": "records"})
    assert {type(one) for one in wanted} == {Experiment}
    found = Finished([record(one) for one in wanted]).newest(wanted)
    assert len(found) == len(wanted)
    problems = compare_systems(found)
    pictures.draw_problems(problems)
    assert panel in drawn
    if name == "average-prediction":
        runs = problems[0].systems[0].row.records
        expected = np.mean([one["snapshots"]["mean_prediction"]["test"][0] for one in runs], 0)
        assert [one.mean for one in drawn[panel][0][2]] == pytest.approx(expected)
