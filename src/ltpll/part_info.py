"""What each method, rebalancer and extra is, from its source: `ltpll list` does not import
torch.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

KINDS = {"methods": "method", "rebalancers": "rebalancer", "extras": "extra"}


@dataclass(frozen=True)
class PartInfo:
    """A part and its description, from the first sentence of its module."""

    kind: str
    name: str
    source: str  # where it was published; empty if nowhere
    idea: str
    file: str

    @classmethod
    def of_docstring(cls, kind: str, name: str, docstring: str, file: str) -> PartInfo:
        """The description of a part by the docstring of its module."""
        first = " ".join(docstring.strip().partition("\n\n")[0].split())
        # The citation ends with a parenthesis, since its title may contain a colon.
        before, separator, idea = first.partition("): ")
        if separator:
            return cls(kind, name, f"{before})", idea, file)
        return cls(kind, name, "", first.partition(": ")[2] or first, file)


def built_in_parts() -> Iterator[PartInfo]:
    """Every method, rebalancer and extra of this package."""
    package = Path(__file__).parent
    for folder, kind in KINDS.items():
        for path in sorted((package / folder).glob("*.py")):
            text = path.read_text(encoding="utf-8")
            docstring = ast.get_docstring(ast.parse(text)) or ""
            for name in re.findall(r'^    name = "(.+)"', text, re.MULTILINE):
                file = path.relative_to(package.parent).as_posix()
                yield PartInfo.of_docstring(kind, name, docstring, file)
