"""The command line: each command parses its options, calls the library and prints the result."""

from __future__ import annotations

import typer

from ltpll.cli.clean import clean
from ltpll.cli.convert import convert
from ltpll.cli.data import app as data_commands
from ltpll.cli.demo import demo
from ltpll.cli.embed import embed
from ltpll.cli.export import export
from ltpll.cli.list_parts import list_parts
from ltpll.cli.predict import predict
from ltpll.cli.program import make_program, run
from ltpll.cli.report import report
from ltpll.cli.review import review
from ltpll.cli.train import TrainCommand, train
from ltpll.errors import InputError

app = make_program(
    "ltpll",
    "Long-tailed partial label learning: train classifiers on sets of candidate labels when classes are imbalanced.",
    trained_by=("train",),
)
START, OWN = "First steps", "Your own data"
app.command(rich_help_panel=START)(demo)
app.command("list", rich_help_panel=START)(list_parts)
app.add_typer(data_commands, name="data", rich_help_panel=OWN)
app.command(rich_help_panel=OWN, cls=TrainCommand)(train)
app.command(rich_help_panel=OWN)(clean)
app.command(rich_help_panel=OWN)(report)
app.command(rich_help_panel=OWN)(review)
app.command(rich_help_panel=OWN)(predict)
app.command(rich_help_panel=OWN)(export)
app.command(rich_help_panel=OWN)(embed)
app.command(rich_help_panel=OWN)(convert)

MOVED = (
    "bench",
    "benchmark",
    "bound",
    "probe",
    "reproduce",
    "toy",
    "tsne",
    "data list",
    "data prepare",
)


def _say_where(context: typer.Context) -> None:
    """Moved to the package ltpll-research."""
    moved = next(name for name in MOVED if name.split()[-1] == context.info_name)
    raise InputError(
        f"`ltpll {moved}` is in the package ltpll-research: install it, then use `ltpll-research {moved}`."
    )


for _name in MOVED:
    _group = data_commands if _name.startswith("data ") else app
    _anything = {"allow_extra_args": True, "ignore_unknown_options": True}
    _group.command(
        _name.split()[-1], hidden=True, add_help_option=False, context_settings=_anything
    )(_say_where)


def main() -> None:
    """Run a command of `ltpll`."""
    run(app)
