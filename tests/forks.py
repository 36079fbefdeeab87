"""Children that can be killed by the dozen: forked from a process that has imported everything, since importing torch takes seconds."""

import importlib
import json
import os
import signal
import subprocess
import sys
import traceback
from pathlib import Path

PRELOADED = ("torch._dynamo", "ltpll.cli", "ltpll.paper.launch", "sklearn.metrics", "survivors")


class Forks:
    """`start("module.function", …)` calls a function in a child and gives its process id, `wait` its exit status and what it printed.

    The status of a child that a signal ended is minus the signal's number, as in `subprocess`.
    """

    def __enter__(self):
        # The children sum floats alike only if as many threads share the work.
        # And a commit that is stated need not be looked up by three more processes.
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "LTPLL_COMMIT": "tested", "PYTHONPATH": os.pathsep.join(sys.path)}
        self._server = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, text=True
        )
        self._logs = {}
        return self

    def __exit__(self, *_):
        self._server.stdin.close()
        self._server.wait(timeout=60)
        self._server.stdout.close()

    def _ask(self, **request):
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        return json.loads(self._server.stdout.readline())

    def start(self, function, *arguments, log, **options):
        pid = self._ask(function=function, arguments=arguments, options=options, log=str(log))
        self._logs[pid] = Path(log)
        return pid

    def wait(self, pid):
        return self._ask(wait=pid), self._logs[pid].read_text()

    def call(self, function, *arguments, log, **options):
        return self.wait(self.start(function, *arguments, log=log, **options))


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


def _child(function, arguments, options, log):
    status = 1
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # even where the tests run in the background
        target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(target, 1)
        os.dup2(target, 2)
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
