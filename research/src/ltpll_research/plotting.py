"""Figures drawn with matplotlib without a display; this package installs it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ltpll.errors import required_by
from ltpll.files import write_when_complete


def require_matplotlib() -> None:
    """Fail before hours of training rather than after, when the figure is drawn."""
    with required_by("Drawing a figure", install="ltpll-research"):
        import matplotlib.figure  # noqa: F401


def new_figure(**options: Any) -> Any:
    """Create an empty matplotlib figure."""
    require_matplotlib()
    from matplotlib.figure import Figure

    return Figure(**options)


def save_figure(figure: Any, path: Path, *, dpi: int = 150) -> None:
    """Write a figure, in the format that the file name ends with, and create its folder."""
    form = path.suffix.removeprefix(".") or None
    write_when_complete(path, lambda file: figure.savefig(file, format=form, dpi=dpi))
