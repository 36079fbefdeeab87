"""Known weaknesses of the pinned versions, from a package index's own advisories: `python tools/audit.py INDEX --json results/audit.json`.

For places where `make audit` (pip-audit) cannot be used, since only the entries of newest versions are served: a version that is not the
newest one is then not known, and is listed as such.
"""

from __future__ import annotations

import argparse
import datetime
import json
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
Entry = dict[str, Any]
Fetch = Callable[[str], Entry | None]
"""What the index says under a path, or None if there is nothing."""


def pinned(constraints: str) -> list[tuple[str, str]]:
    """Names and versions; what a build adds behind a plus sign is no version of the index."""
    return re.findall(r"^([A-Za-z0-9_.-]+)==([^\s;+]+)", constraints, flags=re.M)


def judged(name: str, version: str, fetch: Fetch) -> Entry:
    """The advisories of one version; `known` is whether the index has said anything about this one."""
    entry = fetch(f"{name}/{version}")
    if entry is None:
        entry = fetch(name)
    if entry is None:
        return {"version": version, "known": False, "newest": None, "advisories": []}
    newest = entry["info"]["version"]
    known = newest == version
    advisories = [one["id"] for one in entry["vulnerabilities"] if not one.get("withdrawn")] if known else []
    return {"version": version, "known": known, "newest": newest, "advisories": advisories}


def fetch_from(index: str) -> Fetch:
    def fetch(path: str) -> Entry | None:
        try:
            with urllib.request.urlopen(f"{index.rstrip('/')}/pypi/{path}/json", timeout=30) as answer:
                found: Entry = json.load(answer)
                return found
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise

    return fetch


def main() -> int:
    parser = argparse.ArgumentParser(description="Look the pinned versions up in a package index's advisories.")
    parser.add_argument("index", metavar="INDEX", help="address of the index; INDEX/pypi/NAME/json has the entries")
    parser.add_argument("--json", type=Path, help="where to write what was found")
    chosen = parser.parse_args()
    versions = pinned((ROOT / "constraints.txt").read_text(encoding="utf-8"))
    fetch = fetch_from(chosen.index)
    with ThreadPoolExecutor(8) as pool:
        found = dict(zip((name for name, _ in versions), pool.map(lambda one: judged(*one, fetch), versions), strict=True))
    weak = {name: one for name, one in found.items() if one["advisories"]}
    unknown = {name: one for name, one in found.items() if not one["known"]}
    for name, one in weak.items():
        print(f"{name} {one['version']}: {', '.join(one['advisories'])}")
    for name, one in unknown.items():
        print(f"{name} {one['version']}: not known; the newest is {one['newest'] or 'not there'}")
    print(f"{len(found)} packages, {len(weak)} with advisories, {len(unknown)} not known")
    if chosen.json:
        record = {"format": "ltpll-audit-1", "date": datetime.date.today().isoformat(), "packages": found}
        chosen.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return 1 if weak or unknown else 0


if __name__ == "__main__":
    sys.exit(main())
