"""Every module of the packages, with its first sentence and what it defines, for
docs/architecture.md.
"""

from __future__ import annotations

import ast
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = (ROOT / "src" / "ltpll", ROOT / "research" / "src" / "ltpll_research")


def module_map() -> str:
    """A list of modules for each folder, the top level first."""
    lines: list[str] = []
    for package in PACKAGES:
        folders = sorted({path.parent for path in package.rglob("*.py")})
        for folder in folders:
            found = [line_of(path) for path in sorted(folder.glob("*.py"))]
            name = folder.relative_to(package.parent).as_posix()
            lines += [f"**{name}/**", "", *filter(None, found), ""]
    return "\n".join(lines).rstrip()


def line_of(path: Path) -> str:
    """The line of a module; empty for one that only makes a folder a package."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    defined = [
        f"`{one.name}`"
        for one in tree.body
        if isinstance(one, ast.ClassDef | ast.FunctionDef) and not one.name.startswith("_")
    ]
    if path.stem == "__init__" and not defined:
        return ""
    first = (ast.get_docstring(tree) or "").partition("\n\n")[0]
    sentence = " ".join(first.split()).rstrip(".").replace("|", "&#124;")
    return f"- `{path.stem}`: {sentence}{': ' if defined else ''}{', '.join(defined)}."
