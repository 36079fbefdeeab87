"""Templates: how every report page is rendered, given its content security policy, and written."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Any

from ltpll.errors import required_by
from ltpll.files import write_atomically

BIDI_CONTROLS = dict.fromkeys(
    [*range(0x202A, 0x202F), *range(0x2066, 0x206A)], "\N{REPLACEMENT CHARACTER}"
)
JSON_TEXT = re.compile(r'("(?:[^"\\]|\\.)*")')


@cache
def read_asset(name: str, package: str = "ltpll.report") -> str:
    """A style sheet, a script or a template of this package, or of another one."""
    own = files(package).joinpath(name)
    return (own if own.is_file() else files("ltpll.report").joinpath(name)).read_text(
        encoding="utf-8"
    )


def without_bidi_controls(text: str) -> str:
    """Replace the characters with which a text could reorder itself and what surrounds it."""
    return text.translate(BIDI_CONTROLS)


def markup(text: str) -> Any:
    """Text that needs no escaping."""
    with required_by("A report page", install="jinja2"):
        from markupsafe import Markup
    return Markup(text)


def bdi(text: object) -> Any:
    """A user's text as markup: text in another direction stays by itself."""
    return markup("<bdi>{}</bdi>").format(without_bidi_controls(str(text)))


def with_code(sentence: str) -> Any:
    """A sentence as markup, in which what stands between backticks is code."""
    parts = without_bidi_controls(sentence).split("`")
    if len(parts) % 2 == 0:
        return sentence
    code = markup("<code>{}</code>")
    return markup("").join(code.format(one) if k % 2 else one for k, one in enumerate(parts))


def json_markup(value: object, *, sort_keys: bool = False) -> Any:
    """A value as indented JSON, in which every text stays by itself."""
    text = json.dumps(value, indent=2, sort_keys=sort_keys, ensure_ascii=False)
    return markup("").join(
        bdi(part) if part.startswith('"') else part for part in JSON_TEXT.split(text)
    )


def jpeg_url(picture: bytes) -> str:
    """A picture as part of the page."""
    return "data:image/jpeg;base64," + base64.b64encode(picture).decode()


def percent(share: float) -> str:
    return "–" if share != share else f"{share:.1%}"  # NaN


def render(
    template: str,
    *,
    title: str,
    styles: Sequence[str],
    scripts: Sequence[str],
    pictures: str = "data:",
    connect: str = "'none'",
    package: str = "ltpll.report",
    **values: Any,
) -> str:
    """Render a page, whose template is in `package`.

    Its content security policy allows these scripts by their hashes, pictures and connections from
    and to these sources, and nothing else.
    """
    hashes = [
        base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts
    ]
    page: str = _compiled(template, package).render(
        title=title,
        style="".join(styles),
        scripts=scripts,
        hashes=hashes,
        pictures=pictures,
        connect=connect,
        **values,
    )
    return page


@cache
def _compiled(name: str, package: str) -> Any:
    """The template; compiling takes longer than rendering."""
    with required_by("A report page", install="jinja2"):
        import jinja2
    engine = jinja2.Environment(
        loader=jinja2.FunctionLoader(partial(read_asset, package=package)),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: without_bidi_controls(value) if type(value) is str else value,
    )
    engine.filters |= {"bdi": bdi, "code": with_code, "percent": percent, "number": "{:,}".format}
    return engine.get_template(name)


def write(path: Path, page: str) -> None:
    """Write the page; if that fails, an existing file stays as it was."""
    write_atomically(path, page.encode("utf-8", "replace"))
