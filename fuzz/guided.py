"""The guided engine: atheris (libFuzzer for Python) searches for cases that reach new lines of
ltpll; needs `pip install atheris`.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from fuzz.guard import MEMORY

GRACE = 120.0  # seconds for imports and seeds
KEEP_EVERY = (
    500  # cases between two writes of the counters; libFuzzer ends the process without warning
)


def fuzz_guided(
    name: str, seconds: float, cases: int, seed: int, limit: float, findings: Path
) -> dict[str, Any]:
    """Run in a separate process, restarted whenever it dies, until the time or the number of cases
    is used up.
    """
    started = time.monotonic()
    total: dict[str, Any] = {"cases": 0, "read": 0, "refused": 0}
    places: set[str] = set()
    found: dict[tuple[str, str], dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="ltpll-fuzz-") as folder:
        home = Path(folder)
        while (
            (left := seconds - (time.monotonic() - started)) > 1
            and total["cases"] < cases
            and len(found) <= 50
        ):
            state = {
                "name": name,
                "home": folder,
                "limit": limit,
                "findings": str(findings),
                "seed": seed + total["cases"],
            }
            state |= {"seconds": left, "cases": cases - total["cases"]}
            command = [
                sys.executable,
                "-m",
                "fuzz.guided",
                json.dumps(state),
                f"-timeout={int(2 * limit) + 5}",
            ]
            try:
                done: Any = subprocess.run(
                    command,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.PIPE,
                    check=False,
                    timeout=left + 2 * limit + GRACE,
                )
            except subprocess.TimeoutExpired as late:
                done = subprocess.CompletedProcess(
                    command, -9, stderr=late.stderr or b"the process did not return"
                )
            counted = (
                json.loads((home / "counters.json").read_text())
                if (home / "counters.json").exists()
                else {}
            )
            for key in ("cases", "read", "refused"):
                total[key] += counted.get(key, 0)
            places |= set(counted.get("places", ()))
            for finding in counted.get("findings", ()):
                found[(finding["kind"], finding["where"])] = finding
            (home / "counters.json").unlink(missing_ok=True)
            if done.returncode == 0:
                break
            _keep_death(name, home, findings, found, done)
    return {
        **total,
        "refusals": len(places),
        "seconds": round(time.monotonic() - started, 1),
        "findings": list(found.values()),
    }


def _keep_death(
    name: str, home: Path, findings: Path, found: dict[tuple[str, str], dict[str, Any]], done: Any
) -> None:
    """Save the case that libFuzzer wrote when the process died."""
    from fuzz.cases import Finding

    left = [path for path in home.iterdir() if path.name.startswith(("crash-", "timeout-", "oom-"))]
    words = done.stderr.decode("utf-8", "replace")[-1500:]
    for path in left:
        kind = f"died-{path.name.partition('-')[0]}"
        item = Finding(name, kind, f"death {len(found) + 1}", words, path.read_bytes())
        found[(kind, item.where)] = item.save(findings)
        path.unlink()
    if not left:
        item = Finding(name, f"exit-{done.returncode}", f"death {len(found) + 1}", words, b"")
        found[(item.kind, item.where)] = item.save(findings)


def main() -> None:
    """The process that runs cases and may die."""
    import atheris  # type: ignore[import-not-found]

    state = json.loads(sys.argv[1])
    home = Path(state["home"])
    with atheris.instrument_imports(include=["ltpll", "ltpll_research"]):
        from fuzz.cases import Runner, smaller
        from fuzz.guard import Guard, limit_memory
        from fuzz.targets import TARGETS

    until = time.monotonic() + state["seconds"]
    target = TARGETS[state["name"]]
    seeds = target.cases()
    corpus = home / "corpus"
    corpus.mkdir(exist_ok=True)
    for i, case in enumerate(seeds):
        (corpus / f"seed-{i:04}").write_bytes(case)
    guard = Guard(home)
    runner = Runner(target, home, guard, state["limit"])
    rng = random.Random(state["seed"])
    counted: dict[str, Any] = {"cases": 0, "read": 0, "refused": 0, "places": [], "findings": []}
    places: set[str] = set()
    seen: set[tuple[str, str]] = set()

    def keep() -> None:
        temporary = home / "counters.tmp"
        temporary.write_text(json.dumps(counted | {"places": sorted(places)}))
        temporary.replace(home / "counters.json")

    def run_case(case: bytes) -> None:
        outcome = runner(case)
        counted["cases"] += 1
        counted["read"] += outcome.read
        if outcome.finding is None:
            counted["refused"] += not outcome.read
            places.add(outcome.place)
        elif (key := (outcome.finding.kind, outcome.finding.where)) not in seen:
            seen.add(key)
            finding = (
                outcome.finding
                if outcome.finding.kind in ("slow", "MemoryError")
                else smaller(runner, outcome.finding)
            )
            counted["findings"].append(finding.save(Path(state["findings"])))
            keep()
        ended = time.monotonic() > until or counted["cases"] >= state["cases"]
        if ended or counted["cases"] % KEEP_EVERY == 0:
            keep()
        if ended:
            os._exit(0)  # libFuzzer would wait for pyarrow threads that wait for this one

    def mutate(case: bytes, most: int, seed: int) -> bytes:
        kind = rng.random()
        if kind < 0.4:
            return bytes(atheris.Mutate(case, most))[:most]
        # Often start from a valid file: most cases that reach a new line are rejected, and so are
        # cases derived from them.
        return target.mutate(
            random.Random(seed), case if kind < 0.65 else rng.choice(seeds), seeds
        )[:most]

    options = [
        f"-artifact_prefix={home}/",
        "-max_len=65536",
        "-len_control=0",
        "-mutate_depth=2",
        "-verbosity=0",
    ]
    # The guard limits memory, as in the plain engine.
    options += ["-rss_limit_mb=0", "-malloc_limit_mb=0", f"-seed={state['seed'] % 2**31 or 1}"]
    atheris.Setup(
        [sys.argv[0], *options, *sys.argv[2:], str(corpus)], run_case, custom_mutator=mutate
    )
    guard.start()
    limit_memory(MEMORY + (1 << 30))  # plus libFuzzer's own tables
    keep()
    atheris.Fuzz()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    main()
