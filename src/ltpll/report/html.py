"""Frame: what all report pages share: their head with its security policy, how a template becomes a page, and how a page is written."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from ltpll.errors import InputError, required_by
from ltpll.files import write_atomically


@cache
def read_part(name: str) -> str:
    """A style, a script or a template of this package."""
    return files("ltpll.report").joinpath(name).read_text(encoding="utf-8")


def render(template: str, *, title: str, styles: Sequence[str], scripts: Sequence[str], pictures: str = "data:", **values: Any) -> str:
    """A page from the named template; its policy allows these scripts by their hashes, and pictures from these sources."""
    hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    page: str = _compiled(template).render(title=title, style="".join(styles), scripts=scripts, hashes=hashes, pictures=pictures, **values)
    return page


@cache
def _compiled(name: str) -> Any:
    """The template, which takes longer to compile than to fill."""
    with required_by("A report page", install="jinja2"):
        import jinja2
    engine = jinja2.Environment(
        loader=jinja2.FunctionLoader(read_part),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return engine.get_template(name)


def write(path: Path, page: str) -> None:
    """Write the page; if anything fails, one that was there before stays as it was."""
    try:
        write_atomically(path, page.encode("utf-8", "replace"))
    except OSError as error:
        raise InputError(f"The page {path} cannot be written ({error.strerror}): choose another path.") from error
