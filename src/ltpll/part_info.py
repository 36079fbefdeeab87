"""What each method, rebalancer and extra is, from its source: `ltpll list` does not import
torch.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

KINDS = {"methods": "method", "rebalancers": "rebalancer", "extras": "extra"}


@dataclass(frozen=True)
class PartInfo:
    """A part and its description, from the first sentence of its module.

    Args:
        kind: What it is: "method", "rebalancer" or "extra".
        name: Its name.
        source: Where it was published; empty if nowhere.
        idea: What it does.
        file: The file of its class.
    """

    kind: str
    name: str
    source: str
    idea: str
    file: str

    @property
    def citation(self) -> str:
        """The source without the name of the part; a dash if there is none."""
        return self.source.partition(" (")[2].removesuffix(")") or "–"

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
            tree = ast.parse(path.read_text(encoding="utf-8"))
            docstring = ast.get_docstring(tree) or ""
            for name in _names_of_parts(tree):
                file = path.relative_to(package.parent).as_posix()
                yield PartInfo.of_docstring(kind, name, docstring, file)


def _names_of_parts(tree: ast.Module) -> Iterator[str]:
    """The class attributes `name` of a module."""
    for one in tree.body:
        body = one.body if isinstance(one, ast.ClassDef) else []
        for line in (line for line in body if isinstance(line, ast.Assign)):
            if ast.unparse(line.targets[0]) == "name" and isinstance(line.value, ast.Constant):
                yield str(line.value.value)
