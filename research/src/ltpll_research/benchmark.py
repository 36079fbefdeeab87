"""Image benchmarks: the settings of an experiment, the problem that its seed draws, its run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import torch

from ltpll.candidates import Candidates
from ltpll.errors import InputError, shown
from ltpll.evaluation.during_training import Evaluate
from ltpll.evaluation.stopping import MeasureInformation
from ltpll.formatting import counted
from ltpll.models import build_model
from ltpll.parts import build_parts
from ltpll.rebalancers import REBALANCERS
from ltpll.registry import unknown_name_error
from ltpll.runs.recording import CHECKPOINT_SECONDS, locked_for_training
from ltpll.runs.run import Record, Run
from ltpll.runs.run_files import RunFile
from ltpll.settings import Count, Plain, Seed, Share, Within, check_types, with_settings
from ltpll.synthetic import (
    instance_candidates,
    long_tail_subset,
    superclass_candidates,
    uniform_candidates,
)
from ltpll.training.callbacks import Callback
from ltpll.training.compatibility import check_data
from ltpll.training.trainer import PartialLabelTrainer, check_milestones
from ltpll.validation import chosen_device
from ltpll.views import ImageViews
from ltpll_research.authors_draw import authors_draw
from ltpll_research.image_sets.prepared import ImageSet
from ltpll_research.likely_labels import likely_labels
from ltpll_research.recording import record_training, seed_streams
from ltpll_research.set_origins import remove_labels

# These only change predictions, so they are evaluated on runs without a rebalancer; the first also
# on those of RECORDS, whose targets may have drifted away from the prior that it reads off the
# network, and beside a balanced head.
POSTHOC = ("mean-target", "oracle-la-posthoc")
# Pixels whose views a GPU draws at once (a CPU draws a quarter): few kernel launches per step, and
# two views take 200 MB.
CHUNK_PIXELS = 2**24
# Settings that belong together, by name; whatever a recipe does not set has the default of
# `Experiment`.
RECIPES: Mapping[str, Mapping[str, Any]] = {
    "paper": {},  # the protocol of the RECORDS paper, which the defaults are
    # What did best on CIFAR-10-LT at high ambiguity; docs/beyond.md measures the parts.
    "best": {
        "rebalancer": "anchor",
        "extras": ("mixup", "balanced-head"),
        "options": {"anchor": {"bounds": "point", "warmup": 0.5, "lift": "records"}},
        "views": "flip-crop",
        "epochs": 200,
        "lr": 0.03,
    },
}

# Epochs; the log has the figures of every class for these, for the best so far and for the last.
DETAILS_EVERY = 10
# What the same settings mean changes with the edition, and so does a run's hash:
# docs/reproduction.md says how. Configs without an entry are of the first edition.
EDITION, FIRST_EDITION = 3, 1
# Settings of later versions: these values are left out of the config, so that runs of earlier
# versions keep their hashes.
LATER: Mapping[str, Any] = {
    "lacking": 0.0,
    "truth_missing": 0.0,
    "held_out": 0.0,
    "schedule": "cosine",
    "milestones": (),
    "draw": "seeded",
    "edition": FIRST_EDITION,
    "content": "",
    "sets": "random",
    "within_superclass": False,
}
COMPLETE_CIFAR = 50_000  # training images, from all of which the authors' draw is taken


@dataclass(frozen=True)
class Experiment:
    """The settings that determine a result; the defaults are the paper's protocol.

    Args:
        data: The name of an image set: cifar10, cifar100, voc2007, or one of your own.
        content: A hash of an image set of your own, so that other images make another run; empty
            for published sets.
        imbalance: Size of the largest class divided by the size of the smallest (ρ); "natural"
            takes all images.
        sets: Where candidate sets come from: "random" lets a wrong label join with the probability
            `ambiguity`, unless the image set has sets of its own, which is then used whole;
            "instance" lets those join that a network finds likely (`instance_candidates`, with
            `ambiguity` as its rate); "own" takes those of the image set, on a long-tailed subset.
        ambiguity: Probability that a wrong label joins a candidate set (q).
        superclass: Whether this probability is eight times as high inside a superclass (the paper's
            NU setting).
        within_superclass: Whether only labels of the same superclass join, with this probability
            (CIFAR-100H).
        lacking: The share of candidate sets from which the true label is removed.
        held_out: The share of training images that are left out, whose candidate sets tell without
            true labels which epoch is best (`set_information`).
        method: The name of a method, see `ltpll list`.
        rebalancer: The name of a rebalancer.
        extras: Names of extras.
        options: Options of the parts by the part's name, such as `{"lw": {"beta": 2}}`.
        model: The network.
        width: The width of its first stage.
        views: The augmentation policy, "paper" or "flip-crop".
        epochs: The number of epochs.
        batch_size: The number of examples in a batch.
        lr: The initial learning rate of SGD.
        weight_decay: The weight decay of SGD.
        schedule: How the learning rate falls: "cosine", or "step" to a tenth after each milestone.
        milestones: Numbers of epochs, counted from the restart if the method restarts.
        truth_missing: The share of sets that the training assumes to lack the true label.
        precision: "float32", "bfloat16" or "float64".
        draw: Who draws the long-tailed subset and the candidate sets: "seeded" draws new ones for
            every seed; "authors" draws those of the RECORDS paper's code, the same for every seed,
            from a complete CIFAR. An image set with candidate sets of its own ignores it.
        seed: Draws the long-tailed subset, the candidate sets and the training.
        edition: Which training the settings stand for. Only the current edition can be trained;
            runs of earlier ones are still read.

    Raises:
        InputError: If a value cannot be used, or the schedule and the milestones do not fit.

    Examples:
        >>> Experiment("cifar10", ambiguity=0.5, method="proden").epochs
        800
    """

    data: str
    content: str = ""
    imbalance: Annotated[float, Within(1)] | Literal["natural"] = 100.0
    sets: Literal["random", "instance", "own"] = "random"
    ambiguity: Annotated[float, Within(0, 1)] = 0.05
    superclass: bool = False
    within_superclass: bool = False
    lacking: Share = 0.0
    held_out: Share = 0.0
    method: str = "corr"
    rebalancer: str = "records"
    extras: tuple[str, ...] = ()
    options: Mapping[str, Mapping[str, Plain]] = field(default_factory=dict)
    model: str = "resnet18"
    width: Count = 64
    views: str = "paper"
    epochs: Count = 800
    batch_size: Count = 256
    lr: Annotated[float, Within(0, open_below=True)] = 0.01
    weight_decay: Annotated[float, Within(0)] = 1e-3
    schedule: Literal["cosine", "step"] = "cosine"
    milestones: tuple[int, ...] = ()
    truth_missing: Share = 0.0
    precision: str = "float32"
    draw: Literal["seeded", "authors"] = "seeded"
    seed: Seed = 0
    edition: Annotated[int, Within(FIRST_EDITION, EDITION)] = EDITION

    def __post_init__(self) -> None:
        check_types(self)
        if self.superclass and self.within_superclass:
            raise InputError("superclass and within_superclass exclude each other: leave one out.")
        if self.sets == "instance" and self.superclass:
            raise InputError(
                "sets=instance takes its labels from a network, not from superclass: leave that out, "
                "or use within_superclass."
            )
        if (self.schedule == "step") != bool(self.milestones):
            raise InputError(
                "The schedule step and `milestones`, the epochs after which the learning rate "
                "falls, need each other: set both, or neither."
            )
        check_milestones(self.milestones, self.epochs)

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Experiment:
        """Check the content of a config file and turn it into an experiment.

        Args:
            values: Settings by name; missing ones get their default.

        Raises:
            InputError: If `data` is missing, a name is unknown, or a value cannot be used.

        Examples:
            >>> Experiment.from_mapping({"data": "cifar10", "imbalance": 50}).imbalance
            50.0
        """
        if values.get("data") is None:
            raise InputError("The config names no image set: add a line such as data = 'cifar100'.")
        return with_settings(cls, {name: one for name, one in values.items() if one is not None})

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Experiment:
        """Restore an experiment from the config of its run, the inverse of `config`."""
        return cls.from_mapping(
            {"edition": FIRST_EDITION}
            | {key: value for key, value in config.items() if key != "experiment"}
        )

    def config(self) -> Record:
        """The config of the experiment's run, ready for JSON."""
        config: Record = {"experiment": "images"}
        for name, value in vars(self).items():
            if name not in LATER or value != LATER[name]:
                config[name] = list(value) if isinstance(value, tuple) else value
        # Other options must not make it another run.
        config["options"] = {name: dict(own) for name, own in self.used_options().items()}
        return config

    def used_options(self) -> Mapping[str, Mapping[str, Any]]:
        """The options of this experiment's own parts; a config file may have others as well."""
        parts = (self.method, self.rebalancer, *self.extras)
        return {name: options for name, options in self.options.items() if name in parts}


def with_recipe(recipe: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a recipe, overridden by others; options of parts one by one."""
    if recipe not in RECIPES:
        raise unknown_name_error("recipe", recipe, RECIPES)
    merged = {**RECIPES[recipe], **settings}
    defaults, given = RECIPES[recipe].get("options", {}), settings.get("options")
    if isinstance(given, Mapping):  # anything else is refused when the experiment is made
        merged["options"] = {**defaults, **given}
        for part, own in given.items():
            if part in defaults and isinstance(own, Mapping):
                merged["options"][part] = {**defaults[part], **own}
    return merged


@dataclass(frozen=True)
class Problem:
    """The training and test data that an experiment's seed draws from an image set.

    `mean` and `std` are per channel, in [0, 1].
    """

    x: torch.Tensor  # uint8 (N, 3, H, W), channels last in memory
    y: np.ndarray[Any, np.dtype[np.int64]]
    candidates: Candidates
    x_test: torch.Tensor
    y_test: np.ndarray[Any, np.dtype[np.int64]]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    seeds: Mapping[str, int]
    held_out: tuple[torch.Tensor, Candidates] | None = None  # images and their sets


def draw_problem(experiment: Experiment, images: ImageSet, device: str = "auto") -> Problem:
    """Draw the long-tailed training set and its candidate sets, and take the test images.

    The subset, the candidates and the training have separate seeds, all derived from the
    experiment's seed. An image set that has candidate sets of its own (voc2007) is used whole,
    whatever the imbalance, the ambiguity and the draw, unless `sets` says otherwise.

    Args:
        experiment: The settings.
        images: The image set that the experiment names, from `load_image_set`.
        device: Where the network for `sets="instance"` is trained.

    Raises:
        InputError: If the image set lacks what the experiment needs, such as superclasses.
    """
    seeds = seed_streams(experiment.seed)
    if experiment.content not in ("", images.content):
        raise InputError(
            f"The image set {shown(images.name)} is not the one that this run was made with: its "
            "images, labels or sets have changed."
        )
    whole = images.candidates is not None and experiment.sets == "random"
    if whole and images.candidates is not None:
        rows, candidates = np.arange(len(images.y_train)), images.candidates
    elif experiment.draw == "authors":
        rows, candidates = _authors_draw(experiment, images)
    else:
        rows = np.arange(len(images.y_train))
        if experiment.imbalance != "natural":
            rows = long_tail_subset(images.y_train, experiment.imbalance, seed=seeds["subset"])
        candidates = _draw_sets(experiment, images, rows, seeds["candidates"], device)
    if experiment.lacking:
        labels, of_removed = images.y_train[rows], seeds["candidates"] + 1
        candidates = remove_labels(candidates, labels, experiment.lacking, seed=of_removed)
    held_out = None
    if experiment.held_out:
        order = np.random.default_rng([seeds["subset"], 1]).permutation(len(rows))
        left, kept = np.split(order, [round(experiment.held_out * len(rows))])
        left, kept = np.sort(left), np.sort(kept)
        others = np.ascontiguousarray(images.x_train[rows[left]])
        held_out = torch.from_numpy(others).permute(0, 3, 1, 2), candidates.select(left)
        rows, candidates = rows[kept], candidates.select(kept)
    x = np.ascontiguousarray(images.x_train[rows])
    return Problem(
        x=torch.from_numpy(x).permute(0, 3, 1, 2),
        y=images.y_train[rows],
        candidates=candidates,
        held_out=held_out,
        x_test=torch.from_numpy(np.array(images.x_test)).permute(0, 3, 1, 2),
        y_test=images.y_test,
        mean=tuple((x.mean((0, 1, 2)) / 255).tolist()),
        std=tuple((x.std((0, 1, 2)) / 255).tolist()),
        seeds=seeds,
    )


def _superclass(experiment: Experiment, images: ImageSet) -> np.ndarray[Any, Any] | None:
    """The superclasses, if the experiment needs them."""
    name = "superclass" if experiment.superclass else "within_superclass"
    if not (experiment.superclass or experiment.within_superclass):
        return None
    if images.superclass is None:
        raise InputError(
            f"The image set {shown(images.name)} has no superclasses: remove `{name}` from the "
            "settings."
        )
    return images.superclass


def _draw_sets(
    experiment: Experiment,
    images: ImageSet,
    rows: np.ndarray[Any, np.dtype[np.int64]],
    seed: int,
    device: str,
) -> Candidates:
    """The candidate sets of a long-tailed subset."""
    labels, n_classes = images.y_train[rows], len(images.classes)
    q, only = experiment.ambiguity, experiment.within_superclass
    superclass = _superclass(experiment, images)
    if experiment.sets == "own":
        if images.candidates is None:
            raise InputError(
                f"The image set {shown(images.name)} has no candidate sets of its own: leave "
                "sets=own out."
            )
        return images.candidates.select(rows)
    if experiment.sets == "instance":
        p = likely_labels(images.x_train, images.y_train, n_classes, device)[rows]
        group = superclass if only else None
        return instance_candidates(labels, n_classes, p, seed=seed, rate=q, superclass=group)
    if superclass is not None:
        return superclass_candidates(labels, superclass, q, seed=seed, only=only)
    return uniform_candidates(labels, n_classes, q, seed=seed)


def _authors_draw(experiment: Experiment, images: ImageSet) -> tuple[Any, Candidates]:
    """The authors' rows and sets; the rows that they shuffle are all published images, in order."""
    rho, counts = experiment.imbalance, np.bincount(images.y_train, minlength=len(images.classes))
    superclass = _superclass(experiment, images)
    if len(images.y_train) != COMPLETE_CIFAR or len(set(counts.tolist())) != 1:
        raise InputError(
            f"The authors' draw needs all {COMPLETE_CIFAR:,} training images of {images.name}, "
            "equally many of each class, and this set has "
            f"{counted(len(images.y_train), 'image')}: prepare the published archive with "
            f"`ltpll-research data prepare {images.name}`."
        )
    if rho == "natural" or experiment.within_superclass or experiment.sets != "random":
        raise InputError(
            "The authors' draw is long-tailed and random: leave draw=authors out, or imbalance, "
            "sets and within_superclass."
        )
    return authors_draw(images.y_train, rho, experiment.ambiguity, superclass)


def build_trainer(
    experiment: Experiment, problem: Problem, *, device: str = "auto", **options: Any
) -> PartialLabelTrainer:
    """Build an experiment's network, parts and views, and the trainer that combines them.

    Args:
        experiment: The settings.
        problem: What `draw_problem` drew for them.
        device: "cpu", "cuda" or "auto".
        **options: Further arguments of `PartialLabelTrainer`, such as `engine` and `on_nan`, that
            do not change the result.

    Returns:
        A trainer that has not seen the data yet.

    Raises:
        UnknownNameError: If a part, the network or the views do not exist.
        InputError: If an option or the device cannot be used.
    """
    n_classes = problem.candidates.n_classes
    seed, width = problem.seeds["training"], experiment.width
    model = build_model(experiment.model, seed, n_classes=n_classes, n_channels=3, width=width)
    counts = np.bincount(problem.y, minlength=n_classes)
    chosen = chosen_device(device)
    on_cuda = chosen.type == "cuda"
    if on_cuda:  # tensor cores are fastest with channels last
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    method, rebalancer, extras = build_parts(
        experiment.method,
        experiment.rebalancer,
        experiment.extras,
        experiment.used_options(),
        class_frequencies=counts,
    )
    dtype = torch.bfloat16 if experiment.precision == "bfloat16" else torch.float32
    same = ("epochs", "batch_size", "lr", "milestones", "weight_decay", "truth_missing")
    own: dict[str, Any] = {name: getattr(experiment, name) for name in same}
    pixels = CHUNK_PIXELS if on_cuda else CHUNK_PIXELS // 4
    return PartialLabelTrainer(
        model,
        method,
        rebalancer,
        extras,
        views=ImageViews(
            experiment.views, problem.mean, problem.std, dtype=dtype, channels_last=on_cuda
        ),
        seed=seed,
        device=chosen,
        precision=experiment.precision,  # type: ignore[arg-type]
        chunk=max(pixels // problem.x[0, 0].numel(), 1),
        **own,
        **options,
    )


def train(
    run: Run,
    images: ImageSet,
    *,
    measure_every: int = 1,
    callbacks: Sequence[Callback] = (),
    checkpoint_every: int = 1,
    **how: Any,
) -> None:
    """Train the run of an experiment to its end; a finished run returns at once.

    A run that has a checkpoint is resumed.

    Args:
        run: The run, from `experiment_run`; its folder is locked while it is trained.
        images: The image set that the experiment names, from `load_image_set`.
        measure_every: Epochs between two evaluations on the test set; the last epoch is always
            evaluated. The best epoch of the result is the best of all evaluated ones.
            `ltpll-research bench engine` measures what an evaluation costs; speeds in records do
            not include it.
        callbacks: Further callbacks of the training, such as `Progress`.
        checkpoint_every: The least number of epochs between two checkpoints.
        **how: As for `build_trainer`.

    Raises:
        BusyError: If another process is training the run.
        InputError: If the settings, the data or the checkpoint cannot be used.
    """
    # Check everything before the folder is created.
    experiment = Experiment.from_config(run.config)
    if experiment.edition != EDITION and not run.done:
        raise InputError(
            f"The run {run.folder} is of edition {experiment.edition}, and this version of ltpll "
            f"trains edition {EDITION}: finish it with the version that started it, or train its "
            "settings again with `ltpll-research benchmark`."
        )
    problem = draw_problem(experiment, images, how.get("device", "auto"))
    trainer = build_trainer(experiment, problem, **how)
    check_data(problem.x, problem.candidates, trainer.head)
    with locked_for_training(run) as unfinished:
        if not unfinished:
            return
        counts = np.bincount(problem.y, minlength=problem.candidates.n_classes)
        bare = experiment.rebalancer == "none" and not trainer.method.why_no_rebalancer
        also = experiment.rebalancer == "records" or "balanced-head" in experiment.extras
        names = POSTHOC if bare else POSTHOC[:1] if also else ()
        truth = Evaluate(
            problem.x_test,
            problem.y_test,
            problem.y,
            every=measure_every,
            details_every=DETAILS_EVERY,
            posthoc={
                name: REBALANCERS.create(name, {"class_frequencies": counts}) for name in names
            },
        )
        sets = problem.held_out
        record_training(
            run,
            trainer,
            problem.x,
            problem.candidates,
            truth,
            information=sets and MeasureInformation(*sets, every=measure_every),
            checkpoint_every=checkpoint_every,
            checkpoint_seconds=CHECKPOINT_SECONDS,
            callbacks=callbacks,
            class_counts=counts.tolist(),
            classes=list(images.classes),
            seeds=dict(problem.seeds),
            engine=trainer.engine,
            processes=trainer.world.size,
        )


def experiment_run(root: Path, experiment: Experiment) -> Run:
    """The run of an experiment, in a folder under `root` that is named after the config's hash."""
    return Run(root, experiment.config())


def reopen_trainer(run: Run, images: ImageSet, device: str) -> PartialLabelTrainer:
    """The trainer of a run as its checkpoint left it."""
    if not (run.folder / RunFile.CHECKPOINT).exists():
        raise InputError(
            f"The run {run.folder} has no checkpoint: only the folder that it was trained in has "
            "one."
        )
    experiment = Experiment.from_config(run.config)
    problem = draw_problem(experiment, images, device)
    trainer = build_trainer(experiment, problem, device=device, engine="eager")
    trainer.prepare(problem.x, problem.candidates)
    trainer.load(run.folder / RunFile.CHECKPOINT)
    return trainer
