"""The command line: each command parses its options, calls the library and prints the result."""

from __future__ import annotations

import typer

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
    trained_by=("train",),
    words_of_option=words_of_option,
)
START, OWN = "First steps", "Your own data"
app.command(rich_help_panel=START)(demo)
app.command("list", rich_help_panel=START)(list_parts)
app.command(rich_help_panel=OWN, cls=SettingsCommand)(describe)
app.command(rich_help_panel=OWN, cls=SettingsCommand)(train)
app.command(rich_help_panel=OWN)(clean)
app.command(rich_help_panel=OWN)(report)
app.command(rich_help_panel=OWN)(review)
app.command(rich_help_panel=OWN)(predict)
app.command(rich_help_panel=OWN)(export)
app.command(rich_help_panel=OWN)(embed)
app.command(rich_help_panel=OWN, cls=SettingsCommand)(convert)

# Commands of earlier versions, and what replaces them.
IN_RESEARCH = "is in the package ltpll-research: install it, then use `ltpll-research"
MOVED = {
    name: f"{IN_RESEARCH} {name}`"
    for name in ("bench", "benchmark", "bound", "probe", "reproduce", "toy", "tsne")
}
MOVED["data"] = (
    "is gone: use `ltpll describe`, `ltpll demo --only-table` for an example table, "
    "`ltpll.prune_candidates` in Python, or `ltpll-research data` for image sets"
)


def _say_where(context: typer.Context) -> None:
    """Moved or gone."""
    raise InputError(f"`ltpll {context.info_name}` {MOVED[context.info_name or '']}.")


for _name in MOVED:
    _anything = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(_name, hidden=True, add_help_option=False, context_settings=_anything)(_say_where)


def main() -> None:
    """Run a command of `ltpll`."""
    run(app)
