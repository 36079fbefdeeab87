"""An experiment: one config of the benchmarks (image set, long tail, ambiguity, parts, schedule) turned into a finished run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from ltpll.candidates import Candidates
from ltpll.data.benchmarks.image_sets import ImageSet, load_image_set
from ltpll.data.synthetic import long_tail_subset, superclass_candidates, uniform_candidates
from ltpll.errors import InputError, shown
from ltpll.evaluation.metrics import Evaluate
from ltpll.models import build_model
from ltpll.parts import build_parts
from ltpll.rebalancers import REBALANCERS
from ltpll.rng import seed_streams
from ltpll.runs.recording import CHECKPOINT_SECONDS, record_training
from ltpll.runs.run import Record, Run
from ltpll.training.compatibility import check_data
from ltpll.training.distributed import World
from ltpll.training.trainer import PartialLabelTrainer
from ltpll.validation import check_setting, chosen_device
from ltpll.views import ImageViews

POSTHOC = "oracle-la-posthoc"
CHUNK_PIXELS = 2**24  # whose views a GPU draws at once, and a CPU a quarter: few launches for each step, and 200 MB for two views


@dataclass(frozen=True)
class Experiment:
    """Everything that decides a result; defaults are the paper's protocol."""

    data: str
    imbalance: float = 100.0
    ambiguity: float = 0.05
    superclass: bool = False  # ambiguity inside a superclass is eight times as high (the paper's NU setting)
    method: str = "corr"
    rebalancer: str = "records"
    extras: tuple[str, ...] = ()
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # of a part, by its name: {"lw": {"beta": 2}}
    model: str = "resnet18"
    width: int = 64
    views: str = "paper"
    epochs: int = 800
    batch_size: int = 256
    lr: float = 0.01
    weight_decay: float = 1e-3
    precision: str = "float32"
    seed: int = 0

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Experiment:
        """From a config file's content; an unknown key is refused by name."""
        known = {one.name: one for one in fields(cls)}
        for key, value in values.items():
            if not isinstance(key, str) or key not in known:
                raise InputError(f"The config has an unknown entry {shown(key)}; known: {', '.join(known)}.")
            check_setting(key, known[key].default, value)
        if "data" not in values:
            raise InputError("The config names no data: add a line such as `data: cifar100`.")
        # 100 and 100.0 are the same imbalance, and have to be the same run.
        kinds: dict[str, Any] = {name: type(one.default) for name, one in known.items()}
        numbers = {key: kinds[key](value) for key, value in values.items() if kinds[key] in (int, float)}
        return cls(**{**values, **numbers, "extras": tuple(values.get("extras") or ()), "options": dict(values.get("options") or {})})

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Experiment:
        """The other way round from `config`."""
        return cls.from_mapping({key: value for key, value in config.items() if key != "experiment"})

    def config(self) -> Record:
        """The run's config; what the image set brings itself (VOC's candidate sets) is no setting."""
        return {
            "experiment": "images",
            **asdict(self),
            "extras": list(self.extras),
            "options": {k: dict(v) for k, v in self.options.items()},
        }

    def used_options(self) -> Mapping[str, Mapping[str, Any]]:
        """The options of this experiment's own parts; a config file may have options for others as well."""
        return {name: options for name, options in self.options.items() if name in (self.method, self.rebalancer, *self.extras)}


@dataclass(frozen=True)
class Problem:
    """The training and test data that an experiment's seed draws from an image set."""

    x: torch.Tensor  # uint8 (N, 3, H, W), a view of bytes in channels-last order
    y: np.ndarray[Any, np.dtype[np.int64]]
    candidates: Candidates
    x_test: torch.Tensor
    y_test: np.ndarray[Any, np.dtype[np.int64]]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    seeds: Mapping[str, int]


def draw_problem(experiment: Experiment, images: ImageSet) -> Problem:
    """Subset, candidates and training get a seed each, drawn from the experiment's."""
    seeds = seed_streams(experiment.seed)
    n_classes = len(images.classes)
    if images.candidates is not None:
        rows, candidates = np.arange(len(images.y_train)), images.candidates
    else:
        largest = int(np.bincount(images.y_train).max())
        rows = long_tail_subset(images.y_train, experiment.imbalance, seed=seeds["subset"], largest=largest)
        labels = images.y_train[rows]
        if experiment.superclass:
            if images.superclass is None:
                raise InputError(f"The image set {shown(images.name)} has no superclasses: leave `superclass` out.")
            candidates = superclass_candidates(labels, images.superclass, experiment.ambiguity, seed=seeds["candidates"])
        else:
            candidates = uniform_candidates(labels, n_classes, experiment.ambiguity, seed=seeds["candidates"])
    x = np.ascontiguousarray(images.x_train[rows])
    return Problem(
        x=torch.from_numpy(x).permute(0, 3, 1, 2),
        y=images.y_train[rows],
        candidates=candidates,
        x_test=torch.from_numpy(np.array(images.x_test)).permute(0, 3, 1, 2),
        y_test=images.y_test,
        mean=tuple((x.mean((0, 1, 2)) / 255).tolist()),
        std=tuple((x.std((0, 1, 2)) / 255).tolist()),
        seeds=seeds,
    )


class Drawn(NamedTuple):
    """The candidate sets of an experiment with their true labels, and its settings in words."""

    candidates: Candidates
    labels: list[int]
    how: str


def drawn_sets(config: Mapping[str, Any], root: Path | None) -> Drawn:
    """What an experiment's config draws from its image set, as training draws it."""
    if config.get("experiment") != "images":
        raise InputError("The run is one of a study and not of an image set: its sets cannot be drawn again.")
    experiment = Experiment.from_config(config)
    images = load_image_set(experiment.data, root, mmap=True)
    # Pixels have no say in the sets, and leaving them on the disk saves gigabytes.
    x_train, x_test = (np.zeros((len(x), 1, 1, 3), np.uint8) for x in (images.x_train, images.x_test))
    problem = draw_problem(experiment, images._replace(x_train=x_train, x_test=x_test))
    sets = problem.candidates
    where = ", eight times that inside a superclass" if experiment.superclass else ""
    how = f"{images.name} at imbalance {experiment.imbalance:g}, ambiguity {experiment.ambiguity:g}{where}, seed {experiment.seed}"
    if images.candidates is not None:
        how = f"{images.name} with its own sets, whatever imbalance, ambiguity and seed"
    return Drawn(Candidates(sets.offsets, sets.labels, sets.n_classes, images.classes), problem.y.tolist(), how)


def build_trainer(
    experiment: Experiment,
    problem: Problem,
    *,
    device: str = "auto",
    engine: str = "auto",
    on_nan: str = "stop",
    threads: int | str = "auto",
    world: World | None = None,
    sync_batch_norm: bool = False,
) -> PartialLabelTrainer:
    """The experiment's parts, put together."""
    n_classes = problem.candidates.n_classes
    model = build_model(experiment.model, problem.seeds["training"], n_classes=n_classes, n_channels=3, width=experiment.width)
    counts = np.bincount(problem.y, minlength=n_classes)
    chosen = chosen_device(device)
    on_cuda = chosen.type == "cuda"
    low = experiment.precision == "bfloat16"
    return PartialLabelTrainer(
        # Channels last is the layout that a GPU's matrix units want.
        model.to(memory_format=torch.channels_last) if on_cuda else model,  # type: ignore[call-overload]
        *build_parts(experiment.method, experiment.rebalancer, experiment.extras, experiment.used_options(), class_frequencies=counts),
        views=ImageViews(
            experiment.views, problem.mean, problem.std, dtype=torch.bfloat16 if low else torch.float32, channels_last=on_cuda
        ),
        epochs=experiment.epochs,
        batch_size=experiment.batch_size,
        lr=experiment.lr,
        weight_decay=experiment.weight_decay,
        seed=problem.seeds["training"],
        device=chosen,
        precision=experiment.precision,  # type: ignore[arg-type]
        engine=engine,  # type: ignore[arg-type]
        chunk=max((CHUNK_PIXELS if on_cuda else CHUNK_PIXELS // 4) // problem.x[0, 0].numel(), 1),
        on_nan=on_nan,  # type: ignore[arg-type]
        threads=threads,  # type: ignore[arg-type]
        world=world,
        sync_batch_norm=sync_batch_norm,
    )


def train(
    run: Run,
    images: ImageSet,
    *,
    device: str = "auto",
    engine: str = "auto",
    measure_every: int = 10,
    on_epoch: Callable[[Record], None] | None = None,
    checkpoint_every: int = 1,
    on_nan: str = "stop",
    threads: int | str = "auto",
    world: World | None = None,
    sync_batch_norm: bool = False,
) -> None:
    """Train an experiment's run to its end, going on from its checkpoint if it has one; nobody but its `world` may train it meanwhile."""
    world = world or World()
    if world.agreed(run.done):
        return
    # Everything that can be refused is refused here, before the folder exists.
    experiment = Experiment.from_config(run.config)
    problem = draw_problem(experiment, images)
    how: dict[str, Any] = {"device": device, "engine": engine, "on_nan": on_nan, "threads": threads, "sync_batch_norm": sync_batch_norm}
    trainer = build_trainer(experiment, problem, world=world, **how)
    check_data(problem.x, problem.candidates, trainer.head)
    with run.locked() if world.first else nullcontext():
        if world.agreed(run.done):  # by another process, since this one looked
            return
        counts = np.bincount(problem.y, minlength=problem.candidates.n_classes)
        bare = experiment.rebalancer == "none" and not trainer.method.why_no_rebalancer
        posthoc = {POSTHOC: REBALANCERS[POSTHOC](counts)} if bare else {}
        truth = Evaluate(problem.x_test, problem.y_test, problem.y, posthoc=posthoc)
        facts: dict[str, Any] = {"class_counts": counts.tolist(), "classes": list(images.classes), "seeds": dict(problem.seeds)}
        facts |= {"engine": trainer.engine, "processes": world.size}
        record_training(
            run,
            trainer,
            problem.x,
            problem.candidates,
            truth,
            measure_every=measure_every,
            checkpoint_every=checkpoint_every,
            checkpoint_seconds=CHECKPOINT_SECONDS,
            on_epoch=on_epoch,
            **facts,
        )


def experiment_run(root: Path, experiment: Experiment) -> Run:
    return Run(root, experiment.config())
