"""Settings for all tests: one thread each, Triton's interpreter without a GPU, and how workers share the tests."""

import os

import pytest
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
    "experiments/paper/test_launch.py",
    "experiments/studies/test_digits.py",
    "experiments/studies/test_study.py",
    "experiments/test_benchmark.py",
    "experiments/test_probe.py",
    "test_cli.py",
    "test_processes.py",
    "test_survival.py",
    "training/test_distributed.py",
}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Give each file to one worker (`--dist loadgroup`), since its tests share fixtures."""
    for item in items:
        file = item.nodeid.split("::")[0].removeprefix("tests/")
        item.add_marker(pytest.mark.xdist_group("processes" if file in STARTING_PROCESSES else file))


def pytest_runtest_setup(item):
    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")
