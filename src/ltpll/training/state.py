"""Training state: everything that decides the rest of a run, as checkpoints hold it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ltpll.candidates import Candidates
from ltpll.errors import shown
from ltpll.targets import Targets
from ltpll.training.batches import BatchSampler
from ltpll.training.checkpoint import (
    Tensors,
    Values,
    load_optimizer,
    optimizer_tensors,
    trained_parameters,
    under_prefix,
    with_prefix,
)
from ltpll.training.cpu_threads import Threads
from ltpll.training.nonfinite import all_finite

LONG_LIST = 1000  # numbers


class TrainingState:
    """The changing state of a training run: weights, optimizer, targets, random states, progress.

    `modules` are model, method, rebalancer and extras; batches and views are drawn from
    `generator`, and layers draw from `random`, torch's global random state as the training sees it.
    """

    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        optimizer: torch.optim.Optimizer,
        generator: torch.Generator,
        random: dict[str, Tensor],
        n_skipped: Tensor,
        threads: Threads,
    ) -> None:
        self.modules, self.optimizer = modules, optimizer
        self.generator, self.device = generator, generator.device
        self.random, self.n_skipped = random, n_skipped
        self.threads = threads
        self.parts: dict[str, Any] = {kind: modules[kind].name for kind in ("method", "rebalancer")}
        self.parts["extras"] = [extra.name for extra in modules["extras"].children()]
        self.epoch = 0
        self.history: list[dict[str, Any]] = []
        self.initial: Tensors = {}
        """The model's first weights, for methods that restart, until they have done so."""

    def start(self, candidates: Candidates, targets: Targets, batches: BatchSampler) -> None:
        """Begin a training run on new data."""
        self.targets, self.batches = targets, batches
        # Over the steps of the epoch.
        self.loss_sum = torch.zeros((), dtype=targets.values.dtype, device=self.device)
        self.fingerprint = _fingerprint(candidates)
        self.start_epoch()

    def start_epoch(self, seconds_before: float = 0.0) -> None:
        """Start the clock of an epoch, of which an earlier process may have spent some seconds."""
        self._started, self.seconds_before = time.perf_counter(), seconds_before

    def end_epoch(self) -> None:
        """Count a finished epoch and reset what belongs to a single epoch."""
        self.batches.restart()
        self.loss_sum.zero_()
        self.n_skipped.zero_()
        self.epoch += 1

    def add_record(self, record: dict[str, Any]) -> None:
        """Append a record to the history; long lists are kept only in the last record."""
        if self.history:
            self.history[-1] = without_long_lists(self.history[-1])
        self.history.append(record)

    def state_dict(self) -> tuple[Tensors, Values]:
        """Return all tensors and all plain values of a checkpoint."""
        step, tensors = self.batches.step, self.tensors()
        tensors |= with_prefix("epoch", self.batches.state_dict())
        tensors |= with_prefix("initial", self.initial)
        return tensors, {
            "epoch": self.epoch,
            "step": step,
            "seconds": self.seconds_before + time.perf_counter() - self._started if step else 0.0,
            "history": self.history,
            "parts": self.parts,
            "device": self.device.type,
            "data": self.fingerprint,
            "feed": self.batches.settings,
            "threads": self.threads.number,
        }

    def load_state_dict(
        self,
        tensors: Tensors,
        values: Values,
        start_epoch: Callable[[float], None],
        with_random: bool = True,
    ) -> None:
        """Restore what `state_dict` returned.

        If the checkpoint lies within an epoch, `start_epoch` is called with the seconds already
        spent: what the parts do at its start comes before their tensors are restored. Without
        `with_random`, torch's random state is left alone; it belongs to the first process of
        several.
        """
        self.epoch = int(values["epoch"])
        self.history = list(values["history"])
        self.threads.number = int(values.get("threads", 0))
        self.batches.load_state_dict(int(values["step"]), under_prefix("epoch", tensors))
        if self.batches.step:
            start_epoch(float(values["seconds"]))
        self.targets.values.copy_(tensors["targets"])
        self.loss_sum.copy_(tensors["total"])
        self.generator.set_state(tensors["generator"])
        if with_random:
            self.random = under_prefix("random", tensors)
        for name, module in self.modules.items():
            module.load_state_dict(under_prefix(name, tensors))
        load_optimizer(self.optimizer, tensors)
        if "dropped" in tensors:
            self.n_skipped.copy_(tensors["dropped"])
        initial = under_prefix("initial", tensors)
        self.initial = {key: one.to(self.device) for key, one in initial.items()} or self.initial

    def tensors(self) -> Tensors:
        """The tensors that a checkpoint has at any point of a training run."""
        found = {
            "targets": self.targets.values,
            "total": self.loss_sum,
            "generator": self.generator.get_state(),
            "dropped": self.n_skipped,
        }
        found |= with_prefix("random", self.random)
        for name, module in self.modules.items():
            found |= with_prefix(name, module.state_dict())
        return found | optimizer_tensors(self.optimizer)

    def mismatch(self, tensors: Tensors, values: Values) -> str:
        """Return why a checkpoint does not belong to this training; empty if it does."""
        counts = [values.get(name) for name in ("epoch", "step")]
        whole = all(isinstance(count, int) and count >= 0 for count in counts)
        if not whole or not isinstance(values.get("history"), list):
            return "does not say how many epochs and steps it has"
        identity = {
            "other parts": ("parts", self.parts),
            "another device, whose random numbers differ": ("device", self.device.type),
            "other training data": ("data", self.fingerprint),
        }
        if values["step"]:
            identity["other batches, in the middle of an epoch"] = "feed", self.batches.settings
        for what, (name, expected) in identity.items():
            if values.get(name) != expected:
                return f"was made with {what} ({shown(values.get(name))}, not {expected})"
        own = self.tensors()
        for name in sorted((own.keys() | tensors.keys()) - {"dropped"}):
            if name.startswith(("epoch.", "initial.")):
                continue
            if name not in tensors or name not in own or tensors[name].shape != own[name].shape:
                return f"belongs to another network or other settings, which differ in {name}"
        return ""

    def is_finite(self) -> bool:
        """Whether all weights, buffers, momenta and targets are finite.

        A last step with non-finite gradients shows nowhere else.
        """
        tensors = [self.targets.values, *trained_parameters(self.optimizer)]
        momenta = optimizer_tensors(self.optimizer).values()
        return all_finite([*tensors, *self.modules["model"].buffers(), *momenta])


def _fingerprint(candidates: Candidates) -> str:
    """A hash of the candidate sets and their weights."""
    digest = hashlib.sha256()
    for part in (candidates.offsets, candidates.labels, candidates.weights):
        if part is not None:
            digest.update(part.cpu().numpy().tobytes())
    return digest.hexdigest()[:12]


def without_long_lists(record: Mapping[str, Any], longest: int | None = None) -> dict[str, Any]:
    """Return a record without lists of more than `longest` numbers, by default 1,000.

    Those of all epochs would fill checkpoints.
    """
    longest = LONG_LIST if longest is None else longest
    return {
        key: without_long_lists(value, longest) if isinstance(value, Mapping) else value
        for key, value in record.items()
        if not (isinstance(value, list) and len(value) > longest)
    }
