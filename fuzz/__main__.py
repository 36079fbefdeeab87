"""The command line: `python -m fuzz [TARGET …] --seconds 60`, or `python -m fuzz --replay FILE TARGET`."""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import sys
import tempfile
from pathlib import Path


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description="Give every reader of files damaged and hostile ones.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help="which readers; all of them by default")
    parser.add_argument("--seconds", type=float, default=60.0, help="for all targets together (default 60)")
    parser.add_argument("--cases", type=int, default=10**12, help="at most so many for each target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=5.0, help="seconds that one case may take (default 5)")
    parser.add_argument(
        "--engine", choices=("auto", "guided", "plain"), default="auto", help="guided needs atheris; auto takes it if it is there"
    )
    parser.add_argument("--findings", type=Path, default=Path("build/fuzz"), help="folder for what was found (default build/fuzz)")
    parser.add_argument("--json", type=Path, help="where to write the summary")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="run one kept case of the one target given")
    chosen = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")

    from fuzz.targets import TARGETS

    unknown = next((name for name in chosen.targets if name not in TARGETS), None)
    if unknown is not None:
        parser.error(f"there is no target {unknown!r}; the targets are {', '.join(TARGETS)}")
    names = chosen.targets or list(TARGETS)
    if chosen.replay:
        if len(names) != 1:
            parser.error("--replay needs the one target that the case is for")
        return replay(names[0], chosen.replay, chosen.limit)
    guided = chosen.engine == "guided" or (chosen.engine == "auto" and importlib.util.find_spec("atheris") is not None)
    results = {}
    for name in names:
        share = chosen.seconds / len(names)
        if guided:
            from fuzz.guided import fuzz_guided

            results[name] = fuzz_guided(name, share, chosen.cases, chosen.seed, chosen.limit, chosen.findings)
        else:
            from fuzz.plain import fuzz_plainly

            results[name] = fuzz_plainly(TARGETS[name], share, chosen.cases, chosen.seed, chosen.limit, chosen.findings)
        found = results[name]
        print(
            f"{name:<12}{found['cases']:>10,} cases  {found['read']:>9,} read  {found['refused']:>9,} refused "
            f"in {found['refusals']:>3} places  {found['seconds']:>7.1f} s  {len(found['findings'])} findings",
            flush=True,
        )
        for finding in found["findings"]:
            print(
                f"    {finding['kind']} at {finding['where']}: {finding['message'].strip().splitlines()[-1][:160]}\n    {finding['replay']}"
            )
    n_findings = sum(len(found["findings"]) for found in results.values())
    print(f"{sum(found['cases'] for found in results.values()):,} cases, {n_findings} findings")
    if chosen.json:
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        summary = summarised(results, "guided" if guided else "plain", chosen.seed, chosen.limit)
        chosen.json.write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    return 1 if n_findings else 0


def summarised(results: dict, engine: str, seed: int, limit: float) -> dict:
    """What ran, for how long, where and with which versions."""
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
        print("read" if outcome.read else f"refused at {outcome.place}")
        return 0
    print(f"{outcome.finding.kind} at {outcome.finding.where}\n{outcome.finding.message}")
    return 1


if __name__ == "__main__":
    sys.exit(main())
