"""JSON streams: the items of a large file one at a time, in memory that its largest item takes."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Generator
from pathlib import Path
from typing import Any, NamedTuple

from ltpll.errors import InputError, first_line, shown
from ltpll.formatting import format_bytes
from ltpll.tables.streaming import ReadProgress

JSON_SUFFIXES = (".json", ".jsonl", ".ndjson")
LINES = (".jsonl", ".ndjson")  # one value per line, without brackets around them
BLOCK = 1 << 20
LONGEST = 32 << 20  # characters of one item
# Characters at the end of the text read so far that may begin a longer number or word.
LONGEST_WORD = 16
BLANKS = re.compile(r"[ \t\n\r]*")
DECODER = json.JSONDecoder()


class Item(NamedTuple):
    """An entry of a list at the top of a file, or a member of an object there.

    Members that are lists come entry by entry.
    """

    key: str  # of the member; empty for a list at the top
    number: int  # from 1, of an entry of a list; 0 for other values
    value: Any


def json_items(path: Path, on_progress: ReadProgress | None = None) -> Generator[Item]:
    """Read a list, an object whose members may be long lists, or one value per line, in UTF-8.

    Yields every entry of a list at the top or one level below it, and all other members of an
    object at the top as a whole. `on_progress` gets the bytes read so far and the total.

    Raises:
        InputError: The file is not JSON, is truncated, has a member twice, or one of its items is
            unreasonably long.
    """
    with path.open("rb") as file:
        text = _Text(path, file, on_progress)
        if path.suffix.lower() in LINES:
            number = 0
            while text.peek():
                number += 1
                yield Item("", number, text.value())
            return
        first = text.peek()
        if first == "[":
            yield from _entries(text, "")
        elif first == "{":
            yield from _members(text)
        else:
            raise text.error("it is neither a list nor an object")
        if text.peek():
            raise text.error("something follows its end")


def _entries(text: _Text, key: str) -> Generator[Item]:
    text.take("[")
    number = 0
    while text.peek() != "]":
        if number:
            text.take(",")
        number += 1
        yield Item(key, number, text.value())
    text.take("]")


def _members(text: _Text) -> Generator[Item]:
    text.take("{")
    keys: set[str] = set()
    while text.peek() != "}":
        if keys:
            text.take(",")
        key = text.value()
        if not isinstance(key, str):
            raise text.error("an object has a key that is not text")
        if key in keys:
            raise text.error(f"it has the member {shown(key)} twice")
        keys.add(key)
        text.take(":")
        if text.peek() == "[":
            yield from _entries(text, key)
        else:
            yield Item(key, 0, text.value())
    text.take("}")


class _Text:
    """A sliding window over the characters of a file; what has been parsed is dropped."""

    def __init__(self, path: Path, file: Any, on_progress: ReadProgress | None) -> None:
        self.path, self.file, self.on_progress = path, file, on_progress
        self.total = path.stat().st_size
        self.buffer, self.position, self.ended = "", 0, False
        self._decode = codecs.getincrementaldecoder("utf-8-sig")().decode

    def peek(self) -> str:
        """The next character that is not a blank; empty at the end of the file."""
        while True:
            found = BLANKS.match(self.buffer, self.position)
            self.position = found.end() if found else self.position
            if self.position < len(self.buffer):
                return self.buffer[self.position]
            if self.ended:
                return ""
            self._read(BLOCK)

    def take(self, mark: str) -> None:
        """Skip one of the characters of JSON's syntax."""
        found = self.peek()
        if found != mark:
            wrong = f"expected {shown(mark)} but found {shown(found)}"
            raise self.error(wrong if found else "it is truncated")
        self.position += 1

    def value(self) -> Any:
        """Parse the next value."""
        if not self.peek():
            raise self.error("it is truncated")
        while True:
            try:
                value, end = DECODER.raw_decode(self.buffer, self.position)
            except json.JSONDecodeError as error:
                unfinished = error.msg.startswith("Unterminated string")
                if error.pos < len(self.buffer) - LONGEST_WORD and not unfinished:
                    raise self.error(first_line(ValueError(error.msg))) from None
                if self.ended:
                    raise self.error("it is truncated or damaged") from None
            except RecursionError:
                raise self.error("its lists are nested too deeply") from None
            except ValueError:
                raise self.error("a number has thousands of digits") from None
            else:
                # Of 1.5, the window may end behind 1 or behind the point.
                complete = self.ended or end < len(self.buffer) - LONGEST_WORD
                if complete or not isinstance(value, (int, float)):
                    self.position = end
                    return value
            if len(self.buffer) - self.position > LONGEST:
                raise self.error(f"one of its items is longer than {format_bytes(LONGEST)}")
            # Doubled, so that a long item is not parsed too often.
            self._read(max(BLOCK, len(self.buffer) - self.position))

    def _read(self, size: int) -> None:
        content = self.file.read(size)
        try:
            text = self._decode(content, not content)
        except UnicodeDecodeError:
            raise self.error("it is not text in UTF-8") from None
        self.buffer, self.position, self.ended = self.buffer[self.position :] + text, 0, not content
        if self.on_progress is not None:
            self.on_progress(self.file.tell(), self.total)

    def error(self, reason: str) -> InputError:
        place = format_bytes(max(0, self.file.tell() - len(self.buffer) + self.position))
        return InputError(
            f"{self.path} cannot be read as JSON (about {place} from its beginning: {reason}): "
            "export it again."
        )
