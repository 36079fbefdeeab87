"""Looks up security advisories for the pinned versions in a package index: `python tools/audit.py INDEX --json results/audit.json`.

Use it where `make audit` (pip-audit) does not work because the index serves only the newest version
of each package. Other pinned
versions are listed as unknown.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pins import parse_pins

ROOT = Path(__file__).parents[1]
Entry = dict[str, Any]
Fetch = Callable[[str], Entry | None]
"""Returns the entry of the index under a path, or None if there is none."""


def pinned(constraints: str) -> list[tuple[str, str]]:
    """The names and public versions of all pins; the index does not know local versions such as 2.0+cpu."""
    return [(name, version.partition("+")[0]) for name, version in parse_pins(constraints)]


def advisories_of(name: str, version: str, fetch: Fetch) -> Entry:
    """The advisories of one version; `known` tells whether the index has an entry for this version."""
    entry = fetch(f"{name}/{version}")
    if entry is None:
        entry = fetch(name)
    if entry is None:
        return {"version": version, "known": False, "newest": None, "advisories": []}
    newest = entry["info"]["version"]
    known = newest == version
    advisories = (
        [advisory["id"] for advisory in entry["vulnerabilities"] if not advisory.get("withdrawn")]
        if known
        else []
    )
    return {"version": version, "known": known, "newest": newest, "advisories": advisories}


def fetch_from(index: str) -> Fetch:
    def fetch(path: str) -> Entry | None:
        try:
            with urllib.request.urlopen(
                f"{index.rstrip('/')}/pypi/{path}/json", timeout=30
            ) as answer:
                found: Entry = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise

    return fetch


def main() -> int:
    parser = argparse.ArgumentParser(
        description="Look up security advisories for the pinned versions in a package index."
    )
    parser.add_argument(
        "index", metavar="INDEX", help="address of the index, which serves INDEX/pypi/NAME/json"
    )
    parser.add_argument("--json", type=Path, help="file to write the results to")
    options = parser.parse_args()
    versions = pinned((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    fetch = fetch_from(options.index)
    with ThreadPoolExecutor(8) as pool:
        found = dict(
            zip(
                (name for name, _ in versions),
                pool.map(lambda pin: advisories_of(*pin, fetch), versions),
                strict=True,
            )
        )
    vulnerable = {name: entry for name, entry in found.items() if entry["advisories"]}
    unknown = {name: entry for name, entry in found.items() if not entry["known"]}
    for name, entry in vulnerable.items():
        print(f"{name} {entry['version']}: {', '.join(entry['advisories'])}")
    for name, entry in unknown.items():
        print(
            f"{name} {entry['version']}: unknown; the newest version is {entry['newest'] or 'unknown too'}"
        )
    print(f"{len(found)} packages, {len(vulnerable)} with advisories, {len(unknown)} unknown")
    if options.json:
        record = {
            "format": "ltpll-audit-1",
            "date": datetime.date.today().isoformat(),
            "packages": found,
        }
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 1 if vulnerable or unknown else 0


if __name__ == "__main__":
    sys.exit(main())
