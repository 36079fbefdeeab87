"""The list command: every method, rebalancer and extra."""

from __future__ import annotations

from rich import box
from rich.table import Table

from ltpll.cli.console import console


def list_parts() -> None:
    """List every method, rebalancer and extra."""
    from ltpll.parts import describe_parts

    table = Table(box=box.SIMPLE, pad_edge=False)
    for heading in ("kind", "name", "what it does"):
        table.add_column(heading)
    for part in describe_parts():
        table.add_row(part.kind, part.name, part.idea)
    console.print(table)
