"""Trainer: the one loop where candidates, targets, views, model, method, rebalancer and extras meet."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ltpll.candidates import Candidates
from ltpll.errors import InputError
from ltpll.files import check_writable
from ltpll.inference.forward import Passes
from ltpll.inference.predictor import Array, Predictor, at_once
from ltpll.interfaces import Batch, Extra, Method, Outputs, Rebalancer, Step, ViewKind, linear_head
from ltpll.rebalancers.none import NoRebalancing
from ltpll.rng import get_random_state, random_state_of, set_random_state
from ltpll.targets import Targets, initial_targets
from ltpll.training.batches import Draw, Feed
from ltpll.training.checkpoint import has_checkpoint
from ltpll.training.compatibility import check_data, check_parts
from ltpll.training.cpu_threads import Threads
from ltpll.training.cuda_graphs import Captured, alongside, chosen_engine, dropped_behind
from ltpll.training.distributed import Exchange, World
from ltpll.training.nonfinite import Guard, Watch, not_finite, rows_not_finite
from ltpll.training.signals import held_back
from ltpll.training.state import Resumable, without_long_lists
from ltpll.training.sync_batch_norm import synchronised
from ltpll.validation import as_inputs, at_least, chosen_device, in_range
from ltpll.views import Views, ViewSource


class Measure(Protocol):
    """Watches a training from outside; `evaluate.Evaluate` is one."""

    def prepare(self, trainer: PartialLabelTrainer) -> None:
        """Called once before training, to refuse what does not fit."""

    def __call__(self, trainer: PartialLabelTrainer) -> dict[str, Any]:
        """Figures to add to the record of the epoch just finished."""


class PartialLabelTrainer(Resumable):
    """Trains `model` (forward gives logits and features, `.head` is its last linear layer) on examples with candidate sets.

    Every source of chance is drawn from `seed`; torch's global random state is neither used nor changed.
    `engine` says how a step runs: "eager" one operation at a time; "captured" as a replayed CUDA graph; "compiled" the same with the
    network compiled first, which takes half a minute and may pay for a network without kernels of its own; "auto" is "captured" on CUDA
    and "eager" elsewhere.
    `precision` is that of the network's passes; losses, targets and weights are always float32. Views are drawn for `chunk` rows at once.
    `on_nan` says what becomes of a batch whose loss, outputs, targets or gradients are not finite: "stop" ends the training with an error,
    "skip" drops the batch, which then changes nothing, and counts it in the epoch's record (`skipped`).
    `threads` is a number of them for training on a CPU, or "auto": one or all of them, whichever is faster (`threads.py`).
    In a `world` of several processes each computes a share of every batch; `sync_batch_norm` lets batch norm see the whole of it.
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
        precision: Literal["float32", "bfloat16", "float64"] = "float32",
        engine: Literal["auto", "eager", "captured", "compiled"] = "auto",
        chunk: int = 4096,
        on_nan: Literal["stop", "skip"] = "stop",
        threads: int | Literal["auto"] = "auto",
        world: World | None = None,
        sync_batch_norm: bool = False,
    ) -> None:
        self.device = chosen_device(device)
        self.world = world or World()
        self.engine = chosen_engine(engine, self.device, self.world)
        if sync_batch_norm and not self.world.alone:
            model = synchronised(model, self.world)
        self.model = model.to(self.device)
        self.world.give(self.model)  # before parts copy it
        self._global_random = random_state_of(seed, self.device)
        with self._own_random_state():
            method.attach(self.model)
            (rebalancer := rebalancer or NoRebalancing()).attach(self.model)
            for extra in extras:
                extra.attach(self.model)
        self.method = method.to(self.device)
        self.rebalancer = (rebalancer or NoRebalancing()).to(self.device)
        self.extras = nn.ModuleList(extras).to(self.device)
        self.views = views or Views()
        self.epochs = at_least(epochs, 1, "epochs")
        self.batch_size = at_least(batch_size, 1, "batch_size")
        self.warmup_epochs = at_least(warmup_epochs, 0, "warmup_epochs")
        self.lr, self.final_lr = in_range(lr, "lr", 0, above=True), in_range(final_lr, "final_lr", 0, 1)
        momentum, weight_decay = in_range(momentum, "momentum", 0, 1), in_range(weight_decay, "weight_decay", 0)
        self.drop_last = drop_last
        self.epoch = 0
        self.history = []
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.seed = seed
        self.threads = Threads(threads)
        if precision == "float64":
            for part in (self.model, self.method, self.rebalancer, self.extras):
                part.double()
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
        self.passes = Passes(self.model, self.device, precision, self.engine)
        if not self.world.alone and self.engine == "eager":
            self.passes.network = self.world.shared(self.model)
        self.predictor = Predictor(self.passes, self.method, self.rebalancer, self.views)
        self.chunk = at_least(chunk, 1, "chunk")
        if on_nan not in ("stop", "skip"):
            raise InputError(f"on_nan is {on_nan!r}: choose 'stop' or 'skip'.")
        self._guard = Guard(self._modules().values(), self.optimizer, self.device) if on_nan == "skip" else None
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
        self.targets: Targets = initial_targets(self.candidates, self.method.targets_on, self.passes.full)
        if self.passes.full is torch.float64 and self.x.is_floating_point():
            self.x = self.x.double()
        self._watch = Watch(len(sets), self.lr, self.device)
        feed = Feed(len(sets), self.batch_size, self.drop_last, self.chunk, self.generator, self.world)
        if (feed.rows % feed.size or feed.size) < self.world.size:
            raise InputError(
                f"A batch of {feed.rows % feed.size or feed.size} rows is too small for {self.world.size} processes: use fewer."
            )
        self.start_counting(feed)
        # Here, since a recording holds on to the tensors above.
        self._step: Callable[..., Tensor] = self.step
        self._draw: Draw = self.draw
        self._recorded: Captured | None = None
        if self.engine != "eager":
            recorded = self._recorded = Captured(lambda index, *views: self.step(index, views), self.generator, self.world.alone)
            self._step = lambda index, views: recorded(index, *views, phase=self._phase())
            drawn = Captured(self.draw, self.generator, self.world.alone)
            self._draw = lambda rows, places=None: drawn(rows) if places is None else drawn(rows, places)

    # ---- training -------------------------------------------------------------------------------------------------

    def fit(
        self,
        x: Array,
        candidates: Any,
        *,
        measure: Measure | None = None,
        on_epoch: Callable[[dict[str, Any]], None] | None = None,
        on_resume: Callable[[int], None] | None = None,
        checkpoint: Path | str | None = None,
        checkpoint_every: int = 1,
        checkpoint_seconds: float = 0.0,
        measure_every: int = 1,
    ) -> PartialLabelTrainer:
        """Train until `epochs` are done; `on_epoch` gets each epoch's record as it is added to `history`.

        `measure` (usually an `evaluate.Evaluate`) adds its figures every `measure_every` epochs and after the last one.

        With `checkpoint`, the state is written there every `checkpoint_every` epochs (but not before `checkpoint_seconds` have passed
        since the last time) and after the last one, and the one before it is kept beside it. If there is one, training goes on from it;
        `on_resume` is told how many epochs it has behind it. SIGTERM and an interrupt then have their effect after the step at hand,
        whose state is written first.
        """
        path = None if checkpoint is None else Path(checkpoint)
        resumes = self.world.agreed(path is not None and has_checkpoint(path))
        if self.epoch > 0 and not resumes:
            # Its targets would start anew while its network would not.
            raise InputError(f"This trainer has trained for {self.epoch} epochs already: make a new one, with a new model, to start again.")
        self.prepare(x, candidates)
        if measure:
            measure.prepare(self)
        if path is not None:
            check_writable(path.parent)
        if path is not None and resumes:
            self.load(path)
            if on_resume:
                on_resume(self.epoch)
        saved = -math.inf
        # Of several processes none can measure by itself: their layers may talk to each other.
        measured = self._passes_of_a_copy if self.device.type == "cpu" and self.world.alone else None
        with held_back(path is not None) as signals, dropped_behind(self._recorded, self.world), self.threads.put_back():
            exchange = Exchange(self.world)

            def told() -> bool:
                number = exchange(signals.waiting())
                signals.told(number)
                return number > 0  # not what has come since: several processes stop after the same step

            while self.epoch < self.epochs:
                self.threads.look(measured, self._feed.size)
                record = self.train_epoch(told)
                if record is not None:
                    if measure and (self.epoch % measure_every == 0 or self.epoch == self.epochs):
                        record |= measure(self)
                    if self.history:
                        self.history[-1] = without_long_lists(self.history[-1])
                    self.history.append(record)
                    if on_epoch:
                        on_epoch(record)
                # Behind on_epoch, so that whatever keeps a log never has less of it than the checkpoint.
                ends = record is None or told()
                due = self.epoch % checkpoint_every == 0 and time.monotonic() - saved >= checkpoint_seconds
                if path is not None and self.world.agreed(due or self.epoch == self.epochs or ends):
                    if record is None:
                        self._put_together()
                    self.save(path)
                    saved = time.monotonic()
                    self.world.wait()  # here, where there is time for a slow disk, and not in the next step
                if ends:
                    signals.deliver()
        self._check_weights()
        return self

    def train_epoch(self, pause: Callable[[], bool] = lambda: False) -> dict[str, Any] | None:
        """One pass over the data, or what is left of one; returns what is known without labels.

        `pause` is asked after every step: if it says so, the epoch is left there, to be taken up by the next call, and nothing is returned.
        """
        starts = self._feed.step == 0
        if starts and self._restart and self.epoch == self._restart:
            self._start_anew()
        length = self.epochs - self._restart
        rate = cosine_rate(min(self._stage_epoch, length), length, self.lr, self.lr * self.final_lr)
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate)
            else:
                group["lr"] = rate
        self.model.train()
        if starts:
            self._start_epoch(0.0)
        self._watch.start(self._feed.step)
        with self._own_random_state():
            for index, views in self._feed.batches(self._draw):
                loss = self._step(index, views)
                self._total += loss
                # Looking means to wait for the device, which a GPU should not do on every step.
                if self._watch.looks:
                    self._watch.check_step(index, loss, self.epoch + 1, self._feed.step)
                if pause():
                    self._watch.check(self._total, self.epoch + 1)
                    return None
        self.world.wait()  # which gives up at some time; what follows waits for the GPU, and that for the others without end
        self._watch.check(self._total, self.epoch + 1)
        skipped = self._guard.n_dropped() if self._guard else 0
        if skipped == self._feed.step:
            raise not_finite(f"In all {skipped} batches the loss, outputs or gradients were", self.epoch + 1, None, (), self.lr)
        record = {"epoch": self.epoch + 1, "loss": float(self._total) / (self._feed.step - skipped), "lr": rate}
        if self._guard:
            record["skipped"] = skipped
        self._put_together()
        self.rebalancer.end_epoch()
        self.method.end_epoch(self)
        self.count_epoch()
        return record

    def _start_epoch(self, seconds: float) -> None:
        super()._start_epoch(seconds)
        if not self.world.alone:
            # What layers draw for their share of the rows, from nothing but these, so that no process's random state has to be kept.
            drawn = np.random.SeedSequence([self.seed, self.world.rank, self.epoch]).generate_state(1, np.uint64)[0]
            self._global_random = random_state_of(int(drawn >> np.uint64(1)), self.device)
        self.method.start_epoch(self.epoch, self.epochs)
        self.rebalancer.start_epoch(self.epoch, self.epochs)

    @property
    def views_per_epoch(self) -> int:
        """How many augmented images (or rows) go through the network in one epoch, without those that extras and systems add."""
        return self.method.n_forward_views * self._feed.rows

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
        self.targets.values.copy_(initial_targets(self.candidates, self.method.targets_on, self.passes.full).values)

    def _phase(self) -> tuple[bool, ...]:
        """Everything that Python decides inside a step, and so what a captured step holds for."""
        epoch = self._stage_epoch
        return (epoch >= self.warmup_epochs, *(extra.active(epoch) for extra in self._extras()))

    def step(self, index: Tensor, views: tuple[Tensor, ...]) -> Tensor:
        """One optimizer step on views of the rows in `index`; returns the loss, detached."""
        before = self._guard.before() if self._guard else []
        refines, *active = self._phase()
        extras = [extra for extra, takes_part in zip(self._extras(), active, strict=True) if takes_part]
        # On a GPU many small kernels run beside the large ones: looking up targets beside the forward pass, refining them beside the
        # backward pass. The forward pass of an extra may need targets, and then waits for them.
        with alongside(self._side):
            batch = Batch(self.world.views(views, len(index)), self.targets[index], self.candidates[index])
        if extras:
            self._join()
        compared = batch._replace(views=batch.views[: self.method.n_forward_views])
        added = [extra.inputs(compared, self.generator) for extra in extras]
        shown = batch.views[: max([self.method.n_forward_views, *(extra.n_forward_views for extra in extras)])]
        all_outputs, *said = self._heard([shown, *(more.views if more else () for more in added)])
        outputs = all_outputs.first(self.method.n_forward_views)
        self._join()
        with alongside(self._side):
            heard = outputs.detach()
            self.rebalancer.observe(heard, self.head)
            refined = batch.targets
            if refines:
                with torch.no_grad():
                    adjusted = self.rebalancer.adjust(heard, "targets", self.head)
                    refined = self.method.disambiguate(adjusted, batch.targets, batch.candidates)
                    if not self._guard:
                        self.targets[index] = refined
            # The loss shows by itself what is wrong with targets that were wrong before.
            rows = rows_not_finite([*heard.logits, *([refined] if refines else [])])
            if not self._guard:
                self._watch.note(index, rows)
        if self.method.waits or any(extra.waits for extra in extras):
            self._join()
        step = Step(batch, outputs, self.head, self.rebalancer, self._forward, self.generator)
        loss = self.method.step_loss(step)
        for extra, more, of_more in zip(extras, added, said, strict=True):
            loss = loss + extra.loss(self.method, replace(step, outputs=all_outputs), more, of_more if more else None)
        self.optimizer.zero_grad(set_to_none=True)
        self.passes.backward(loss)
        if self.engine != "eager":
            self.world.mean_gradients(self.model.parameters())
        self._join()
        if not self._guard:
            self.optimizer.step()
            return loss.detach()
        good = self._guard.finish(before, loss.detach(), rows)
        if refines:
            self.targets[index] = torch.where(good, refined, batch.targets)
        return torch.where(good, loss.detach(), 0.0)

    def _put_together(self) -> None:
        self.world.put_together(self.model, (self.method, self.rebalancer, self.extras), self.targets.values)

    def _forward(self, views: Sequence[Tensor], network: nn.Module | None = None) -> Outputs:
        if network is None:
            return self._heard([views])[0]
        with torch.no_grad():
            return self._heard([views], network)[0]

    def _heard(self, groups: Sequence[Sequence[Tensor]], network: nn.Module | None = None) -> list[Outputs]:
        """What the network says of each group of views of the whole batch; of several processes, each asks it about its share."""
        if self.world.alone:
            return self.passes.together(groups, network)
        shares, sizes = zip(*map(self.world.shares, groups), strict=True)
        return list(map(self.world.outputs, self.passes.together(shares, network), sizes))

    def _passes_of_a_copy(self) -> Callable[[int], object]:
        """Forward and backward of a copy of the network over some rows: what a step mostly does, and nothing here is changed by it."""
        network = deepcopy(self.model).train()
        parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]

        def run(rows: int) -> object:
            with torch.random.fork_rng(devices=[]):  # for dropout
                said = self.passes.together([[self.views.plain(self.x[:rows])] * self.method.n_forward_views], network)[0]
                return torch.autograd.grad(torch.cat(said.logits).logsumexp(1).sum(), parameters, allow_unused=True)

        return run

    def _join(self) -> None:
        if self._side is not None:
            torch.cuda.current_stream().wait_stream(self._side)

    def _extras(self) -> list[Extra]:
        return [extra for extra in self.extras if isinstance(extra, Extra)]

    def draw(self, rows: Tensor, places: Tensor | None = None) -> tuple[Tensor, ...]:
        """Views of the rows, one for each that the method and the extras ask for; with `places`, only of the rows there."""
        # A source of views that was written for one process need not know of places.
        some = () if places is None else (places,)
        return self.views.draw(self.x[rows], self.kinds, self.generator, *some)

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
        if self.world.alone or len(x) < self.world.size:  # type: ignore[arg-type]
            return self.predictor.outputs(x, batch_size)
        inputs = as_inputs(x, "prediction")
        return self.world.outputs(self.predictor.outputs(inputs[self.world.part(len(inputs))], batch_size), [len(inputs)])

    @torch.no_grad()
    def plain_outputs(self) -> Iterator[tuple[Outputs, Tensor]]:
        """What the network says of the training examples as they are, with their candidates, a part of them at a time."""
        for rows in torch.arange(len(self.x), device=self.device).split(at_once(self.x, self.head.out_features)):
            logits, features = self.predictor.plain(self.x[rows[self.world.part(len(rows))]])
            yield self.world.outputs(Outputs((logits,), (features,)), [len(rows)]), self.candidates[rows]

    def logits(self, x: Array) -> Tensor:
        """Logits as this trainer predicts with them: the rebalancer's prior subtracted, if it acts at prediction."""
        return self.predictor.logits(x)

    def predict(self, x: Array) -> npt.NDArray[np.int64]:
        """The predicted class number of each row."""
        return self.predictor.predict(x)


def cosine_rate(epoch: int, n_epochs: int, start: float, end: float) -> float:
    """The learning rate of an epoch, falling from `start` towards `end` along half a cosine."""
    return end + (start - end) * (1 + math.cos(math.pi * epoch / n_epochs)) / 2
