"""Children that can be killed by the dozen: forked from a process that has imported everything, since importing torch takes seconds."""

import functools
import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path

from support.processes import environment_of_tests

# Not ltpll.cli: how wide it prints is settled by the environment in which it is imported.
PRELOADED = ("torch._dynamo", "ltpll.estimator", "ltpll.experiments.paper.launch", "sklearn.metrics", "typer", "rich.progress", "survivors")


class Forks:
    """`start("module.function", …)` calls a function in a child and gives its process id, `wait` its exit status and what it printed.

    The status of a child that a signal ended is minus the signal's number, as in `subprocess`.
    """

    def __init__(self):
        # The children sum floats alike only if as many threads share the work.
        # And a commit that is stated need not be looked up by three more processes.
        environment = environment_of_tests(OMP_NUM_THREADS="1", LTPLL_COMMIT="tested")
        self._server = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
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
def shared_forks():
    """One for all tests of this process; it ends with them, since its input then ends."""
    return Forks()


def _serve():
    replies = os.fdopen(os.dup(1), "w")
    for name in PRELOADED:
        importlib.import_module(name)
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
    os._exit(0)  # without taking torch down first, which takes longer than a child


def _child(function, arguments, options, log, errors, cwd, environment):
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # even where the tests run in the background
        for path, descriptor in ((log, 1), (errors, 2)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND), descriptor)
        os.chdir(cwd)
        os.environ.update(environment)
        module, name = function.rsplit(".", 1)
        getattr(importlib.import_module(module), name)(*arguments, **options)
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
