"""Options that several commands share."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

# Options are grouped into panels of `--help`.
data_option = partial(typer.Option, rich_help_panel="Data")
part_option = partial(typer.Option, rich_help_panel="Method")
training_option = partial(typer.Option, rich_help_panel="Training")
output_option = partial(typer.Option, rich_help_panel="Output")
hardware_option = partial(typer.Option, rich_help_panel="Hardware")

DataRoot = Annotated[
    Path | None,
    data_option(
        "--data-root",
        help="Folder of the prepared image sets.",
        show_default="$LTPLL_DATA, or the user's cache folder",
    ),
]
Settings = Annotated[
    list[str] | None,
    training_option("--set", help="Any other setting, such as width=16. May be repeated."),
]
Device = Annotated[str, hardware_option(help="cpu, cuda or auto (CUDA if available).")]
Engine = Annotated[
    str,
    hardware_option(
        "--engine", help="How steps run: eager, captured, compiled or auto (captured on CUDA)."
    ),
]
Fresh = Annotated[
    bool, output_option("--fresh", help="Discard earlier results of this command and train again.")
]
