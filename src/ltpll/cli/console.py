"""The one console that commands print to."""

from __future__ import annotations

from rich.console import Console

console = Console(highlight=False)
