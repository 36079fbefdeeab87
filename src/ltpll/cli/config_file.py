"""Config files: small YAML files of `name: value` lines, read within limits because aliases can expand without bound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ltpll.errors import InputError, first_line, printable, required_by

LARGEST = 1 << 14  # bytes
DEEPEST = 6
MOST_BRACKETS = 100  # the parser takes quadratic time in the number of open brackets


def read_config(path: Path | None) -> dict[str, Any]:
    """The entries of a config file; empty if `path` is None."""
    if path is None:
        return {}
    with required_by("A config file", install="pyyaml"):
        import yaml
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST + 1)
        if len(text) > LARGEST:
            raise InputError(
                f"The config file {path} is larger than {LARGEST >> 10} KiB: it must contain `name: value` lines."
            )
        content = _loaded(text.decode("utf-8-sig"))
    except FileNotFoundError:
        raise InputError(f"There is no config file {path}.") from None
    except InputError:
        raise
    except yaml.MarkedYAMLError as error:
        where = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise InputError(
            f"The config file {path} cannot be read{where}: {printable(error.problem or 'not YAML')[:200]}."
        ) from None
    except Exception as error:  # PyYAML also raises IndexError, ValueError and others
        raise InputError(f"The config file {path} cannot be read: {first_line(error)}.") from None
    if not isinstance(content, dict):
        raise InputError(f"The config file {path} must contain `name: value` lines.")
    return content


def _loaded(text: str) -> Any:
    """The content, parsed only after a first pass has found no aliases and no deep nesting."""
    import yaml

    if text.count("[") + text.count("{") > MOST_BRACKETS:
        raise ValueError("it has too many brackets")
    depth = 0
    for event in yaml.parse(text, yaml.SafeLoader):
        if isinstance(event, yaml.AliasEvent):
            raise ValueError(
                "aliases (*name) are not supported; write the value out in both places"
            )
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(
            event, yaml.CollectionEndEvent
        )
        if depth > DEEPEST:
            raise ValueError("its lists are nested too deeply")
    return yaml.safe_load(text)
