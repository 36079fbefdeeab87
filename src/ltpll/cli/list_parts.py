"""The list command: every method, rebalancer and extra."""

from __future__ import annotations

from importlib.metadata import entry_points

from rich import box
from rich.table import Table

from ltpll.cli.console import console
from ltpll.part_info import KINDS, built_in_parts


def list_parts() -> None:
    """List every method, rebalancer and extra."""
    parts = list(built_in_parts())
    if any(entry_points(group=f"ltpll.{folder}") for folder in KINDS):
        from ltpll.parts import describe_parts

        parts = describe_parts()  # plug-ins are imported, and torch with them
    table = Table("kind", "name", "what it does", box=box.SIMPLE, pad_edge=False)
    for part in parts:
        table.add_row(part.kind, part.name, part.idea)
    console.print(table)
