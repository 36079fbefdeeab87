"""Fills the generated blocks of the README and the docs from the registries and from the records in
results/.

A block stands between `<!-- begin NAME -->` and `<!-- end NAME -->`; nothing in it is typed by
hand. `--check` only compares. The blocks are in `docs_blocks`, by page.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from docs_blocks import (
    beyond,
    cleaning,
    committee,
    methods,
    origins,
    performance,
    photos,
    reliability,
    reproduction,
    settings,
    studies,
    tables,
)
from docs_blocks.common import ROOT
from ltpll.errors import InputError
from module_map import module_map

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCKS: dict[str, Callable[[], str]] = {
    "module-map": module_map,
    **settings.BLOCKS,
    **studies.BLOCKS,
    **performance.BLOCKS,
    **tables.BLOCKS,
    **committee.BLOCKS,
    **cleaning.BLOCKS,
    **origins.BLOCKS,
    **methods.BLOCKS,
    **beyond.BLOCKS,
    **photos.BLOCKS,
    **reproduction.BLOCKS,
    **reliability.BLOCKS,
}


def rendered(text: str) -> str:
    def fill(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in BLOCKS:
            raise InputError(f"There is no block {name!r}; available: {', '.join(BLOCKS)}.")
        return f"<!-- begin {name} -->\n{BLOCKS[name]()}\n<!-- end {name} -->"

    return re.sub(
        r"<!-- begin (?P<name>[\w-]+) -->.*?<!-- end (?P=name) -->", fill, text, flags=re.S
    )


def update(pages: Mapping[Path, str | None], *, check: bool) -> int:
    """Write the pages that are out of date and delete those whose text is None; with `check`, only
    name them and return 1.
    """
    stale = {
        path: text
        for path, text in pages.items()
        if text != (path.read_text(encoding="utf-8") if path.exists() else None)
    }
    if stale:
        print(
            ("out of date: " if check else "rendered: ")
            + ", ".join(str(path.relative_to(ROOT)) for path in stale)
        )
    if check:
        return int(bool(stale))
    for path, text in stale.items():
        if text is None:
            path.unlink()
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return 0


def main(arguments: Sequence[str]) -> int:
    pages = {path: rendered(path.read_text(encoding="utf-8")) for path in PAGES}
    return update(pages, check="--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
