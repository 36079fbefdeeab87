import numpy as np
import pytest
from PIL import Image

from ltpll.runs.run import Run
from ltpll_research.studies import run_missing, toy
from ltpll_research.summary import rows


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    root = tmp_path_factory.mktemp("toy")
    runs = [Run(root, config) for config in toy.configs(1)]
    run_missing(runs, toy.train, workers=0)
    return runs


def test_the_settings_are_the_papers():
    for config in toy.configs(2):
        assert (config["sizes"], config["ambiguity"], config["batch_size"]) == (
            [30, 100, 500, 1000],
            0.6,
            512,
        )
        assert (config["lr"], config["epochs"], config["method"]) == (2.0, 50, "proden")
    assert {config["rebalancer"] for config in toy.configs(1)} == {"none", "oracle-la", "records"}


def test_the_constant_prior_predicts_the_tail_and_records_finds_all_four_squares(trained):
    accuracy = {
        row.rebalancer: row.last("balanced_accuracy")
        for row in rows([run.result() for run in trained])
    }
    assert accuracy["oracle-la"].mean <= 0.35
    assert accuracy["records"].mean >= 0.90
    assert accuracy["records"].mean > accuracy["none"].mean
    assert accuracy["records"].n == 1


def test_the_oracle_mostly_predicts_the_rarest_label(trained):
    run = next(run for run in trained if run.config["rebalancer"] == "oracle-la")
    points = np.load(run.folder / "points.npz")
    assert (points["y"] == 0).mean() < 0.02
    assert (points["predicted"] == 0).mean() > 0.5


def test_the_figure_has_two_rows_of_four_coloured_panels(trained, tmp_path):
    path = tmp_path / "toy.png"
    toy.draw([run for run in trained if run.config["seed"] == 0], path)
    pixels = np.asarray(Image.open(path).convert("RGB")).astype(int)
    assert pixels.shape[1] > 1.5 * pixels.shape[0]
    # Each of the eight panels holds coloured points.
    coloured = (pixels.max(2) - pixels.min(2)) > 60
    for half in np.array_split(coloured, 2, axis=0):
        for quarter in np.array_split(half, 4, axis=1):
            assert quarter.sum() > 500


def test_the_same_seed_gives_the_same_record(trained, tmp_path):
    again = Run(tmp_path, trained[0].config)
    toy.train(again)
    first, second = trained[0].result(), again.result()
    for name in ("last", "best", "curves", "key", "config"):
        assert first[name] == second[name]
