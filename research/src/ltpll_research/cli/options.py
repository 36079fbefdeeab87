"""Options that several commands for image sets share."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from ltpll.cli.options import CommandWithLibraryDefaults, data_option

Imbalance = Annotated[
    float | None, data_option(help="Size of the largest class over the smallest.")
]
Ambiguity = Annotated[
    float | None, data_option(help="Probability that a wrong label joins a candidate set.")
]
Superclass = Annotated[
    bool | None,
    data_option(
        "--superclass/--uniform",
        help="Make labels of the same superclass eight times as ambiguous as others.",
    ),
]
DataRoot = Annotated[
    Path | None,
    data_option(
        "--data-root",
        help="Folder of the prepared image sets.",
        show_default="$LTPLL_DATA, or the user's cache folder",
    ),
]

NUMBERS = re.compile("[0-9]+(,[0-9]+)*,?")


def repeat_option(arguments: Sequence[str], option: str) -> list[str]:
    """Turn `--option 1 2`, `--option 1,2` and `--option=1,2` into `--option 1 --option 2`: Click takes a fixed number of values."""
    repeated: list[str] = []
    takes_numbers = False
    for argument in arguments:
        name, _, given = argument.partition("=")
        numbers = given if name == option else argument if takes_numbers else ""
        if NUMBERS.fullmatch(numbers):
            if repeated[-1:] == [option]:
                repeated.pop()
            repeated += [
                part for number in numbers.split(",") if number for part in (option, number)
            ]
            takes_numbers = True
        else:
            repeated.append(argument)
            takes_numbers = argument == option
    return repeated


class ExperimentCommand(CommandWithLibraryDefaults):
    """Shows the defaults of an experiment, for `benchmark` and `data describe`; `--milestones` takes several numbers."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the arguments as usual, but with several numbers after `--milestones`."""
        return super().parse_args(ctx, repeat_option(args, "--milestones"))

    def dataclasses(self) -> tuple[type[Any], ...]:
        from ltpll_research.benchmark import Experiment

        return (Experiment,)
