"""The command line: each command parses its options, calls the library and prints the result."""

from __future__ import annotations

import typer

from ltpll.cli.audit import audit
from ltpll.cli.clean import clean
from ltpll.cli.convert import convert
from ltpll.cli.demo import demo
from ltpll.cli.describe import describe
from ltpll.cli.embed import embed
from ltpll.cli.export import export
from ltpll.cli.list_parts import list_parts
from ltpll.cli.options import SettingsCommand, words_of_option
from ltpll.cli.predict import predict
from ltpll.cli.program import make_program, run
from ltpll.cli.report import report
from ltpll.cli.review import review
from ltpll.cli.train import train
from ltpll.errors import InputError

app = make_program(
    "ltpll",
    "Long-tailed partial label learning: train classifiers on sets of candidate labels when "
    "classes are imbalanced.",
    words_of_option,
)
START, OWN = "First steps", "Your own data"
app.command(rich_help_panel=START)(demo)
app.command("list", rich_help_panel=START)(list_parts)
app.command(rich_help_panel=OWN, cls=SettingsCommand)(describe)
app.command(rich_help_panel=OWN, cls=SettingsCommand)(train)
for command in (clean, report, review, audit, predict, export, embed):
    app.command(rich_help_panel=OWN)(command)
app.command(rich_help_panel=OWN, cls=SettingsCommand)(convert)

# Commands of earlier versions, which are now in another package.
MOVED = ("bench", "benchmark", "bound", "data", "probe", "reproduce", "toy", "tsne")


def _say_where(context: typer.Context) -> None:
    """Moved."""
    name = context.info_name
    where = f"install it, then use `ltpll-research {name}`"
    raise InputError(f"`ltpll {name}` is in the package ltpll-research: {where}.")


for name in MOVED:
    anything = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(name, hidden=True, add_help_option=False, context_settings=anything)(_say_where)


def main() -> None:
    """Run a command of `ltpll`."""
    run(app)
