"""Settings for all tests: one thread each, signals, Triton's interpreter without a GPU, and how workers share the tests."""

import os
from pathlib import Path

import pytest

from support.processes import hearing_signals


def pytest_configure(config):
    if config.getoption("numprocesses", None):
        return  # this process only distributes the tests, and importing torch would delay its workers
    import torch
    from hypothesis import settings

    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"  # read when kernels are imported
    torch.set_num_threads(1)  # so that two workers on two cores do not compete
    settings.register_profile("ltpll", deadline=None, max_examples=50, derandomize=True)
    settings.load_profile("ltpll")


# These start processes from servers that take seconds to import torch: one worker runs them all, so that each server starts once.
STARTING_PROCESSES = {
    "analysis/test_describe.py",
    "cleaning/test_cross_validation.py",
    "data/readers/test_parquet_footer.py",
    "data/test_data_commands.py",
    "experiments/paper/test_launch.py",
    "experiments/studies/test_digits.py",
    "experiments/studies/test_runner.py",
    "experiments/test_benchmark.py",
    "experiments/test_probe.py",
    "test_cli.py",
    "test_many_classes.py",
    "test_parts.py",
    "test_processes.py",
    "test_survival.py",
    "training/test_distributed.py",
}
assert all((Path(__file__).parent / name).is_file() for name in STARTING_PROCESSES)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give each file to one worker, since its tests share fixtures, and in the order of their names: the small files come last."""
    from xdist.scheduler import LoadFileScheduling

    class Scheduler(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            return "processes" if file.removeprefix("tests/") in STARTING_PROCESSES else file

    config.option.loadscopereorder = False
    return Scheduler(config, log)


@pytest.fixture(scope="session", autouse=True)
def _hearing_signals():
    """Many tests interrupt themselves or their children, also where `make test` runs in the background."""
    with hearing_signals():
        yield


def pytest_runtest_setup(item):
    import torch

    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
