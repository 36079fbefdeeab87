"""The plain engine: runs mutated cases in a child process, which may die; needs no other
package.
"""

from __future__ import annotations

import faulthandler
import mmap
import os
import pickle
import random
import signal
import struct
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

from fuzz.cases import Finding, Runner, smaller
from fuzz.guard import Guard, limit_memory
from fuzz.targets import Target
from ltpll.tables import guarded

SHARED_BYTES = 1 << 20  # memory shared with the child process: counters and the current case
COUNTERS = struct.Struct("<QQQQI")  # cases, read, rejected, places, length of the case
MOST_CORPUS = 3000
GRACE = 5.0  # seconds


def fuzz_plainly(
    target: Target, seconds: float, cases: int, seed: int, limit: float, findings: Path
) -> dict[str, Any]:
    """Run until the time or the number of cases is used up; if the child process dies, save its
    case and start another one.
    """
    started = time.monotonic()
    shared = mmap.mmap(-1, SHARED_BYTES)
    found: dict[tuple[str, str], Finding] = {}
    times: dict[tuple[str, str], int] = {}
    total = {"cases": 0, "read": 0, "refused": 0}
    places: set[str] = set()
    deaths = 0
    with tempfile.TemporaryDirectory(prefix="ltpll-fuzz-") as folder:
        while (left := seconds - (time.monotonic() - started)) > 0 and total["cases"] < cases:
            shared[: COUNTERS.size] = COUNTERS.pack(0, 0, 0, 0, 0)
            reading, writing = os.pipe()
            child = os.fork()
            if child == 0:
                os.close(reading)
                status, errors = 1, os.dup(2)
                try:
                    os.dup2(
                        os.open(os.devnull, os.O_WRONLY), 2
                    )  # decoders written in C print warnings
                    faulthandler.disable()
                    _run(
                        target,
                        Path(folder),
                        shared,
                        writing,
                        left,
                        cases - total["cases"],
                        f"{seed}/{total['cases']}",
                        limit,
                    )
                    status = 0
                except BaseException:
                    os.dup2(errors, 2)
                    traceback.print_exc()
                finally:
                    sys.stderr.flush()
                    os._exit(status)
            os.close(writing)
            status, sent = _watch(child, reading, shared, limit)
            n, read, refused, _, length = COUNTERS.unpack(shared[: COUNTERS.size])
            for key, value in (("cases", n), ("read", read), ("refused", refused)):
                total[key] += value
            for item in sent:
                if isinstance(item, str):
                    places.add(item)
                    continue
                key = (item.kind, item.where)
                times[key] = times.get(key, 0) + 1
                if key not in found or len(item.case) < len(found[key].case):
                    found[key] = item
            if status != 0:
                deaths += 1
                case = bytes(shared[COUNTERS.size : COUNTERS.size + length])
                kind = f"died-{signal.Signals(-status).name}" if status < 0 else f"exit-{status}"
                item = Finding(target.name, kind, f"death {deaths}", "the process died", case)
                found[(kind, item.where)] = item
                if deaths > 50:
                    break
    about = []
    for key, item in found.items():
        about.append(item.save(findings) | {"times": times.get(key, 1)})
    return {
        **total,
        "refusals": len(places),
        "seconds": round(time.monotonic() - started, 1),
        "findings": about,
    }


def _watch(child: int, reading: int, shared: mmap.mmap, limit: float) -> tuple[int, list[Any]]:
    """Wait for the child process, kill it if a case does not return, and collect what it sends."""
    os.set_blocking(reading, False)
    received = bytearray()
    last, since = -1, time.monotonic()
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        try:
            while chunk := os.read(reading, 1 << 16):
                received += chunk
        except BlockingIOError:
            pass
        if ended:
            break
        now = COUNTERS.unpack(shared[: COUNTERS.size])[0]
        if now != last:
            last, since = now, time.monotonic()
        elif last > 0 and time.monotonic() - since > 2 * limit + GRACE:
            os.kill(
                child, signal.SIGKILL
            )  # it hangs in native code, where Python runs no signal handlers
        time.sleep(0.05)
    os.close(reading)
    return os.waitstatus_to_exitcode(status), _items(bytes(received))


def _items(received: bytes) -> list[Any]:
    items, position = [], 0
    while position + 4 <= len(received):
        (size,) = struct.unpack("<I", received[position : position + 4])
        if position + 4 + size > len(received):
            break
        items.append(
            pickle.loads(received[position + 4 : position + 4 + size])
        )  # from our own child
        position += 4 + size
    return items


def _run(
    target: Target,
    folder: Path,
    shared: mmap.mmap,
    writing: int,
    seconds: float,
    cases: int,
    seed: str,
    limit: float,
) -> None:
    """Run cases in the child process; cases that are rejected in a new place join the corpus."""
    until = time.monotonic() + seconds
    rng = random.Random(seed)
    corpus = target.cases()
    guard = Guard(folder)
    runner = Runner(target, folder, guard, limit)
    guarded.SECONDS = limit
    guard.start()
    limit_memory()
    known: set[str] = set()
    seen: set[tuple[str, str]] = set()
    n = read = refused = 0

    def send(item: Any) -> None:
        content = pickle.dumps(item)
        os.set_blocking(writing, True)
        os.write(writing, struct.pack("<I", len(content)) + content)

    while n < cases and time.monotonic() < until:
        case = (
            corpus[n]
            if n < len(corpus) and n < 200
            else target.mutate(rng, rng.choice(corpus), corpus)
        )
        n += 1
        shared[: COUNTERS.size] = COUNTERS.pack(n, read, refused, len(known), len(case))
        shared[COUNTERS.size : COUNTERS.size + len(case)] = case
        outcome = runner(case)
        read, refused = (
            read + outcome.read,
            refused + bool(not outcome.read and outcome.finding is None),
        )
        if outcome.place not in known and outcome.finding is None:
            known.add(outcome.place)
            send(outcome.place)
            if len(corpus) < MOST_CORPUS:
                corpus.append(case)
        if (
            outcome.finding is not None
            and (outcome.finding.kind, outcome.finding.where) not in seen
        ):
            seen.add((outcome.finding.kind, outcome.finding.where))
            send(
                smaller(runner, outcome.finding)
                if outcome.finding.kind not in ("slow", "MemoryError")
                else outcome.finding
            )
    shared[: COUNTERS.size] = COUNTERS.pack(n, read, refused, len(known), 0)
