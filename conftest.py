"""Settings for the tests of both packages: threads, signals, Triton without a GPU, and how workers
share the tests.
"""

import http.server
import os
import threading
from pathlib import Path

import pytest

from support.processes import do_not_wait_for_disk, hearing_signals


def pytest_configure(config):
    if config.getoption("numprocesses", None):
        # this process only distributes the tests, and importing torch would delay its workers
        return
    import torch
    from hypothesis import settings

    if not torch.cuda.is_available():
        os.environ["TRITON_INTERPRET"] = "1"  # read when kernels are imported
    torch.set_num_threads(1)  # so that two workers on two cores do not compete
    do_not_wait_for_disk()
    settings.register_profile("ltpll", deadline=None, max_examples=50, derandomize=True)
    settings.load_profile("ltpll")


# These start processes from servers that take seconds to import torch: one worker runs them all, so
# that each server starts once.
STARTING_PROCESSES = {
    "research/tests/cli/test_data.py",
    "research/tests/cli/test_studies.py",
    "research/tests/paper/test_launch.py",
    "research/tests/studies/test_digits.py",
    "research/tests/studies/test_runner.py",
    "research/tests/test_benchmark.py",
    "research/tests/test_probe.py",
    "tests/analysis/test_describe.py",
    "tests/cleaning/test_cross_validation.py",
    "tests/test_cli.py",
    "tests/test_many_classes.py",
    "tests/test_parts.py",
    "tests/test_processes.py",
    "tests/test_survival.py",
    "tests/training/test_distributed.py",
}
assert all((Path(__file__).parent / name).is_file() for name in STARTING_PROCESSES)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give each file to one worker, since its tests share fixtures, and in the order of their
    names: the small files come last.
    """
    from xdist.scheduler import LoadFileScheduling

    class Scheduler(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            return "processes" if file in STARTING_PROCESSES else file

    config.option.loadscopereorder = False
    return Scheduler(config, log)


@pytest.fixture(scope="session", autouse=True)
def _hearing_signals():
    """Many tests interrupt themselves or their children, also where `make test` runs in the
    background.
    """
    with hearing_signals():
        yield


def pytest_runtest_setup(item):
    import torch

    if item.get_closest_marker("gpu") and not torch.cuda.is_available():
        pytest.skip("no CUDA device on this machine")


class Listener(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        self.send_error(404)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def listener():
    """A server that a page could call, and what it was asked for."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Listener) as server:
        server.asked = []
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
