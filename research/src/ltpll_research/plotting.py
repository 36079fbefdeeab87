"""Figures drawn with matplotlib without a display."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ltpll.files import write_when_complete


def save_figure(figure: Any, path: Path, *, dpi: int = 150) -> None:
    """Write a figure, in the format that the file name ends with, and create its folder."""
    form = path.suffix.removeprefix(".") or None
    write_when_complete(path, lambda file: figure.savefig(file, format=form, dpi=dpi))
