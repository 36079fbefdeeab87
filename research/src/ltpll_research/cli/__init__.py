"""The command line `ltpll-research`: commands parse options, call the library and print."""

from __future__ import annotations

from ltpll.cli.program import make_program, run
from ltpll_research.cli.bench import app as bench_commands
from ltpll_research.cli.benchmark import benchmark
from ltpll_research.cli.compare import compare
from ltpll_research.cli.data import app as data_commands
from ltpll_research.cli.probe import probe, tsne
from ltpll_research.cli.reproduce import reproduce
from ltpll_research.cli.studies import demo, toy
from ltpll_research.cli.train import train

app = make_program(
    "ltpll-research",
    "The experiments of ltpll: image benchmarks, the RECORDS paper's tables and figures, and small "
    "studies.",
    lambda name, value: [f"--{name.replace('_', '-')}", value],
)
STUDIES, IMAGES, INSPECT = "Studies on any machine", "Benchmarks", "Inspect results"
app.command(rich_help_panel=STUDIES)(demo)
app.command(rich_help_panel=STUDIES)(toy)
app.add_typer(data_commands, name="data", rich_help_panel=IMAGES)
app.command(rich_help_panel=IMAGES)(benchmark)
app.command(rich_help_panel=IMAGES)(train)
app.command(rich_help_panel=IMAGES)(reproduce)
app.add_typer(bench_commands, name="bench", rich_help_panel=IMAGES)
app.command(rich_help_panel=INSPECT)(compare)
app.command(rich_help_panel=INSPECT)(probe)
app.command(rich_help_panel=INSPECT)(tsne)


def main() -> None:
    """Run a command of `ltpll-research`."""
    run(app)
