"""Drawing: matplotlib's figures, without a screen; the extra `research` installs it."""

from __future__ import annotations

from typing import Any

from ltpll.errors import required_by


def check_drawing() -> None:
    """Refuse now rather than after the work whose result is to be drawn."""
    with required_by("Drawing a figure", install="'ltpll[research]'"):
        import matplotlib.figure  # noqa: F401


def new_figure(**options: Any) -> Any:
    """An empty figure of matplotlib."""
    check_drawing()
    from matplotlib.figure import Figure

    return Figure(**options)
