"""Resuming: everything that decides the rest of a training, as a checkpoint and back, after any step."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ltpll.candidates import Candidates
from ltpll.errors import InputError, first_line, shown
from ltpll.interfaces import Extra, Method, Rebalancer
from ltpll.targets import Targets
from ltpll.training.batches import Feed
from ltpll.training.checkpoint import (
    ANOTHER,
    Tensors,
    Values,
    add_checkpoint,
    load_optimizer,
    optimizer_tensors,
    under_prefix,
    usable_checkpoint,
    with_prefix,
)
from ltpll.training.cpu_threads import Threads
from ltpll.training.distributed import World
from ltpll.training.nonfinite import Guard, all_finite, not_finite

LONG = 1000  # numbers in a list


class Resumable:
    """What a trainer inherits to be able to stop and go on, and what it has to have for that."""

    device: torch.device
    world: World
    model: nn.Module
    method: Method
    rebalancer: Rebalancer
    extras: nn.ModuleList
    optimizer: torch.optim.Optimizer
    generator: torch.Generator
    threads: Threads
    candidates: Candidates
    targets: Targets
    lr: float
    epoch: int
    history: list[dict[str, Any]]
    seconds_elsewhere: float
    """How long the epoch at hand took in the process that started it, if that was another one."""
    _guard: Guard | None
    _global_random: dict[str, Tensor]
    _restart: int
    _initial: Tensors

    def start_counting(self, feed: Feed) -> None:
        """A new training: nothing of its first epoch is done."""
        self._feed = feed
        self._total = torch.zeros((), dtype=self.targets.values.dtype, device=self.device)  # of the epoch's losses
        self._data = ""
        self._began, self.seconds_elsewhere = time.perf_counter(), 0.0

    def count_epoch(self) -> None:
        """One more epoch is done, and nothing of the next."""
        self._feed.restart()
        self._total.zero_()
        if self._guard:
            self._guard.dropped.zero_()
        self.epoch += 1

    def _start_epoch(self, seconds: float) -> None:
        """An epoch starts, or was started elsewhere and has taken so many seconds there."""
        self._began, self.seconds_elsewhere = time.perf_counter(), seconds

    def save(self, path: Path | str) -> None:
        """Write everything that decides the rest of this training, and keep what was written before; never a state that is not finite."""
        self._check_weights()
        if not self.world.first:
            return
        tensors = self._state() | with_prefix("epoch", self._feed.state())
        if self.epoch < self._restart:
            tensors |= with_prefix("initial", self._initial)
        values = {
            "epoch": self.epoch,
            "step": self._feed.step,
            "seconds": self.seconds_elsewhere + time.perf_counter() - self._began if self._feed.step else 0.0,
            "history": self.history,
            "parts": self._part_names(),
            "device": self.device.type,
            "data": self._fingerprint(),
            "feed": self._feed.settings,
            "threads": self.threads.number,
        }
        add_checkpoint(Path(path), tensors, values)

    def load(self, path: Path | str) -> None:
        """Go on from a checkpoint of the same parts and the same data, or from the one before it; call `prepare` first."""
        if not self.world.first:
            self.world.wait()  # until what cannot be used is set aside
        tensors, values = usable_checkpoint(Path(path), self._against)
        if self.world.first:
            self.world.wait()
        try:
            self._restore(tensors, values)
        except Exception as error:  # of torch about a state of another kind, or of what is not there
            raise InputError(f"The checkpoint {path} does not fit this training ({first_line(error)}): {ANOTHER}.") from None

    def _restore(self, tensors: Tensors, values: Values) -> None:
        self.epoch = int(values["epoch"])
        self.history = list(values["history"])
        self.threads.number = int(values.get("threads", 0))
        self._feed.load(int(values["step"]), under_prefix("epoch", tensors))
        if self._feed.step:
            # Before the tensors, which are as the steps since then have left them.
            self._start_epoch(float(values["seconds"]))
        self.targets.values.copy_(tensors["targets"])
        self._total.copy_(tensors["total"])
        self.generator.set_state(tensors["generator"])
        if self.world.first:  # it is the first process's; others have seeds of their own for every epoch
            self._global_random = under_prefix("random", tensors)
        for name, module in self._modules().items():
            module.load_state_dict(under_prefix(name, tensors))
        load_optimizer(self.optimizer, tensors)
        if self._guard and "dropped" in tensors:
            self._guard.dropped.copy_(tensors["dropped"])
        self._initial = {name: tensor.to(self.device) for name, tensor in under_prefix("initial", tensors).items()} or self._initial

    def _state(self) -> Tensors:
        """Every tensor that a checkpoint has wherever in the training it is taken."""
        tensors = {"targets": self.targets.values, "total": self._total, "generator": self.generator.get_state()}
        if self._guard:
            tensors["dropped"] = self._guard.dropped
        tensors |= with_prefix("random", self._global_random)
        for name, module in self._modules().items():
            tensors |= with_prefix(name, module.state_dict())
        return tensors | optimizer_tensors(self.optimizer)

    def _against(self, tensors: Tensors, values: Values) -> str:
        """Why a checkpoint is not one of this training; empty if it is."""
        counts = [values.get(name) for name in ("epoch", "step")]
        if not all(isinstance(count, int) and count >= 0 for count in counts) or not isinstance(values.get("history"), list):
            return "does not say how far it is"
        if values.get("parts") != self._part_names():
            return f"is of {shown(values.get('parts'))}, not of {self._part_names()}"
        if values.get("device") != self.device.type:
            return f"was made on {shown(values.get('device'))}, whose random numbers {self.device.type} cannot continue"
        if values.get("data") != self._fingerprint():
            return "belongs to other training data"
        if values["step"] and values.get("feed") != self._feed.settings:
            return f"was made in the middle of an epoch with {shown(values.get('feed'))}, not {self._feed.settings}"
        ours = self._state()
        for name in sorted((ours.keys() | tensors.keys()) - {"dropped"}):
            if name.startswith(("epoch.", "initial.")):
                continue
            if name not in tensors or name not in ours or tensors[name].shape != ours[name].shape:
                return f"belongs to another network or other settings, which differ in {name}"
        return ""

    def _check_weights(self) -> None:
        """Refuse a state that a last step with gradients that are not finite has left: nothing shows it but the weights themselves."""
        trained = [parameter for group in self.optimizer.param_groups for parameter in group["params"]]
        if not all_finite([self.targets.values, *trained, *self.model.buffers(), *optimizer_tensors(self.optimizer).values()]):
            raise not_finite("The weights or what goes with them are", self.epoch + (self._feed.step > 0), None, (), self.lr)

    def _fingerprint(self) -> str:
        """A hash of the candidate sets."""
        if not self._data:
            digest = hashlib.sha256()
            for part in (self.candidates.offsets, self.candidates.labels):
                digest.update(part.cpu().numpy().tobytes())
            self._data = digest.hexdigest()[:12]
        return self._data

    def _modules(self) -> dict[str, nn.Module]:
        return {"model": self.model, "method": self.method, "rebalancer": self.rebalancer, "extras": self.extras}

    def _part_names(self) -> dict[str, Any]:
        extras = [extra.name for extra in self.extras if isinstance(extra, Extra)]
        return {"method": self.method.name, "rebalancer": self.rebalancer.name, "extras": extras}


def without_long_lists(record: Mapping[str, Any]) -> dict[str, Any]:
    """An epoch's record less its figures of single classes, where there are so many that those of all epochs would fill checkpoints."""
    kept = {key: without_long_lists(value) if isinstance(value, Mapping) else value for key, value in record.items()}
    return {key: value for key, value in kept.items() if not (isinstance(value, list) and len(value) > LONG)}
