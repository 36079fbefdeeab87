"""Files: writing one so that nobody ever meets half of it, and JSON that may be anybody's."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or a power cut, meets either the old content or the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def parse_json(content: str | bytes) -> Any:
    """JSON; lists that lie too deep in each other are a ValueError, as all other damage is."""
    try:
        return json.loads(content)
    except RecursionError:
        raise ValueError("its lists lie too deep in each other") from None
