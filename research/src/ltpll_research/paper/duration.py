"""Estimates how long missing runs will take, from the speed of finished ones."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ltpll.methods import METHODS
from ltpll.synthetic.longtail import class_sizes
from ltpll_research.benchmark import Experiment
from ltpll_research.paper.grid import Finished

# Classes, examples of the largest class, and pixels per image; VOC is not drawn as a subset.
SIZES = {"cifar10": (10, 5000, 1024), "cifar100": (100, 500, 1024)}
VOC_EXAMPLES, VOC_PIXELS = 11_706, 128 * 128


def pixels_processed(config: Mapping[str, Any]) -> float:
    """Pixels that pass through the network in one run; its time is proportional to them on one device with one model."""
    if config["data"] in SIZES:
        n_classes, largest, pixels = SIZES[config["data"]]
        examples = int(class_sizes(largest, n_classes, config["imbalance"]).sum())
    else:
        examples, pixels = VOC_EXAMPLES, VOC_PIXELS
    views = METHODS[config["method"]]().cost * (
        2 if "mixup" in config["extras"] else 1
    )  # mixup adds as many blended images
    return float(examples * views * pixels * config["epochs"])


@dataclass(frozen=True)
class Pace:
    """Pixels per second of finished runs on this hardware or, if there are none, on the fastest hardware that has some."""

    hardware: str
    speed: float | None

    @classmethod
    def of(cls, finished: Finished, hardware: str) -> Pace:
        speeds: dict[str, list[float]] = {}
        for record in finished.all():
            seconds, machine = record.get("seconds"), record.get("environment", {}).get("hardware")
            if seconds and machine:
                speeds.setdefault(machine, []).append(
                    pixels_processed(Experiment.from_config(record["config"]).config()) / seconds
                )
        medians = {name: statistics.median(values) for name, values in speeds.items()}
        known = (
            hardware
            if hardware in medians
            else max(medians, key=lambda name: medians[name], default=hardware)
        )
        return cls(known, medians.get(known))

    def seconds(self, runs: Sequence[Experiment]) -> float | None:
        return (
            None
            if self.speed is None
            else sum(pixels_processed(run.config()) for run in runs) / self.speed
        )
