"""Templates: how every report page is rendered, given its content security policy, and written."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from ltpll.errors import required_by
from ltpll.files import write_atomically


@cache
def read_asset(name: str) -> str:
    """A style sheet, a script or a template of this package."""
    return files("ltpll.report").joinpath(name).read_text(encoding="utf-8")


def render(template: str, *, title: str, styles: Sequence[str], scripts: Sequence[str], pictures: str = "data:", **values: Any) -> str:
    """Render a page; its content security policy allows these scripts by their hashes, pictures from these sources, and nothing else."""
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    page: str = _compiled(template).render(title=title, style="".join(styles), scripts=scripts, hashes=hashes, pictures=pictures, **values)
    return page


@cache
def _compiled(name: str) -> Any:
    """The template; compiling takes longer than rendering."""
    with required_by("A report page", install="jinja2"):
        import jinja2
    engine = jinja2.Environment(
        loader=jinja2.FunctionLoader(read_asset),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return engine.get_template(name)


def write(path: Path, page: str) -> None:
    """Write the page; if that fails, an existing file stays as it was."""
    write_atomically(path, page.encode("utf-8", "replace"))
