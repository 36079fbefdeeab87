import pytest

from ltpll_research.benchmark import Experiment, build_trainer, draw_problem
from ltpll_research.engine_speed import _forward_flops, bench_engine, noise_images


def test_the_benchmark_measures_every_part_of_a_step_consistently():
    experiment = Experiment("noise", imbalance=2, ambiguity=0.3, width=1, batch_size=8, epochs=100)
    images = noise_images(6, 4, 8)
    found = bench_engine(
        experiment, device="cpu", engine="eager", images=images, epochs=1, measure_every=1
    )
    parts = found["milliseconds_per_step"]
    assert found["training_views_per_second"] > found["views_per_second"]
    assert set(parts) == {
        "views",
        "forward",
        "backward",
        "loss",
        "rebalancer and targets",
        "optimizer",
        "evaluation of the test set",
    }
    assert all(milliseconds > 0 for name, milliseconds in parts.items() if name != "backward")
    assert found["share_of_matrix_peak"] == pytest.approx(
        found["flops_per_view"] * found["views_per_second"] / (found["matrix_peak_tflops"] * 1e12)
    )
    # The parts, timed separately, cannot take much less time than a whole step.
    step = (
        sum(
            milliseconds
            for name, milliseconds in parts.items()
            if name != "evaluation of the test set"
        )
        / 1000
    )
    assert 16 / found["views_per_second"] > 0.3 * step


def test_the_cost_of_a_view_is_that_of_a_resnet18_at_32_pixels():
    experiment = Experiment(
        "noise", imbalance=1, ambiguity=0.3, width=64, batch_size=2, epochs=100, method="proden"
    )
    problem = draw_problem(experiment, noise_images(1, 2, 2))
    forward = _forward_flops(build_trainer(experiment, problem, device="cpu"), problem)
    assert 3 * forward == pytest.approx(
        3.34e9, rel=0.01
    )  # 556 million multiply-adds forward, two operations each, times three
