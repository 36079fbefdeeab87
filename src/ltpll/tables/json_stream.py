"""JSON files: their items, one at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ltpll.errors import InputError, first_line
from ltpll.formatting import format_bytes
from ltpll.tables.memory_limits import check_expansion
from ltpll.tables.streaming import ReadProgress

JSON_SUFFIXES = (".json", ".jsonl", ".ndjson")
LINES = (".jsonl", ".ndjson")  # one value per line, without brackets around them
LONGEST = 32 << 20  # bytes of a line
GROWTH = 16  # bytes that a byte of JSON takes in memory, at most, for each copy


class Item(NamedTuple):
    """An entry of a list at the top of a file, or a member of an object there.

    Members that are lists come entry by entry.
    """

    key: str  # of the member; empty for a list at the top
    number: int  # from 1, of an entry of a list; 0 for other values
    value: Any


def json_items(path: Path, on_progress: ReadProgress | None = None) -> Iterator[Item]:
    """Read a list, an object whose members may be lists, or one value per line, in UTF-8.

    Yields every entry of a list at the top or one level below it, and all other members of an
    object at the top as a whole. `on_progress` gets the bytes read so far and the total. Lines are
    read one at a time; other files must fit into memory.

    Raises:
        InputError: The file is not JSON, or larger than memory.
    """
    size = path.stat().st_size
    if path.suffix.lower() in LINES:
        with path.open("rb") as file:
            number = 0
            for line in iter(lambda: file.readline(LONGEST + 1), b""):
                if len(line) > LONGEST:
                    raise _error(path, f"a line is longer than {format_bytes(LONGEST)}")
                if line.strip(b" \t\r\n\xef\xbb\xbf"):
                    number += 1
                    yield Item("", number, _parsed(path, line, f"in its row {number}, "))
                    if on_progress is not None:
                        on_progress(file.tell(), size)
        return
    advice = f"write one item per line, without brackets around them, as {' or '.join(LINES)}"
    check_expansion(path, size, GROWTH * size, advice)
    content = _parsed(path, path.read_bytes())
    if not isinstance(content, (dict, list)):
        raise _error(path, "it is neither a list nor an object")
    for key, value in content.items() if isinstance(content, dict) else [("", content)]:
        entries = enumerate(value, 1) if isinstance(value, list) else [(0, value)]
        yield from (Item(key, number, entry) for number, entry in entries)
    if on_progress is not None:
        on_progress(size, size)


def _parsed(path: Path, content: bytes, where: str = "") -> Any:
    try:
        return json.loads(content.decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise _error(path, f"{where}it is not text in UTF-8") from None
    except RecursionError:
        raise _error(path, f"{where}its lists are nested too deeply") from None
    except ValueError as error:  # also of a number with thousands of digits
        raise _error(path, where + first_line(error)) from None


def _error(path: Path, reason: str) -> InputError:
    return InputError(f"{path} cannot be read as JSON ({reason}): export it again.")
