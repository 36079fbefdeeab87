"""The blocks of docs/reliability.md."""

from __future__ import annotations

import json
from collections.abc import Sequence

from docs_blocks.common import ROOT, block, record_of
from ltpll.runs.run import Record


def fuzz_record(name: str) -> Record:
    found: Record = json.loads(
        (ROOT / "results" / "fuzz" / f"{name}.json").read_text(encoding="utf-8")
    )
    return found


def fuzz_table() -> str:
    """The number of cases per reader and their outcomes, for both engines."""
    runs = [
        fuzz_record(path.stem)
        for path in sorted((ROOT / "results" / "fuzz").glob("*.json"))
        if path.stem != "findings"
    ]
    lines = [
        "| reader | cases | read | rejected with a message | findings |",
        "|---|---:|---:|---:|---:|",
    ]

    def table_row(name: str, results: Sequence[Record]) -> str:
        sums = [sum(result[key] for result in results) for key in ("cases", "read", "refused")]
        return (
            f"| {name} | {sums[0]:,} | {sums[1]:,} | {sums[2]:,} | "
            f"{sum(len(result['findings']) for result in results)} |"
        )

    lines += [
        table_row(f"`{name}`", [run["targets"][name] for run in runs if name in run["targets"]])
        for name in dict.fromkeys(n for run in runs for n in run["targets"])
    ]
    lines.append(table_row("all", [result for run in runs for result in run["targets"].values()]))
    engines = " ".join(
        f"{run['engine'].capitalize()} engine: {run['cases']:,} cases in "
        f"{run['seconds'] / 60:.0f} minutes, "
        f"commit {run['environment']['commit']}."
        for run in runs
    )
    made = runs[0]["environment"]
    versions = ", ".join(
        f"{name} {made[name]}"
        for name in ("numpy", "pyarrow", "pillow", "safetensors", "PyYAML", "torch")
    )
    return block(
        lines, f"*{engines} {made['hardware']}, one process, Python {made['python']}; {versions}.*"
    )


def fuzz_findings() -> str:
    lines = ["| reader | finding | fix | test |", "|---|---|---|---|"]
    lines += [
        f"| {finding['target']} | {finding['what']} | {finding['fix']} | `{finding['test']}` |"
        for finding in fuzz_record("findings")["findings"]
    ]
    return "\n".join(lines)


def audit_summary() -> str:
    """Security advisories of the pinned versions, from `tools/audit.py`."""
    record: Record = record_of("audit.json")
    packages = record["packages"]
    vulnerable = [
        f"{name} {entry['version']} ({', '.join(entry['advisories'])})"
        for name, entry in packages.items()
        if entry["advisories"]
    ]
    unknown = [
        f"{name} {entry['version']}" for name, entry in packages.items() if not entry["known"]
    ]
    known = len(packages) - len(unknown)
    return (
        f"*{record['date']}, {len(packages)} packages: {known} looked up, "
        f"{len(vulnerable) or 'none'} with an "
        f"advisory{': ' + ', '.join(vulnerable) if vulnerable else ''}. "
        f"Not looked up, since not the newest version: {', '.join(unknown) or 'none'}.*"
    )


BLOCKS = {
    "audit": audit_summary,
    "fuzz": fuzz_table,
    "fuzz-findings": fuzz_findings,
}
