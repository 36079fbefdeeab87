"""The paper's plots show the numbers of the records."""

import numpy as np
import pytest
from PIL import Image

from ltpll_research.benchmark import Experiment
from ltpll_research.paper.catalog import ITEMS
from ltpll_research.paper.figures import PLOTTERS, draw_figure
from ltpll_research.paper.grid import Finished

RNG = np.random.default_rng(0)


def record(setting, n_classes=10):
    """A record of a run whose classes are not sorted by frequency."""
    counts = RNG.permutation(np.arange(1, n_classes + 1) * 10)

    def row():
        return {
            "balanced_accuracy": float(RNG.random()),
            "per_class": RNG.random(n_classes).tolist(),
            "mean_prediction": RNG.random(n_classes).tolist(),
        }

    rows = ["test", "oracle-la-posthoc"] if setting["rebalancer"] == "none" else ["test"]
    return {
        "config": Experiment.from_mapping(dict(setting)).config(),
        "class_counts": counts.tolist(),
        "last": {**{name: row() for name in rows}, "prior": RNG.random(n_classes).tolist()},
        "best": {name: {"epoch": 3, name: row()} for name in rows},
        "curves": {"epoch": [10, 20], "prior_distance": [0.5, 0.25]},
        "snapshots": {
            "epoch": [10, 20],
            "mean_prediction": {name: RNG.random((2, n_classes)).tolist() for name in rows},
        },
    }


def drawn(name, records):
    from matplotlib.figure import Figure  # here, since it takes half a second

    figure = Figure()
    item = ITEMS[name]
    PLOTTERS[name](figure, item, records)
    return item, figure


def lines(panel):
    return {line.get_label(): np.asarray(line.get_ydata()) for line in panel.lines}


@pytest.fixture(scope="module")
def everything():
    settings = [setting for name in PLOTTERS for setting in ITEMS[name].settings]
    return Finished([record(setting) for setting in settings])


def found(name, finished):
    return [
        [finished.get(Experiment.from_mapping(dict(cell.setting))) for cell in line.cells]
        for line in ITEMS[name].lines
    ]


def test_accuracy_by_class_goes_from_frequent_to_rare(everything):
    records = found("per-class", everything)
    item, figure = drawn("per-class", records)
    assert len(figure.axes) == 3
    for k, panel in enumerate(figure.axes):
        shown = lines(panel)
        assert set(shown) == {line.label for line in item.lines}
        for line, row in zip(item.lines, records, strict=True):
            counts = np.asarray(row[k]["class_counts"])
            values = np.asarray(row[k]["last"][line.cells[k].row]["per_class"])
            expected = [100 * values[c] for c in sorted(range(10), key=lambda c: -counts[c])]
            np.testing.assert_allclose(shown[line.label], expected)


def test_average_predictions_end_at_the_last_epoch_and_show_the_uniform_value(everything):
    records = found("average-prediction", everything)
    _, figure = drawn("average-prediction", records)
    assert [panel.get_title() for panel in figure.axes] == ["epoch 10", "epoch 20"]
    shown = lines(figure.axes[-1])
    assert set(shown) == {"proden", "proden + oracle-la", "proden + records", "uniform"}
    assert shown["uniform"][0] == pytest.approx(10)
    last = records[2][0]
    values = 100 * np.asarray(last["snapshots"]["mean_prediction"]["test"][1])
    np.testing.assert_allclose(sorted(shown["proden + records"]), sorted(values))


def test_the_prior_is_shown_with_the_frequencies(everything):
    _, figure = drawn("prior", found("prior", everything))
    distance, estimate = figure.axes
    np.testing.assert_allclose(distance.lines[0].get_ydata(), [0.5, 0.25])
    frequencies = lines(estimate)["class frequencies"]
    assert frequencies.sum() == pytest.approx(100)
    assert (np.diff(frequencies) < 0).all()


def test_momenta_that_have_no_run_are_left_out(everything):
    records = found("ablation-m", everything)
    records[1] = [None]
    _, figure = drawn("ablation-m", records)
    panel = figure.axes[0]
    assert list(panel.lines[0].get_xdata()) == [0, 2, 3, 4, 5, 6, 7]
    assert panel.lines[0].get_ydata()[0] == pytest.approx(
        100 * records[0][0]["last"]["test"]["balanced_accuracy"]
    )


@pytest.mark.parametrize("name", list(PLOTTERS))
def test_a_figure_is_written_once_there_is_a_run_and_not_before(everything, tmp_path, name):
    path = tmp_path / "new" / "figure.png"
    assert not draw_figure(ITEMS[name], Finished([]), {}, path)
    assert not path.exists()
    assert draw_figure(ITEMS[name], everything, {}, path)
    with Image.open(path) as image:
        assert min(image.size) > 300
