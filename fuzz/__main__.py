"""The command line of the fuzzer: `python -m fuzz [TARGET …] --seconds 60`, or `python -m fuzz
--replay FILE TARGET`.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import tempfile
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m fuzz", description="Feed damaged and hostile files to every reader."
    )
    parser.add_argument(
        "targets", nargs="*", metavar="TARGET", help="readers to fuzz (default: all)"
    )
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="time for all targets together (default 60)"
    )
    parser.add_argument(
        "--cases", type=int, default=10**12, help="maximum number of cases per target"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--limit", type=float, default=5.0, help="time limit per case in seconds (default 5)"
    )
    parser.add_argument(
        "--engine",
        choices=("auto", "guided", "plain"),
        default="auto",
        help="guided needs atheris; auto uses it if it is installed",
    )
    parser.add_argument(
        "--findings",
        type=Path,
        default=Path("build/fuzz"),
        help="folder for findings (default build/fuzz)",
    )
    parser.add_argument("--json", type=Path, help="file for the summary")
    parser.add_argument(
        "--replay", type=Path, metavar="FILE", help="run one saved case of the given target"
    )
    options = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")

    from fuzz.targets import TARGETS

    unknown = next((name for name in options.targets if name not in TARGETS), None)
    if unknown is not None:
        parser.error(f"there is no target {unknown!r}; the targets are {', '.join(TARGETS)}")
    names = options.targets or list(TARGETS)
    if options.replay:
        if len(names) != 1:
            parser.error("--replay needs exactly one target")
        return replay(names[0], options.replay, options.limit)
    guided = options.engine == "guided" or (
        options.engine == "auto" and importlib.util.find_spec("atheris") is not None
    )
    results = {}
    for name in names:
        share = options.seconds / len(names)
        if guided:
            from fuzz.guided import fuzz_guided

            results[name] = fuzz_guided(
                name, share, options.cases, options.seed, options.limit, options.findings
            )
        else:
            from fuzz.plain import fuzz_plainly

            results[name] = fuzz_plainly(
                TARGETS[name], share, options.cases, options.seed, options.limit, options.findings
            )
        found = results[name]
        print(
            f"{name:<12}{found['cases']:>10,} cases  {found['read']:>9,} read  "
            f"{found['refused']:>9,} rejected "
            f"in {found['refusals']:>3} places  {found['seconds']:>7.1f} s  "
            f"{len(found['findings'])} findings",
            flush=True,
        )
        for finding in found["findings"]:
            print(
                f"    {finding['kind']} at {finding['where']}: "
                f"{finding['message'].strip().splitlines()[-1][:160]}\n    {finding['replay']}"
            )
    n_findings = sum(len(found["findings"]) for found in results.values())
    print(f"{sum(found['cases'] for found in results.values()):,} cases, {n_findings} findings")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        summary = summary_of(results, "guided" if guided else "plain", options.seed, options.limit)
        options.json.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    return 1 if n_findings else 0


def summary_of(results: dict, engine: str, seed: int, limit: float) -> dict:
    """The results with the settings, the hardware and the versions of libraries."""
    from importlib import metadata

    from fuzz.guard import MEMORY
    from ltpll.runs.environment import environment

    libraries = ("numpy", "pyarrow", "scipy", "pillow", "safetensors", "PyYAML", "torch")
    return {
        "format": "ltpll-fuzz-1",
        "engine": engine,
        "seed": seed,
        "seconds_per_case": limit,
        "memory_per_case": MEMORY,
        "cases": sum(found["cases"] for found in results.values()),
        "findings": sum(len(found["findings"]) for found in results.values()),
        "seconds": round(sum(found["seconds"] for found in results.values()), 1),
        "environment": environment("cpu") | {name: metadata.version(name) for name in libraries},
        "targets": results,
    }


def replay(name: str, file: Path, limit: float) -> int:
    from fuzz.cases import Runner
    from fuzz.guard import Guard, limit_memory
    from fuzz.targets import TARGETS

    TARGETS[name].cases()
    with tempfile.TemporaryDirectory(prefix="ltpll-fuzz-") as folder:
        guard = Guard(Path(folder))
        runner = Runner(TARGETS[name], Path(folder), guard, limit)
        guard.start()
        limit_memory()
        outcome = runner(file.read_bytes())
    if outcome.finding is None:
        print("read" if outcome.read else f"rejected at {outcome.place}")
        return 0
    print(f"{outcome.finding.kind} at {outcome.finding.where}\n{outcome.finding.message}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
