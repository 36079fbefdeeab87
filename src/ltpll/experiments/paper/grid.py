"""The grid: the runs that an item needs, which of them are finished, and how long the rest will take."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ltpll.data.synthetic.longtail import class_sizes
from ltpll.errors import InputError
from ltpll.experiments.benchmark import Experiment
from ltpll.experiments.paper.items import Item, Setting
from ltpll.extras import EXTRAS
from ltpll.methods import METHODS
from ltpll.rebalancers import REBALANCERS
from ltpll.registry import unknown_name
from ltpll.runs.run import Record, finished_in

ALIASES = {"dataset": "data", "rho": "imbalance", "q": "ambiguity"}
# Classes, examples of the largest class and pixels of an image; VOC is a list of objects, not a subset that is drawn.
SIZES = {"cifar10": (10, 5000, 1024), "cifar100": (100, 500, 1024)}
VOC_EXAMPLES, VOC_PIXELS = 11_706, 128 * 128


def unbuilt(setting: Setting) -> list[str]:
    """The parts of a setting that this program does not have yet."""
    missing = [name for name in setting["extras"] if name not in EXTRAS]
    missing += [setting["rebalancer"]] if setting["rebalancer"] not in REBALANCERS else []
    return [setting["method"], *missing] if setting["method"] not in METHODS else missing


def experiment_of(setting: Setting, changes: Mapping[str, Any], seed: int) -> Experiment:
    """A setting of the paper's, with departures from its protocol."""
    return Experiment.from_mapping({**setting, **changes, "seed": seed})


def experiments(item: Item, seeds: int, changes: Mapping[str, Any], only: Mapping[str, Any]) -> list[Experiment]:
    """The runs of an item that can be run, for every seed: all settings with the first seed before any with the second."""
    made = []
    for seed in range(seeds):
        for setting in item.settings:
            if not unbuilt(setting):
                experiment = experiment_of(setting, changes, seed)
                if all(getattr(experiment, name) == value for name, value in only.items()):
                    made.append(experiment)
    return made


def parse_choice(text: str) -> dict[str, Any]:
    """'dataset=cifar10 imbalance=100' as entries of an experiment."""
    known = {one.name: one for one in fields(Experiment)}
    chosen: dict[str, Any] = {}
    for word in text.split():
        name, separator, value = word.partition("=")
        name = ALIASES.get(name, name)
        if not separator:
            raise InputError(f"{word!r} chooses nothing: write name=value, such as dataset=cifar10.")
        if name not in known:
            raise unknown_name("setting", name, [*known, *ALIASES])
        default = known[name].default
        try:
            chosen[name] = _as(type(default), value) if isinstance(default, (bool, int, float)) else value
        except ValueError:
            raise InputError(
                f"{word!r} cannot be read: {name} is {'true or false' if isinstance(default, bool) else 'a number'}."
            ) from None
        if name == "extras":
            chosen[name] = tuple(part for part in value.split(",") if part)
    return chosen


def _as(kind: type, text: str) -> Any:
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise ValueError(text)
        return text.lower() == "true"
    return kind(text)


# ---- finished runs ----------------------------------------------------------------------------------------------------


def identity(config: Mapping[str, Any]) -> str:
    """What makes two runs the same experiment: everything but the precision, which a device chooses."""
    return json.dumps({key: value for key, value in config.items() if key not in ("precision", "experiment")}, sort_keys=True)


class Finished:
    """The records of finished runs, by experiment."""

    def __init__(self, records: Iterable[Record]) -> None:
        self._records = {identity(record["config"]): record for record in records}

    @classmethod
    def under(cls, *folders: Path) -> Finished:
        """From folders of runs (those that are done) and folders of committed results."""
        found = [
            record
            for folder in folders
            for record in finished_in(folder, skip_damaged=True)
            if record["config"].get("experiment") == "images"
        ]
        return cls(found)

    def __contains__(self, experiment: Experiment) -> bool:
        return self.get(experiment) is not None

    def get(self, experiment: Experiment) -> Record | None:
        return self._records.get(identity(experiment.config()))

    def all(self) -> list[Record]:
        return list(self._records.values())


# ---- how long ---------------------------------------------------------------------------------------------------------


def work(config: Mapping[str, Any]) -> float:
    """Pixels that go through the network in one run: what its time is proportional to on one device with one model."""
    if config["data"] in SIZES:
        n_classes, largest, pixels = SIZES[config["data"]]
        examples = int(class_sizes(largest, n_classes, config["imbalance"]).sum())
    else:
        examples, pixels = VOC_EXAMPLES, VOC_PIXELS
    views = METHODS[config["method"]]().cost * (2 if "mixup" in config["extras"] else 1)  # blends are as many again
    return float(examples * views * pixels * config["epochs"])


@dataclass(frozen=True)
class Pace:
    """Pixels a second, from finished runs on this hardware or, where there are none, on the fastest that has some."""

    hardware: str
    speed: float | None

    @classmethod
    def of(cls, finished: Finished, hardware: str) -> Pace:
        speeds: dict[str, list[float]] = {}
        for record in finished.all():
            seconds, machine = record.get("seconds"), record.get("environment", {}).get("hardware")
            if seconds and machine:
                speeds.setdefault(machine, []).append(work(Experiment.from_config(record["config"]).config()) / seconds)
        medians = {name: statistics.median(values) for name, values in speeds.items()}
        known = hardware if hardware in medians else max(medians, key=lambda name: medians[name], default=hardware)
        return cls(known, medians.get(known))

    def seconds(self, runs: Sequence[Experiment]) -> float | None:
        return None if self.speed is None else sum(work(run.config()) for run in runs) / self.speed
