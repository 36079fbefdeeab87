"""Estimates how long missing runs will take, from the speed of finished ones."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ltpll.methods import METHODS
from ltpll.synthetic import class_sizes
from ltpll_research.benchmark import Experiment
from ltpll_research.paper.grid import Finished

# Classes, examples of the largest class, and pixels per image; VOC is not drawn as a subset.
SIZES = {"cifar10": (10, 5000, 1024), "cifar100": (100, 500, 1024)}
VOC_EXAMPLES, VOC_PIXELS = 11_706, 128 * 128


def pixels_processed(config: Mapping[str, Any]) -> float:
    """Pixels that pass through the network in one run, to which its time is proportional."""
    if config["data"] in SIZES:
        n_classes, largest, pixels = SIZES[config["data"]]
        examples = int(class_sizes(largest, n_classes, config["imbalance"]).sum())
    else:
        examples, pixels = VOC_EXAMPLES, VOC_PIXELS
    views = METHODS[config["method"]]().cost
    if "mixup" in config["extras"]:
        views *= 2  # it adds as many blended images
    return float(examples * views * pixels * config["epochs"])


@dataclass(frozen=True)
class Pace:
    """Pixels per second of finished runs on this hardware, or else on the fastest with runs."""

    hardware: str
    speed: float | None

    @classmethod
    def of(cls, finished: Finished, hardware: str) -> Pace:
        speeds: dict[str, list[float]] = {}
        for record in finished.all():
            seconds, machine = record.get("seconds"), record.get("environment", {}).get("hardware")
            if seconds and machine:
                pixels = pixels_processed(Experiment.from_config(record["config"]).config())
                speeds.setdefault(machine, []).append(pixels / seconds)
        medians = {name: statistics.median(values) for name, values in speeds.items()}
        if hardware not in medians:
            hardware = max(medians, key=lambda name: medians[name], default=hardware)
        return cls(hardware, medians.get(hardware))

    def seconds(self, runs: Sequence[Experiment]) -> float | None:
        if self.speed is None:
            return None
        return sum(pixels_processed(run.config()) for run in runs) / self.speed
