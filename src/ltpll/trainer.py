"""Trainer: the one loop where candidates, targets, views, model, method, rebalancer and extras meet."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ltpll.candidates import Candidates
from ltpll.checkpoint import read_checkpoint, write_checkpoint
from ltpll.contract import Batch, Extra, Method, Outputs, Rebalancer
from ltpll.errors import InputError, InputWarning, NotFiniteError
from ltpll.inputs import as_inputs, at_least
from ltpll.randomness import get_random_state, random_state_of, set_random_state
from ltpll.rebalancers.none import NoRebalancing
from ltpll.targets import Targets, initial_targets
from ltpll.views import Views

Array = npt.ArrayLike | Tensor


class Measure(Protocol):
    """Watches a training from outside; `evaluate.Truth` is one."""

    def prepare(self, trainer: PartialLabelTrainer) -> None:
        """Called once before training, to refuse what does not fit."""

    def __call__(self, trainer: PartialLabelTrainer) -> dict[str, Any]:
        """Figures to add to the record of the epoch just finished."""


class PartialLabelTrainer:
    """Trains `model` (forward gives logits and features, `.head` is its last linear layer) on examples with candidate sets.

    Every source of chance is drawn from `seed`; torch's global random state is neither used nor changed.
    """

    def __init__(
        self,
        model: nn.Module,
        method: Method,
        rebalancer: Rebalancer | None = None,
        extras: Sequence[Extra] = (),
        *,
        views: Views | None = None,
        epochs: int = 100,
        batch_size: int = 256,
        lr: float = 0.01,
        final_lr: float = 1e-3,
        momentum: float = 0.9,
        weight_decay: float = 1e-3,
        warmup_epochs: int = 1,
        drop_last: bool = True,
        seed: int = 0,
        device: str | torch.device = "auto",
    ) -> None:
        if device == "auto":
            device = "cuda" if torch.cuda.is_available() else "cpu"
        self.device = torch.device(device)
        self.model = model.to(self.device)
        self.method = method.to(self.device)
        self.rebalancer = (rebalancer or NoRebalancing()).to(self.device)
        self.extras = nn.ModuleList(extras).to(self.device)
        self.views = views or Views()
        self.epochs = at_least(epochs, 1, "epochs")
        self.batch_size = at_least(batch_size, 1, "batch_size")
        self.warmup_epochs = at_least(warmup_epochs, 0, "warmup_epochs")
        self.lr, self.final_lr = lr, final_lr
        self.drop_last = drop_last
        self.epoch = 0
        self.history: list[dict[str, Any]] = []
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self._global_random = random_state_of(seed, self.device)
        parameters = [p for part in (model, method, self.rebalancer, self.extras) for p in part.parameters() if p.requires_grad]
        self.optimizer = torch.optim.SGD(parameters, lr=lr, momentum=momentum, weight_decay=weight_decay)
        self._check_parts()

    # ---- refusing what makes no sense ---------------------------------------------------------------------------------

    @property
    def head(self) -> nn.Linear:
        head = getattr(self.model, "head", None)
        if not isinstance(head, nn.Linear):
            raise InputError("The model has no linear layer `.head`: wrap it with ltpll.models.split_head or Classifier.")
        return head

    def _check_parts(self) -> None:
        head = self.head
        if self.method.own_rebalancing and not isinstance(self.rebalancer, NoRebalancing):
            raise InputError(
                f"The method {self.method.name!r} cannot take the rebalancer {self.rebalancer.name!r}: {self.method.own_rebalancing}"
            )
        try:
            with torch.no_grad():
                length = len(self.rebalancer.log_prior(head))
        except RuntimeError:
            raise InputError(
                f"The rebalancer {self.rebalancer.name!r} was made for another model: this one's head takes {head.in_features} features."
            ) from None
        if length != head.out_features:
            raise InputError(f"The rebalancer's prior has {length} classes, but the model's head has {head.out_features}.")
        if len(set(self.method.views)) > 1 and not (self.views.weak or self.views.strong):
            warnings.warn(
                f"The method {self.method.name!r} compares a weak with a strong view, but `views` changes nothing, so both are the same: "
                "give views=Views(weak=…, strong=…).",
                InputWarning,
                stacklevel=3,
            )

    def prepare(self, x: Array, candidates: Any) -> None:
        """Check the training data, put it on the device and start the targets; `fit` does this first."""
        sets = Candidates.of(candidates)
        inputs = as_inputs(x, "training")
        if len(inputs) != len(sets):
            raise InputError(f"There are {len(inputs)} rows of features but {len(sets)} candidate sets: they must be the same rows.")
        if sets.n_classes != self.head.out_features:
            raise InputError(f"The candidates have {sets.n_classes} classes, but the model's head has {self.head.out_features}.")
        sets.check_learnable()
        if bool((inputs == inputs[:1]).all()):
            raise InputError(f"All {len(inputs)} rows of the features are identical: nothing can be learned from them.")
        self.x = inputs.to(self.device)
        self.candidates = sets.to(self.device)
        self.targets: Targets = initial_targets(self.candidates, self.method.covers)
        self._not_finite = torch.zeros(len(sets), dtype=torch.bool, device=self.device)

    # ---- training -------------------------------------------------------------------------------------------------

    def fit(
        self,
        x: Array,
        candidates: Any,
        *,
        measure: Measure | None = None,
        on_epoch: Callable[[dict[str, Any]], None] | None = None,
        checkpoint: Path | str | None = None,
        measure_every: int = 1,
    ) -> PartialLabelTrainer:
        """Train until `epochs` are done; `on_epoch` gets each epoch's record as it is added to `history`.

        `measure` (usually an `evaluate.Truth`) adds its figures every `measure_every` epochs and after the last one.

        With `checkpoint`, the state is written there after every epoch, and training goes on from it if the file is there.
        """
        resumes = checkpoint is not None and Path(checkpoint).exists()
        if self.epoch > 0 and not resumes:
            # Its targets would start anew while its network would not.
            raise InputError(f"This trainer has trained for {self.epoch} epochs already: make a new one, with a new model, to start again.")
        self.prepare(x, candidates)
        if measure:
            measure.prepare(self)
        if checkpoint is not None and resumes:
            self.load(checkpoint)
        while self.epoch < self.epochs:
            record = self.train_epoch()
            if measure and (self.epoch % measure_every == 0 or self.epoch == self.epochs):
                record |= measure(self)
            self.history.append(record)
            if checkpoint is not None:
                self.save(checkpoint)
            if on_epoch:
                on_epoch(record)
        return self

    def train_epoch(self) -> dict[str, Any]:
        """One pass over the data; returns what is known without labels."""
        rate = cosine_rate(self.epoch, self.epochs, self.lr, self.lr * self.final_lr)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        self.model.train()
        self.method.start_epoch(self.epoch, self.epochs)
        self.rebalancer.start_epoch(self.epoch, self.epochs)
        total = torch.zeros((), device=self.device)
        steps = 0
        with self._own_random_state():
            for step, index in enumerate(self._batches()):
                total += self.step(index)
                steps += 1
                # Asking costs a synchronisation, which a GPU should not pay on every step.
                if self.device.type == "cpu":
                    self._check_finite(step)
        self._check_finite(None)
        self.rebalancer.end_epoch()
        self.epoch += 1
        return {"epoch": self.epoch, "loss": float(total) / steps, "lr": rate}

    def step(self, index: Tensor) -> Tensor:
        """One optimizer step on the rows in `index`; returns the loss, detached."""
        refine = self.epoch >= self.warmup_epochs
        candidates = self.candidates[index]
        batch = Batch(self.views.draw(self.x[index], self.method.views, self.generator), self.targets[index], candidates)
        own = [extra.inputs(batch, self.epoch, self.generator) for extra in self._extras()]
        outputs, *own_outputs = self._forward([batch, *own])
        assert outputs is not None

        self.rebalancer.observe(outputs.detach(), self.head)
        loss = self.method.loss(outputs, batch.targets, candidates)
        for extra, inputs, said in zip(self._extras(), own, own_outputs, strict=True):
            loss = loss + extra.loss(self.method, self.head, batch, outputs, inputs, said)
        if refine:
            with torch.no_grad():
                adjusted = self.rebalancer.adjust(outputs.detach(), "targets", self.head)
                self.targets[index] = self.method.disambiguate(adjusted, batch.targets, candidates)
        self._not_finite[index] = ~torch.stack([torch.isfinite(z).all(1) for z in outputs.logits]).all(0)

        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def _forward(self, batches: Sequence[Batch | None]) -> list[Outputs | None]:
        """All views of all batches through the network at once, since batch norm is to see them together."""
        views = [view for batch in batches if batch is not None for view in batch.views]
        logits, features = self.model(torch.cat(views))
        sizes = [len(view) for view in views]
        parts = iter(zip(logits.float().split(sizes), features.split(sizes), strict=True))
        outputs: list[Outputs | None] = []
        for batch in batches:
            if batch is None:
                outputs.append(None)
                continue
            per_view = [next(parts) for _ in batch.views]
            outputs.append(Outputs(tuple(z for z, _ in per_view), tuple(f for _, f in per_view)))
        return outputs

    def _extras(self) -> list[Extra]:
        return [extra for extra in self.extras if isinstance(extra, Extra)]

    def _batches(self) -> Iterator[Tensor]:
        n = len(self.candidates)
        order = torch.randperm(n, generator=self.generator, device=self.device)
        for index in order.split(min(self.batch_size, n)):
            if len(index) == min(self.batch_size, n) or not self.drop_last:
                yield index

    def _check_finite(self, step: int | None) -> None:
        if not bool(self._not_finite.any()):
            return
        rows = torch.nonzero(self._not_finite).flatten().tolist()
        shown = ", ".join(map(str, rows[:5])) + (", …" if len(rows) > 5 else "")
        where = f"epoch {self.epoch + 1}" + ("" if step is None else f", step {step + 1}")
        raise NotFiniteError(
            f"The network's logits are not finite in {where}, for row{'s' if len(rows) > 1 else ''} {shown}: "
            f"lower the learning rate (now {self.lr:g}) or look for extreme values in these rows."
        )

    @contextmanager
    def _own_random_state(self) -> Iterator[None]:
        """Give layers that draw from torch's global random state (dropout) this trainer's own, and put the caller's back."""
        devices = [self.device] if self.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices):
            set_random_state(self._global_random, self.device)
            yield
            self._global_random = get_random_state(self.device)

    # ---- predicting -----------------------------------------------------------------------------------------------

    @torch.no_grad()
    def outputs(self, x: Array, batch_size: int = 2048) -> Outputs:
        """What the network says of un-augmented inputs, without any rebalancing."""
        inputs = as_inputs(x, "prediction")
        self.model.eval()
        parts = [self.model(part.to(self.device)) for part in inputs.split(batch_size)]
        return Outputs((torch.cat([z.float() for z, _ in parts]),), (torch.cat([f for _, f in parts]),))

    def logits(self, x: Array) -> Tensor:
        """Logits as this trainer predicts with them: the rebalancer's prior subtracted, if it acts at prediction."""
        return self.rebalancer.adjust(self.outputs(x), "prediction", self.head).logits[0]

    def predict(self, x: Array) -> npt.NDArray[np.int64]:
        """The predicted class number of each row."""
        return self.logits(x).argmax(1).cpu().numpy()

    # ---- checkpoints ----------------------------------------------------------------------------------------------

    def save(self, path: Path | str) -> None:
        """Write everything that decides the rest of this training."""
        tensors: dict[str, Tensor] = {"targets": self.targets.values, "generator": self.generator.get_state()}
        tensors |= {f"random.{name}": state for name, state in self._global_random.items()}
        for prefix, module in self._modules().items():
            tensors |= {f"{prefix}.{name}": tensor for name, tensor in module.state_dict().items()}
        for number, state in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer.{number}.{name}": value for name, value in state.items() if isinstance(value, Tensor)}
        write_checkpoint(Path(path), tensors, {"epoch": self.epoch, "history": self.history, "parts": self._part_names()})

    def load(self, path: Path | str) -> None:
        """Go on from a checkpoint of the same parts and the same data; call `prepare` first."""
        tensors, values = read_checkpoint(Path(path))
        if values.get("parts") != self._part_names():
            raise InputError(f"The checkpoint {path} is of {values.get('parts')}, not of {self._part_names()}: use another path.")
        if tensors["targets"].shape != self.targets.values.shape:
            raise InputError(f"The checkpoint {path} belongs to other training data: its targets have another size.")
        self.targets.values.copy_(tensors["targets"])
        self.generator.set_state(tensors["generator"])
        self._global_random = _under(tensors, "random.")
        for prefix, module in self._modules().items():
            module.load_state_dict(_under(tensors, f"{prefix}."))
        state: dict[int, dict[str, Tensor]] = {}
        for name, tensor in _under(tensors, "optimizer.").items():
            number, key = name.split(".", 1)
            state.setdefault(int(number), {})[key] = tensor
        self.optimizer.load_state_dict({"state": state, "param_groups": self.optimizer.state_dict()["param_groups"]})
        self.epoch = int(values["epoch"])
        self.history = list(values["history"])

    def _modules(self) -> dict[str, nn.Module]:
        return {"model": self.model, "method": self.method, "rebalancer": self.rebalancer, "extras": self.extras}

    def _part_names(self) -> dict[str, Any]:
        return {"method": self.method.name, "rebalancer": self.rebalancer.name, "extras": [extra.name for extra in self._extras()]}


def cosine_rate(epoch: int, n_epochs: int, start: float, end: float) -> float:
    """The learning rate of an epoch, falling from `start` towards `end` along half a cosine."""
    return end + (start - end) * (1 + math.cos(math.pi * epoch / n_epochs)) / 2


def _under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}
