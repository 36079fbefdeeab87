"""Copies the results of finished runs to results/, one small file per run, and deletes older
results of the same study.

Usage: python tools/keep_results.py RUNS, where RUNS is the `--out` folder of a study.
"""

from __future__ import annotations

import sys
from pathlib import Path

import ltpll_research  # noqa: F401 - it knows what the record of a study must hold
from ltpll.runs.run import read_result

RESULTS = Path(__file__).resolve().parents[1] / "results"


def main(runs: Path) -> int:
    finished = sorted(marker.parent / "result.json" for marker in runs.glob("*/*/done"))
    if not finished:
        print(f"error: there are no finished runs in {runs}.", file=sys.stderr)
        return 2
    records = [
        (path, read_result(path)) for path in finished
    ]  # read them all before deleting anything
    for study in {record["config"]["study"] for _, record in records}:
        for old in (RESULTS / study).glob("*.json"):
            old.unlink()
    for path, record in records:
        target = RESULTS / record["config"]["study"] / f"{record['key']}.json"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())
    print(f"copied {len(records)} results to {RESULTS.name}/")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])) if len(sys.argv) == 2 else 2)
