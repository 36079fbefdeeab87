"""The blocks of settings and parts, from their declarations."""

from __future__ import annotations

import re
from functools import partial

from ltpll.cleaning.settings import FRONT, TrainJob
from ltpll.parts import describe_parts
from ltpll.settings import as_toml, expected, option_name, settings_of


def part_names() -> str:
    """The names of all parts, each with a link to its page."""
    kinds: dict[str, list[str]] = {}
    for part in describe_parts():
        kinds.setdefault(part.kind, []).append(f"[`{part.name}`](docs/methods/{part.name}.md)")
    return "\n".join(f"- {kind}s: {', '.join(names)}" for kind, names in kinds.items())


def settings_table(section: str) -> str:
    """The settings of one section, as `ltpll train` declares them."""
    lines = ["| setting | value | default | meaning | option |", "|---|---|---|---|---|"]
    for name, one in settings_of(TrainJob).items():
        if name.partition(".")[0] == section:
            option = f"`{option_name(name)}`" if name in FRONT else "–"
            cells = (
                f"`{name}`",
                _cell(expected(one.kind)),
                "–" if one.default is None else _code(as_toml(one.default)),
                _cell(one.help),
                "the argument `TABLE`" if name == "data.table" else option,
            )
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    """Plain text in a cell of a Markdown table."""
    return re.sub(r"[|*_<\[]", lambda found: f"&#{ord(found[0])};", text.replace("`", ""))


def _code(text: str) -> str:
    """Code in a cell of a Markdown table, in which a backslash would not protect `|`."""
    return f"<code>{_cell(text)}</code>" if "|" in text else f"`{text}`"


BLOCKS = {
    "part-names": part_names,
    **{
        f"settings-{section}": partial(settings_table, section)
        for section in ("data", "table", "columns", "training", "run")
    },
}
