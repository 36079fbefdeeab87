"""Settings: everything that `ltpll train` can be told, section by section.

A section of `ltpll.toml` is a field of `TrainJob`, and a line of it is a field of that section.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from ltpll.errors import InputError, option, shown
from ltpll.formatting import are, format_names
from ltpll.settings import (
    Count,
    Plain,
    Seed,
    Share,
    Within,
    check_types,
    option_words,
    settings_of,
    with_settings,
)
from ltpll.tables.reading import DEFAULT_COLUMNS, Reading

if TYPE_CHECKING:  # so that the help of a command does not import torch
    from ltpll.cleaning.dataset import Examples
    from ltpll.columns import ColumnEncoder
    from ltpll.committee import Committee
    from ltpll.estimator import PartialLabelClassifier

KINDS = ("number", "category", "date", "text", "ignore")
PRIORS = ("auto", "average", "sets")
NOT_OF_CLASSIFIER = ("learner", "prior", "backbone", "finetune", "seed", "folds")
# Settings that a committee decides by itself.
OF_NETWORK = (
    *("method", "rebalancer", "prior", "extras", "options", "model", "finetune", "views"),
    *("epochs", "batch_size", "lr", "weight_decay", "precision"),
)
AUTO = Literal["auto"]
POSITIVE, NOT_NEGATIVE = Within(0, open_below=True), Within(0)


@dataclass(frozen=True)
class DataFiles:
    """The files that examples and earlier knowledge are read from."""

    table: str | None = None
    """Examples and their candidate labels: a table (.csv, .tsv, .parquet, .xlsx or .jsonl),
    .json of a labelling tool, or a folder of pictures."""
    images: str | None = None
    """Folder of the pictures that the column path (or id) names."""
    features: str | None = None
    """File of features: .npy, .npz or a table; joined by id, or without ids in the order of the
    table."""
    side: Annotated[int, Within(4)] | None = None
    """Pictures are scaled to squares of this many pixels. By default the size of the backbone, or
    by the pictures: 32, 64 or 128."""
    on_error: Literal["stop", "skip"] = "stop"
    """What to do with a picture that cannot be read: stop, or skip it."""
    reviewed: tuple[str, ...] = ()
    """Answers that replace candidate sets: a table of id and answer, such as a filled-in queue."""


@dataclass(frozen=True)
class ColumnSettings:
    """What the columns of features hold, and how numbers are read; names may be patterns."""

    number: tuple[str, ...] = ()
    """Columns of numbers that were taken for something else."""
    category: tuple[str, ...] = ()
    """Columns of categories that were taken for something else, such as codes in digits."""
    date: tuple[str, ...] = ()
    """Columns of dates that were taken for something else."""
    text: tuple[str, ...] = ()
    """Columns of prose; others are recognised by their words."""
    ignore: tuple[str, ...] = ()
    """Columns that are shown in reports, but not learned from."""
    numbers: Literal["scaled", "bins"] = "scaled"
    """How numbers are read: scaled, or also in bins, as trees see them."""

    def encoder(self, text: Any = None) -> ColumnEncoder:
        """An encoder with these settings that is not fitted yet; `text` encodes texts."""
        from ltpll.columns import ColumnEncoder

        kinds: dict[str, Any] = {one: kind for kind in KINDS for one in getattr(self, kind)}
        return ColumnEncoder(kinds or None, numbers=self.numbers, text=text)


@dataclass(frozen=True)
class TrainingSettings:
    """How to train on a table: the parameters of `PartialLabelClassifier` with its defaults, the
    class prior, and the folds.

    Examples:
        >>> settings = TrainingSettings(method="proden", rebalancer="records", folds=10)
    """

    learner: Literal["auto", "committee", "network"] = "auto"
    """What is trained: a committee of several learners, or one network; auto is the committee for
    features, unless a setting of the network is given."""
    method: str = "corr"
    """How labels are disambiguated; see `ltpll list`."""
    rebalancer: str = "auto"
    """How class imbalance is corrected; see `ltpll list`."""
    prior: str | Mapping[str, Any] = "auto"
    """Class shares for the rebalancers auto and anchor: average or sets (two estimates), auto (by
    how the sets arose), a file of class and share, or the share of each class or a list of two
    bounds."""
    extras: tuple[str, ...] = ()
    """Additional loss terms; see `ltpll list`."""
    options: Mapping[str, Mapping[str, Plain]] = field(default_factory=dict)
    """Options of methods, rebalancers and extras by name, such as { lw = { beta = 2 } }."""
    model: str = "auto"
    """Network: mlp, small-cnn, resnet18 or auto (chosen by the kind of input)."""
    backbone: str | None = None
    """Pretrained network for pictures (efficientnet-lite0, a folder or a name on the Hugging Face
    hub) or for texts (minilm, a folder or a name)."""
    finetune: Literal["none", "all"] = "none"
    """Layers of the backbone to train: none (its features are computed once) or all."""
    views: str = "auto"
    """Augmentation of pictures: photo, flip-crop, crop (never mirrored), paper, or auto (by their
    size)."""
    epochs: Count | AUTO = "auto"
    """Passes over the training data; auto is chosen by the number of rows."""
    batch_size: Count | AUTO = "auto"
    """Examples per step, over all processes; auto is chosen by the number of rows."""
    lr: Annotated[float, POSITIVE] | AUTO = "auto"
    """Initial learning rate of SGD; it falls during training."""
    weight_decay: Annotated[float, NOT_NEGATIVE] | AUTO = "auto"
    """Weight decay of SGD."""
    truth_missing: Share | Literal["never", "auto"] = "never"
    """Share of sets that lack the true label: never, auto (three more runs), or a number."""
    goal: Literal["balanced", "accuracy"] = "accuracy"
    """What predictions are for: every class counts the same, or every example does."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Numbers in the passes through the network; auto is bfloat16 to fine-tune on CUDA."""
    seed: Seed = 0
    """Seed of everything random."""
    folds: Annotated[int, NOT_NEGATIVE] = 5
    """Folds of the cross-validation that gives every row an out-of-fold prediction; 0 for none."""

    def check(self, classes: Iterable[Hashable]) -> None:
        """Refuse settings that do not fit the classes or each other with an `InputError`."""
        from ltpll.methods import METHODS
        from ltpll.rebalancers import REBALANCERS
        from ltpll.registry import named_parameters
        from ltpll.tables.class_files import check_prior

        check_types(self)
        prior, takes_prior = self.prior, named_parameters(REBALANCERS[self.rebalancer])
        problems = {
            "finetune needs a pretrained network: give a backbone, or leave it out.": (
                self.finetune != "none" and self.backbone is None
            ),
            f"The network is either {self.model} or the fine-tuned backbone: leave model or "
            "finetune out.": self.finetune != "none" and self.model != "auto",
            f"The prior is {shown(prior)}: choose {', '.join(PRIORS)}, or give the share of each "
            "class.": isinstance(prior, str) and prior not in PRIORS,
            f"The rebalancer {self.rebalancer!r} takes no prior: choose auto or anchor, or leave "
            "prior out.": prior != "auto" and "prior" not in takes_prior,
            f"The method {self.method!r} cannot be rebalanced, so it takes no prior: leave prior "
            "out.": prior != "auto" and bool(METHODS[self.method].why_no_rebalancer),
        }
        for problem, is_there in problems.items():
            if is_there:
                raise InputError(problem)
        if not isinstance(prior, str):
            check_prior(prior, classes)

    def uses_committee(self, examples: Examples) -> bool:
        """Whether a committee is trained on these examples; one that does not fit is refused."""
        from ltpll.committee.training import fits_memory

        usual = TrainingSettings()
        given = [name for name in OF_NETWORK if getattr(self, name) != getattr(usual, name)]
        against = ""
        if given:
            against = f"{format_names(given)} {are(len(given))} for a single network"
        elif examples.x.ndim != 2:
            against = "its members take features, and these are pictures"
        elif self.folds < 2:
            against = "its members are weighed by folds, and there are none"
        elif not fits_memory(examples.candidates):
            against = "the table is too large for it"
        if self.learner == "committee" and against:
            advice = f"leave that out, or use {option('learner', 'network')}"
            raise InputError(f"No committee can be trained, because {against}: {advice}.")
        return self.learner != "network" and not against

    def classifier(
        self, execution: Execution, *, committee: bool = False
    ) -> PartialLabelClassifier | Committee:
        """An untrained classifier or committee with these settings."""
        from ltpll.backbones import Backbone
        from ltpll.committee import Committee
        from ltpll.estimator import PartialLabelClassifier
        from ltpll.models.finetune import FineTune

        how: dict[str, Any] = {name: getattr(execution, name) for name in ("device", "threads")}
        how["random_state"] = self.seed
        if committee:
            how |= {name: getattr(self, name) for name in ("folds", "truth_missing", "goal")}
            return Committee(**how)
        parameters = {
            name: value for name, value in asdict(self).items() if name not in NOT_OF_CLASSIFIER
        }
        if self.finetune != "none":
            assert self.backbone is not None
            backbone = Backbone.from_pretrained(self.backbone)
            parameters["model"] = FineTune(backbone)
        if self.prior != "auto":
            own = {**self.options.get(self.rebalancer, {}), "prior": self.prior}
            parameters["options"] = {**self.options, self.rebalancer: own}
        return PartialLabelClassifier(**parameters, on_nan=execution.on_nan, **how)


@dataclass(frozen=True)
class Execution:
    """How a run is carried out, which does not change what it is."""

    device: str = "auto"
    """cpu, cuda or auto (CUDA if available)."""
    threads: Count | AUTO = "auto"
    """CPU threads; auto is one or all, whichever is faster."""
    workers: Count | None = None
    """Folds trained in parallel on a CPU. By default chosen by work and cores."""
    on_nan: Literal["stop", "skip"] = "stop"
    """On a NaN or infinite loss: stop, or skip (drop the batch and count it)."""


@dataclass(frozen=True)
class TrainJob:
    """What `ltpll train` reads, how it trains, and how it runs."""

    data: DataFiles = field(default_factory=DataFiles)
    table: Reading = field(default_factory=Reading)
    columns: ColumnSettings = field(default_factory=ColumnSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    run: Execution = field(default_factory=Execution)

    @classmethod
    def of_record(cls, record: Mapping[str, Any]) -> TrainJob:
        """The settings that a finished run was trained with."""
        from ltpll.convert.open import OPTIONS, is_tool_file

        source, config = record["source"], record["config"]
        values = {f"training.{name}": value for name, value in config.items()}
        usual = vars(TrainingSettings())
        own = any(config.get(name, usual[name]) != usual[name] for name in OF_NETWORK)
        alone = config.get("learner") != "committee" and not own
        values["training.learner"] = "network" if alone else "auto"
        values |= {f"data.{name}": source.get(name) for name in ("table", "images", "features")}
        values |= {f"columns.{name}": one for name, one in (source.get("columns") or {}).items()}
        if record.get("skipped"):
            values["data.on_error"] = "skip"
        scaled = source.get("images") is not None and source.get("preprocessing") is not None
        if scaled and config.get("backbone") is None:
            values["data.side"] = source["side"]
        # What a labelling tool calls its fields is no setting, and neither are columns that were
        # found by their usual names.
        meaningful = {name for names in OPTIONS.values() for name in names}
        is_json = is_tool_file(Path(source["table"]))
        for name, value in source.get("reading", {}).items():
            found = value == DEFAULT_COLUMNS.get(name) or name == "classes"
            if not found and (name in meaningful or not is_json):
                values[f"table.{name}"] = value
        known = settings_of(cls)
        return with_settings(
            cls, {name: one for name, one in values.items() if name in known and one is not None}
        )

    def words(self) -> list[str]:
        """The words of a command that repeats this job, besides its table and its run folder."""
        return option_words(replace(self, data=replace(self.data, table=None)), FRONT)


# What `ltpll train` shows as options; everything else is in the file, or given by `--set`.
FRONT = (
    *("data.images", "data.features", "data.reviewed"),
    *("table.candidates", "table.separator", "table.class_columns", "table.probability_columns"),
    *("table.top_k", "table.annotators", "table.id", "table.group", "columns.text"),
    *("training.method", "training.rebalancer", "training.goal", "training.backbone"),
    *("training.epochs", "training.folds", "run.device"),
)
