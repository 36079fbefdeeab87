"""Protocols: how each system was trained for its published numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Settings = Mapping[str, Any]  # entries of an Experiment


@dataclass(frozen=True)
class Protocol:
    """How a row of a table is trained.

    Args:
        name: The name by which rows refer to it.
        summary: The protocol in words, for the reader of a table.
        owner: Whose protocol it is, as part of a row's label; empty for the RECORDS paper.
        length: The number of epochs as part of a row's label; empty if it is the RECORDS paper's.
        settings: Entries of an experiment that differ from their defaults, which are the RECORDS
            paper's protocol.
        by_data: Further entries for single image sets.

    Examples:
        >>> PROTOCOLS["htc"].settings_for("cifar10")["milestones"]
        [701]
    """

    name: str
    summary: str
    owner: str = ""
    length: str = ""
    settings: Settings = field(default_factory=dict)
    by_data: Mapping[str, Settings] = field(default_factory=dict)

    def settings_for(self, data: str) -> dict[str, Any]:
        """The entries of an experiment on an image set."""
        return {**self.settings, **self.by_data.get(data, {})}

    @property
    def mark(self) -> str:
        """How the labels of rows refer to it; empty for the RECORDS paper's protocol."""
        return ", ".join(part for part in (self.owner, self.length) if part)

    def label(self, row: str) -> str:
        """The label of a row that is trained in this way."""
        return f"{row}, {self.mark}" if self.mark else row


# SoLar's authors shorten the first stage on CIFAR-100, move the prior more slowly there and rely on
# fewer examples.
SOLAR_ON_CIFAR100 = {
    "options": {"solar": {"estimation_epochs": 20, "quota": [0.2, 0.5], "rates": [0.05, 0.01]}}
}
# Milestones of SoLar, HTC and DEACON are one more than in their code, where the learning rate falls only
# after the epoch whose number, counted from 0, is the milestone.
STEPS = {"views": "flip-crop", "schedule": "step"}

PROTOCOLS: Mapping[str, Protocol] = {
    protocol.name: protocol
    for protocol in (
        Protocol(
            "records", "800 epochs, learning rate 0.01 along a cosine, the RECORDS paper's views"
        ),
        Protocol(
            "records-solar",
            "100 epochs that estimate the prior (20 on CIFAR-100), then 800, as the RECORDS paper "
            "ran SoLar; its cosine and its views",
            length="prior estimation, then 800 epochs",
            settings={"epochs": 900},
            by_data={"cifar100": {"epochs": 820, **SOLAR_ON_CIFAR100}},
        ),
        Protocol(
            "solar",
            "100 epochs that estimate the prior (20 on CIFAR-100), then 1,000; learning rate 0.01, "
            "times 0.1 after 701, 801 and 901; flip and crop",
            owner="SoLar's protocol",
            length="prior estimation, then 1000 epochs",
            settings={"epochs": 1100, "milestones": [701, 801, 901], **STEPS},
            by_data={"cifar100": {"epochs": 1020, **SOLAR_ON_CIFAR100}},
        ),
        Protocol(
            "htc",
            "800 epochs, learning rate 0.01 for 701 of them, then 0.001; flip and crop",
            owner="HTC's protocol",
            settings={"milestones": [701], **STEPS},
        ),
        Protocol(
            "deacon",
            "850 epochs, learning rate 0.01 for 701 of them, then 0.001; flip and crop",
            owner="DEACON's protocol",
            length="850 epochs",
            settings={"epochs": 850, "milestones": [701], **STEPS},
        ),
        Protocol(
            "pop",
            "500 epochs, learning rate 0.05, times 0.1 after 100 and 150; flip and crop; a ResNet-18 "
            "instead of a wide ResNet",
            owner="POP's protocol",
            length="500 epochs",
            settings={"epochs": 500, "lr": 0.05, "milestones": [100, 150], **STEPS},
        ),
        Protocol(
            "papi",
            "500 epochs, learning rate 0.05 (0.1 on CIFAR-100) along a cosine; flip and crop",
            owner="PaPi's protocol",
            length="500 epochs",
            settings={"epochs": 500, "lr": 0.05, "views": "flip-crop"},
            by_data={"cifar100": {"lr": 0.1}},
        ),
        Protocol(
            "dirk",
            "DIRK-REF: 500 epochs in batches of 64, learning rate 0.01 along a cosine, the RECORDS "
            "paper's views; a ResNet-18 instead of a ResNet-34",
            owner="DIRK's protocol",
            length="500 epochs",
            settings={"epochs": 500, "batch_size": 64, "options": {"dirk": {"contrast": 1.0}}},
        ),
        Protocol(
            "alim",
            "1,000 epochs in batches of 128, learning rate 0.01 along a cosine, the RECORDS paper's "
            "views; λ from epoch 80 on (140 on CIFAR-10), the form scale on CIFAR-100",
            owner="ALIM's protocol",
            length="1000 epochs",
            settings={"epochs": 1000, "batch_size": 128},
            by_data={
                "cifar10": {"options": {"alim": {"estimate_from": 140}}},
                "cifar100": {"options": {"alim": {"form": "scale"}}},
            },
        ),
    )
}
