"""A server that has imported torch and forks a child per call, so that tests can start and kill
many processes cheaply.
"""

import functools
import gc
import importlib
import importlib.readers  # as tomllib: a child without privileges may be unable to read it
import json
import os
import subprocess
import sys
import tomllib  # noqa: F401
import traceback
from pathlib import Path

from support.processes import do_not_wait_for_disk, environment_of_tests

# Not ltpll.cli: it reads the width of the terminal from the environment when it is imported.
PRELOADED = (
    "torch._dynamo",
    "sklearn.metrics",
    "matplotlib.backends.backend_agg",
    "typer.rich_utils",
    "rich.markdown",
    "rich.progress",
    "ltpll.estimator",
    "ltpll.analysis",
    "ltpll_research.paper.launch",
    "ltpll_research.plotting",
    "ltpll_research.studies.digits",
    "ltpll_research.studies.toy",
    "support.interrupted_runs",
)


class ForkServer:
    """Calls functions of the modules in tests/support, each in a child process.

    `start("module.function", …)` returns the process id of the child, `wait` its exit status and
    what it printed. If a signal ended the child, the status is minus the number of the signal, as
    in `subprocess`.
    """

    def __init__(self):
        # One thread, since sums of floats depend on the number of threads; a given commit, since
        # looking it up takes three processes.
        environment = environment_of_tests(OMP_NUM_THREADS="1", LTPLL_COMMIT="tested")
        self._server = subprocess.Popen(
            [sys.executable, "-m", "support.fork_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            text=True,
        )
        self._logs = {}

    def _ask(self, **request):
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        return json.loads(self._server.stdout.readline())

    def start(self, function, *arguments, log, errors=None, cwd=None, environment=None, **options):
        pid = self._ask(
            function=function,
            arguments=arguments,
            options=options,
            log=str(log),
            errors=str(errors or log),
            cwd=str(cwd or Path.cwd()),
            environment=environment or {},
        )
        self._logs[pid] = Path(log)
        return pid

    def wait(self, pid):
        return self._ask(wait=pid), self._logs[pid].read_text()

    def call(self, function, *arguments, log, **options):
        return self.wait(self.start(function, *arguments, log=log, **options))


@functools.cache
def shared_fork_server():
    """The server that all tests of this process share; it ends when its standard input is closed,
    together with this process.
    """
    return ForkServer()


def _serve():
    replies = os.fdopen(os.dup(1), "w")
    do_not_wait_for_disk()
    for name in PRELOADED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # collections in the children would otherwise touch, and so copy, every page
    for line in sys.stdin:
        request = json.loads(line)
        if "wait" in request:
            _, status = os.waitpid(request["wait"], 0)
            reply = os.waitstatus_to_exitcode(status)
        else:
            reply = os.fork()
            if reply == 0:
                _child(**request)
        replies.write(json.dumps(reply) + "\n")
        replies.flush()
    os._exit(0)  # skip the teardown of torch, which takes longer than a child


def _child(function, arguments, options, log, errors, cwd, environment):
    status = 1
    try:
        for path, descriptor in ((log, 1), (errors, 2)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND), descriptor)
        os.chdir(cwd)
        os.environ.update(environment)
        module, name = function.rsplit(".", 1)
        getattr(importlib.import_module(f"support.{module}"), name)(*arguments, **options)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


if __name__ == "__main__":
    _serve()
