"""Options that several commands share, and help that shows the library's defaults."""

from __future__ import annotations

from dataclasses import MISSING, fields
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

# Options are grouped into panels of `--help`.
data_option = partial(typer.Option, rich_help_panel="Data")
column_option = partial(typer.Option, rich_help_panel="Columns of the table")
part_option = partial(typer.Option, rich_help_panel="Method")
training_option = partial(typer.Option, rich_help_panel="Training")
output_option = partial(typer.Option, rich_help_panel="Output")
hardware_option = partial(typer.Option, rich_help_panel="Hardware")

# ---- settings of a training run ------------------------------------------------------------------
# None: not given, so that the config file or the library decides.

Config = Annotated[
    Path | None,
    training_option(help="YAML file with settings; options on the command line override it."),
]
Method = Annotated[str | None, part_option(help="How labels are disambiguated; see `ltpll list`.")]
Rebalancer = Annotated[
    str | None, part_option(help="How class imbalance is corrected; see `ltpll list`.")
]
Goal = Annotated[
    str | None,
    part_option(
        help="What predictions are for: every class counts the same, or every example does.",
        metavar="balanced|accuracy",
    ),
]
Extra = Annotated[
    list[str] | None, part_option(help="Additional loss term; see `ltpll list`. May be repeated.")
]
Epochs = Annotated[int | None, training_option(help="Passes over the training data.")]
BatchSize = Annotated[int | None, training_option(help="Examples per step, over all processes.")]
LearningRate = Annotated[
    float | None,
    training_option("--lr", help="Initial learning rate of SGD; it falls during training."),
]
Seed = Annotated[int | None, training_option(help="Seed of everything random.")]
OnNan = Annotated[
    str,
    training_option(
        help="On a NaN or infinite loss: stop, or skip (drop the batch and count it).",
        metavar="stop|skip",
    ),
]

# ---- columns of a table: how `train` and `data describe` read sets -----------------------------------------------------

Separator = Annotated[str | None, column_option(help="Separates the candidates of a set.")]
ClassColumn = Annotated[
    list[str] | None,
    column_option(
        help="Instead of sets: a 0/1 column for one class. Repeat it, or give a prefix: 'is_*'."
    ),
]
ProbabilityColumn = Annotated[
    list[str] | None,
    column_option(
        help="Instead of sets: the probability of one class; needs --top-k or --mass. Repeat it, or give a prefix: 'p_*'."
    ),
]
TopK = Annotated[
    int | None, column_option(help="The candidates are the k most probable classes.", min=1)
]
Mass = Annotated[
    float | None,
    column_option(help="The candidates are the fewest classes whose probabilities sum to this."),
]
Scores = Annotated[
    str | None,
    column_option(
        help="What scores such as fox:0.6|dog:0.3, or probabilities, are for: weights of the candidates, or none.",
        metavar="weights|none",
    ),
]
Excluded = Annotated[
    str | None,
    column_option(
        help="Column of classes that are removed from the row's set.", show_default="excluded"
    ),
]
Empty = Annotated[
    str | None,
    column_option(
        help="What an empty set means: stop (a mistake), or all (every class).", metavar="stop|all"
    ),
]
Taxonomy = Annotated[
    Path | None,
    column_option(
        help="Groups that may stand for all classes below them: a table of class, parent and perhaps rank, or indented text.",
        metavar="FILE",
    ),
]
Possible = Annotated[
    str | None, column_option(help="Column of the classes that are possible in the row.")
]
Site = Annotated[
    str | None, column_option(help="Column of sites, whose classes are listed in --possible-at.")
]
PossibleAt = Annotated[
    Path | None,
    column_option(
        help="Table of site and class: the classes that are possible at each site.", metavar="FILE"
    ),
]
FromAnnotators = Annotated[
    str | None,
    column_option(
        help="Instead of sets: rows are single annotations, joined by union, votes-2 (at least two votes) or top-3."
    ),
]
Task = Annotated[
    str | None,
    column_option(
        help="Column of annotated examples.",
        show_default="found by its name: task, image, item, id, path, …",
    ),
]
Worker = Annotated[
    str | None,
    column_option(
        help="Column of annotators.",
        show_default="found by its name: worker, annotator, user, rater, …",
    ),
]
Annotation = Annotated[
    str | None,
    column_option(
        help="Column of annotated labels.",
        show_default="found by its name: label, choice, answer, annotation, …",
    ),
]
VoteWeights = Annotated[
    str | None,
    column_option(
        help="How votes weight the candidates: by the annotators' estimated reliability, by their number, or not at all.",
        metavar="reliability|counts|none",
    ),
]
Label = Annotated[
    str | None,
    column_option(
        help="Column of true labels, used for evaluation only.",
        show_default="label, unless it holds the annotations",
    ),
]
Control = Annotated[
    str | None,
    column_option(
        help="Question of a Label Studio project whose choices are read.",
        show_default="the only one",
    ),
]
Objects = Annotated[
    str | None,
    column_option(
        help="Examples of a COCO file: whole images, or one crop per annotation.",
        metavar="images|crops",
    ),
]
Group = Annotated[
    str | None,
    column_option(
        help="Column of the picture or scene that rows share; all its rows are in the same fold."
    ),
]

Ignore = Annotated[
    list[str] | None,
    column_option(help="Column that is not a feature. May be repeated, or be a pattern: 'meta_*'."),
]

# ---- hardware and output ---------------------------------------------------------------------------------------------

FalseDiscoveries = Annotated[
    float | None,
    output_option(
        help="Expected share of flagged sets that hold their true label after all.",
        min=0,
        max=1,
        show_default="0.3",
    ),
]

Device = Annotated[str, hardware_option(help="cpu, cuda or auto (CUDA if available).")]
Engine = Annotated[
    str,
    hardware_option(
        "--engine", help="How steps run: eager, captured, compiled or auto (captured on CUDA)."
    ),
]
Threads = Annotated[
    int | None,
    hardware_option(min=1, help="CPU threads.", show_default="one or all, whichever is faster"),
]
TensorBoard = Annotated[
    bool, output_option("--tensorboard", help="Write TensorBoard events to the run folder.")
]
Fresh = Annotated[
    bool, output_option("--fresh", help="Discard earlier results of this command and train again.")
]
JsonFile = Annotated[
    Path | None, output_option("--json", help="Also write the results to this JSON file.")
]

WrittenSeparator = Annotated[
    str | None,
    output_option(
        help="Separates the candidates in the written table.",
        show_default="that of the trained table",
    ),
]

# ---- finished runs ---------------------------------------------------------------------------------------------------

OwnRun = Annotated[
    Path, typer.Argument(metavar="RUN", help="Folder written by `ltpll train TABLE --out RUN`.")
]
OnError = Annotated[
    str | None,
    data_option(help="On a picture that cannot be read: stop, or skip it.", metavar="stop|skip"),
]


class CommandWithLibraryDefaults(TyperCommand):
    """A command whose help shows the library's default for every option that is None unless given."""

    def dataclasses(self) -> tuple[type[Any], ...]:
        """The dataclasses whose fields the options override; imported for help only, because they need torch."""
        raise NotImplementedError

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Fill in the defaults, then format the help as usual."""
        defaults = {
            one.name: one.default
            for cls in self.dataclasses()
            for one in fields(cls)
            if one.default is not MISSING
        }
        for option in self.params:
            name = option.opts[0].removeprefix("--").replace("-", "_")
            if option.default is None:
                option.default = defaults.get(name)
        super().format_help(ctx, formatter)
