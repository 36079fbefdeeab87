"""Trainer: the one loop where candidates, targets, views, model, method, rebalancer and extras meet."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ltpll.candidates import Candidates
from ltpll.checkpoint import load_optimizer, optimizer_tensors, read_checkpoint, under_prefix, with_prefix, write_checkpoint
from ltpll.checks import check_data, check_parts
from ltpll.contract import Batch, Extra, Method, Outputs, Rebalancer, Step, ViewKind, linear_head
from ltpll.engine import Captured, alongside, chosen_engine
from ltpll.errors import InputError, NotFiniteError, first_line, shown
from ltpll.inputs import as_inputs, at_least, chosen_device
from ltpll.passes import Passes
from ltpll.predictor import Array, Predictor, at_once
from ltpll.randomness import get_random_state, random_state_of, set_random_state
from ltpll.rebalancers.none import NoRebalancing
from ltpll.targets import Targets, initial_targets
from ltpll.views import Views, ViewSource


class Measure(Protocol):
    """Watches a training from outside; `evaluate.Truth` is one."""

    def prepare(self, trainer: PartialLabelTrainer) -> None:
        """Called once before training, to refuse what does not fit."""

    def __call__(self, trainer: PartialLabelTrainer) -> dict[str, Any]:
        """Figures to add to the record of the epoch just finished."""


class PartialLabelTrainer:
    """Trains `model` (forward gives logits and features, `.head` is its last linear layer) on examples with candidate sets.

    Every source of chance is drawn from `seed`; torch's global random state is neither used nor changed.
    `engine` says how a step runs: "eager" one operation at a time; "captured" as a replayed CUDA graph; "compiled" the same with the
    network compiled first, which takes half a minute and may pay for a network without kernels of its own; "auto" is "captured" on CUDA
    and "eager" elsewhere.
    `precision` is that of the network's passes; losses, targets and weights are always float32. Views are drawn for `chunk` rows at once.
    """

    def __init__(
        self,
        model: nn.Module,
        method: Method,
        rebalancer: Rebalancer | None = None,
        extras: Sequence[Extra] = (),
        *,
        views: ViewSource | None = None,
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
        precision: Literal["float32", "bfloat16"] = "float32",
        engine: Literal["auto", "eager", "captured", "compiled"] = "auto",
        chunk: int = 4096,
    ) -> None:
        self.device = chosen_device(device)
        self.model = model.to(self.device)
        self._global_random = random_state_of(seed, self.device)
        with self._own_random_state():
            method.attach(self.model)
            for extra in extras:
                extra.attach(self.model)
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
        parameters = [p for part in (model, method, self.rebalancer, self.extras) for p in part.parameters() if p.requires_grad]
        on_cuda = self.device.type == "cuda"
        self.optimizer = torch.optim.SGD(
            parameters,
            # A captured step reads its learning rate from the device.
            lr=torch.tensor(float(lr), device=self.device) if on_cuda else lr,
            momentum=momentum,
            weight_decay=weight_decay,
            fused=on_cuda,
        )
        if momentum:
            # For all parameters at once: a term that joins later would bring parameters without any, which the fused optimizer refuses.
            for parameter in parameters:
                self.optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        self.engine = chosen_engine(engine, self.device)
        self.passes = Passes(self.model, self.device, precision, self.engine)
        self.predictor = Predictor(self.passes, self.method, self.rebalancer, self.views)
        self.chunk = at_least(chunk, 1, "chunk")
        self._side = torch.cuda.Stream(self.device) if self.engine != "eager" else None
        self._restart = self.method.restart(self.epochs)
        if not 0 <= self._restart < self.epochs:
            raise InputError(f"The method {method.name!r} starts anew after {self._restart} of {self.epochs} epochs: train longer.")
        self._initial = {name: value.clone() for name, value in self.model.state_dict().items()} if self._restart else {}
        check_parts(self.head, self.method, self.rebalancer, self.views)

    @property
    def head(self) -> nn.Linear:
        return linear_head(self.model)

    def prepare(self, x: Array, candidates: Any) -> None:
        """Check the training data, put it on the device and start the targets; `fit` does this first."""
        sets = Candidates.of(candidates)
        inputs = as_inputs(x, "training")
        check_data(inputs, sets, self.head)
        self.x = inputs.to(self.device)
        self.candidates = sets.to(self.device)
        self.targets: Targets = initial_targets(self.candidates, self.method.covers)
        self._not_finite = torch.zeros(len(sets), dtype=torch.bool, device=self.device)
        # Here, since a recording holds on to the tensors above.
        self._step: Callable[..., Tensor] = self.step
        self._draw: Callable[[Tensor], tuple[Tensor, ...]] = self.draw
        if self.engine != "eager":
            recorded = self._recorded = Captured(lambda index, *views: self.step(index, views), self.generator)
            self._step = lambda index, views: recorded(index, *views, phase=self._phase())
            self._draw = Captured(self.draw, self.generator)

    # ---- training -------------------------------------------------------------------------------------------------

    def fit(
        self,
        x: Array,
        candidates: Any,
        *,
        measure: Measure | None = None,
        on_epoch: Callable[[dict[str, Any]], None] | None = None,
        checkpoint: Path | str | None = None,
        checkpoint_every: int = 1,
        checkpoint_seconds: float = 0.0,
        measure_every: int = 1,
    ) -> PartialLabelTrainer:
        """Train until `epochs` are done; `on_epoch` gets each epoch's record as it is added to `history`.

        `measure` (usually an `evaluate.Truth`) adds its figures every `measure_every` epochs and after the last one.

        With `checkpoint`, the state is written there every `checkpoint_every` epochs (but not before `checkpoint_seconds` have passed
        since the last time) and after the last one, and training goes on from it if the file is there.
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
        saved = -math.inf
        while self.epoch < self.epochs:
            record = self.train_epoch()
            if measure and (self.epoch % measure_every == 0 or self.epoch == self.epochs):
                record |= measure(self)
            self.history.append(record)
            if on_epoch:
                on_epoch(record)
            # Behind on_epoch, so that whatever keeps a log never has less of it than the checkpoint.
            due = self.epoch % checkpoint_every == 0 and time.monotonic() - saved >= checkpoint_seconds
            if checkpoint is not None and (due or self.epoch == self.epochs):
                self.save(checkpoint)
                saved = time.monotonic()
        return self

    def train_epoch(self) -> dict[str, Any]:
        """One pass over the data; returns what is known without labels."""
        if self._restart and self.epoch == self._restart:
            self._start_anew()
        length = self.epochs - self._restart
        rate = cosine_rate(min(self._stage_epoch, length), length, self.lr, self.lr * self.final_lr)
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        self.model.train()
        self.method.start_epoch(self.epoch, self.epochs)
        self.rebalancer.start_epoch(self.epoch, self.epochs)
        total = torch.zeros((), device=self.device)
        steps = 0
        with self._own_random_state():
            for step, (index, views) in enumerate(self._batches()):
                total += self._step(index, views)
                steps += 1
                # Asking costs a synchronisation, which a GPU should not pay on every step.
                if self.device.type == "cpu":
                    self._check_finite(step)
        self._check_finite(None)
        self.rebalancer.end_epoch()
        self.method.end_epoch(self)
        self.epoch += 1
        return {"epoch": self.epoch, "loss": float(total) / steps, "lr": rate}

    @property
    def views_per_epoch(self) -> int:
        """How many augmented images (or rows) go through the network in one epoch, without those that extras and systems add."""
        n = len(self.candidates)
        size = min(self.batch_size, n)
        return self.method.n_shown * (n // size * size if self.drop_last else n)

    @property
    def kinds(self) -> tuple[ViewKind, ...]:
        """The views that are drawn: the method's, and strong ones beyond them for extras that need more."""
        wanted = max([0, *(extra.n_views for extra in self._extras())])
        strong: ViewKind = "strong"
        return self.method.views + (strong,) * (wanted - self.method.n_views)

    @property
    def _stage_epoch(self) -> int:
        """Epochs since the network started, for a method that starts anew."""
        return self.epoch - (self._restart if self.epoch >= self._restart else 0)

    def _start_anew(self) -> None:
        """The network, its optimizer and the targets as they were in the beginning; in place, since recordings hold on to them."""
        self.model.load_state_dict(self._initial)
        for state in self.optimizer.state.values():
            for value in state.values():
                if isinstance(value, Tensor):
                    value.zero_()
        self.targets.values.copy_(initial_targets(self.candidates, self.method.covers).values)

    def _phase(self) -> tuple[bool, ...]:
        """Everything that Python decides inside a step, and so what a captured step holds for."""
        epoch = self._stage_epoch
        return (epoch >= self.warmup_epochs, *(extra.active(epoch) for extra in self._extras()))

    def step(self, index: Tensor, views: tuple[Tensor, ...]) -> Tensor:
        """One optimizer step on views of the rows in `index`; returns the loss, detached."""
        refines, *active = self._phase()
        extras = [extra for extra, takes_part in zip(self._extras(), active, strict=True) if takes_part]
        # On a GPU many small kernels run beside the large ones: looking up targets beside the forward pass, refining them beside the
        # backward pass. The forward pass of an extra may need targets, and then waits for them.
        with alongside(self._side):
            candidates = self.candidates[index]
            batch = Batch(views, self.targets[index], candidates)
        if extras:
            self._join()
        compared = batch._replace(views=views[: self.method.n_shown])
        own = [extra.inputs(compared, self.generator) for extra in extras]
        shown = views[: max([self.method.n_shown, *(extra.n_shown for extra in extras)])]
        all_outputs, *said = self.passes.together([shown, *(more.views if more else () for more in own)])
        outputs = all_outputs.first(self.method.n_shown)
        self._join()
        with alongside(self._side):
            self.rebalancer.observe(outputs.detach(), self.head)
            if refines:
                with torch.no_grad():
                    adjusted = self.rebalancer.adjust(outputs.detach(), "targets", self.head)
                    self.targets[index] = self.method.disambiguate(adjusted, batch.targets, candidates)
            self._not_finite[index] = ~torch.stack([torch.isfinite(z).all(1) for z in outputs.logits]).all(0)
        if self.method.waits or any(extra.waits for extra in extras):
            self._join()
        step = Step(batch, outputs, self.head, self.rebalancer, self._forward, self.generator)
        loss = self.method.step_loss(step)
        for extra, more, heard in zip(extras, own, said, strict=True):
            loss = loss + extra.loss(self.method, replace(step, outputs=all_outputs), more, heard if more else None)
        self.optimizer.zero_grad(set_to_none=True)
        self.passes.backward(loss)
        self._join()
        self.optimizer.step()
        return loss.detach()

    def _forward(self, views: tuple[Tensor, ...], network: nn.Module | None = None) -> Outputs:
        if network is None:
            return self.passes.together([views])[0]
        with torch.no_grad():
            return self.passes.together([views], network)[0]

    def _join(self) -> None:
        if self._side is not None:
            torch.cuda.current_stream().wait_stream(self._side)

    def _extras(self) -> list[Extra]:
        return [extra for extra in self.extras if isinstance(extra, Extra)]

    def _batches(self) -> Iterator[tuple[Tensor, tuple[Tensor, ...]]]:
        """Rows and their views for every step of an epoch; views are drawn for many batches at once, since launches cost the same."""
        n = len(self.candidates)
        size = min(self.batch_size, n)
        order = torch.randperm(n, generator=self.generator, device=self.device)
        if self.drop_last:
            order = order[: n // size * size]
        for rows in order.split(size * max(self.chunk // size, 1)):
            yield from zip(rows.split(size), zip(*(view.split(size) for view in self._draw(rows)), strict=True), strict=True)

    def draw(self, rows: Tensor) -> tuple[Tensor, ...]:
        """Views of the rows, one for each that the method and the extras ask for."""
        return self.views.draw(self.x[rows], self.kinds, self.generator)

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

    def outputs(self, x: Array, batch_size: int | None = None) -> Outputs:
        """What the network says of un-augmented inputs, without any rebalancing; by default 2048 at once, or fewer large ones."""
        return self.predictor.outputs(x, batch_size)

    @torch.no_grad()
    def plain_outputs(self) -> Iterator[tuple[Outputs, Tensor]]:
        """What the network says of the training examples as they are, with their candidates, a part of them at a time."""
        for rows in torch.arange(len(self.x), device=self.device).split(at_once(self.x)):
            logits, features = self.predictor.plain(self.x[rows])
            yield Outputs((logits,), (features,)), self.candidates[rows]

    def logits(self, x: Array) -> Tensor:
        """Logits as this trainer predicts with them: the rebalancer's prior subtracted, if it acts at prediction."""
        return self.predictor.logits(x)

    def predict(self, x: Array) -> npt.NDArray[np.int64]:
        """The predicted class number of each row."""
        return self.predictor.predict(x)

    # ---- checkpoints ----------------------------------------------------------------------------------------------

    def save(self, path: Path | str) -> None:
        """Write everything that decides the rest of this training."""
        tensors: dict[str, Tensor] = {"targets": self.targets.values, "generator": self.generator.get_state()}
        tensors |= with_prefix("random", self._global_random)
        for name, module in self._modules().items():
            tensors |= with_prefix(name, module.state_dict())
        tensors |= optimizer_tensors(self.optimizer)
        write_checkpoint(Path(path), tensors, {"epoch": self.epoch, "history": self.history, "parts": self._part_names()})

    def load(self, path: Path | str) -> None:
        """Go on from a checkpoint of the same parts and the same data; call `prepare` first."""
        tensors, values = read_checkpoint(Path(path))
        if values.get("parts") != self._part_names():
            raise InputError(f"The checkpoint {path} is of {shown(values.get('parts'))}, not of {self._part_names()}: use another path.")
        if "targets" in tensors and tensors["targets"].shape != self.targets.values.shape:
            raise InputError(f"The checkpoint {path} belongs to other training data: its targets have another size.")
        try:
            self._restore(tensors, values)
        except Exception as error:  # of torch about a state of another shape or kind, or of what is not there
            raise InputError(f"The checkpoint {path} does not fit this training ({first_line(error)}): delete it to start again.") from None

    def _restore(self, tensors: Mapping[str, Tensor], values: Mapping[str, Any]) -> None:
        epoch, history = values["epoch"], values["history"]
        if not isinstance(epoch, int) or epoch < 0 or not isinstance(history, list):
            raise ValueError("it does not say how far it is")
        self.targets.values.copy_(tensors["targets"])
        self.generator.set_state(tensors["generator"])
        self._global_random = under_prefix("random", tensors)
        for name, module in self._modules().items():
            module.load_state_dict(under_prefix(name, tensors))
        load_optimizer(self.optimizer, tensors)
        self.epoch, self.history = epoch, history

    def _modules(self) -> dict[str, nn.Module]:
        return {"model": self.model, "method": self.method, "rebalancer": self.rebalancer, "extras": self.extras}

    def _part_names(self) -> dict[str, Any]:
        return {"method": self.method.name, "rebalancer": self.rebalancer.name, "extras": [extra.name for extra in self._extras()]}


def cosine_rate(epoch: int, n_epochs: int, start: float, end: float) -> float:
    """The learning rate of an epoch, falling from `start` towards `end` along half a cosine."""
    return end + (start - end) * (1 + math.cos(math.pi * epoch / n_epochs)) / 2
