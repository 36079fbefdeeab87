"""Trainer: the one loop where candidates, targets, views, network and parts meet."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from ltpll.candidates import Candidates
from ltpll.candidates.open_sets import OpenSets
from ltpll.errors import InputError, first_line, shown
from ltpll.formatting import counted
from ltpll.interfaces import (
    Batch,
    Extra,
    Goal,
    Method,
    Outputs,
    Part,
    Rebalancer,
    Step,
    ViewKind,
    linear_head,
)
from ltpll.network.forward import ForwardPass
from ltpll.network.predictor import Array, Predictor, prediction_batch_size
from ltpll.priors import estimate_prior
from ltpll.rebalancers.none import NoRebalancing
from ltpll.rng import get_random_state, random_state_of, set_random_state
from ltpll.targets import CandidateTargets, Targets, initial_targets, restricted_softmax
from ltpll.training.batches import BatchSampler
from ltpll.training.callbacks import Callback, Checkpoint
from ltpll.training.checkpoint import (
    ADVICE,
    Tensors,
    add_checkpoint,
    under_prefix,
    usable_checkpoint,
)
from ltpll.training.compatibility import check_data, check_parts
from ltpll.training.cpu_products import fast_products
from ltpll.training.cpu_threads import Threads
from ltpll.training.cuda_graphs import Runner, chosen_engine
from ltpll.training.distributed import SharedSignals, World, current_world
from ltpll.training.inputs import Inputs
from ltpll.training.nonfinite import (
    NonFinitePolicy,
    SkipNonFinite,
    StopOnNonFinite,
    marks_of_rows,
    not_finite_error,
)
from ltpll.training.row_blocks import backward_in_blocks, rows_of_block, views_of
from ltpll.training.signals import delayed_signals
from ltpll.training.state import TrainingState
from ltpll.validation import chosen_device, in_range, whole_number
from ltpll.views import Views, ViewSource

# The share of the epochs in which the weight of classes outside the sets rises to its full value.
OPEN_RAMP = 0.03
STEP_FACTOR = 0.1  # of the learning rate after each milestone


class PartialLabelTrainer:
    """Trains a network on examples with candidate sets.

    All randomness is drawn from `seed`; torch's global random state is neither used nor changed.

    Args:
        model: The network. Its forward returns (logits, features), and `model.head` is its last
            linear layer. If it has a method `lr_factor_of(parameter)`, the learning rate of the
            parameter is multiplied by what it returns.
        method: The loss and the rule that refines targets.
        rebalancer: The correction for the class prior; None for no correction.
        extras: Additional loss terms.
        views: The source of augmented views; None trains on the inputs unchanged.
        epochs: Passes over the data.
        batch_size: Examples per step, of all processes together.
        lr: The learning rate of the first epoch.
        final_lr_factor: The learning rate falls to `lr * final_lr_factor` along half a cosine;
            1 keeps it constant.
        milestones: Numbers of epochs after which the learning rate is multiplied by 0.1, instead of
            the cosine; counted from the restart if the method restarts.
        momentum: Momentum of SGD.
        weight_decay: Weight decay of SGD.
        max_step: Gradients are scaled down where `lr` times their norm, over all parameters, is
            larger; None leaves them alone.
        warmup_epochs: Epochs before targets are refined; None for those of the method.
        truth_missing: The share of candidate sets that lack the true label, or that share for each
            size of a set, from 0 to the number of classes. If it is above zero, targets can leave
            their sets soon after the warm-up (`ltpll.candidates.open_sets`).
        drop_last: Whether to drop an incomplete last batch.
        seed: Seed of the order, the views and the layers' randomness.
        device: "auto" (CUDA if available), "cpu", "cuda", or a torch device.
        precision: "float32", or "bfloat16" for the network's forward and backward passes; losses,
            targets and weights stay float32.
        engine: How a step runs: "eager", one operation at a time; "captured", as a replayed CUDA
            graph; "compiled", the same with the network compiled first, which takes half a minute;
            "auto" is "captured" on CUDA and "eager" elsewhere.
        chunk: Rows for which views are drawn at once.
        on_nan: What happens if a loss, output, target or gradient is not finite: "stop" raises an
            error; "skip" ignores the batch and counts it in the epoch's record (`skipped`).
        threads: The number of CPU threads, or "auto" to use one or all of them, whichever is
            faster.
        world: The processes that train together; by default those that `torchrun` started.

    Attributes:
        earlier: The state of a network and a rebalancer that were trained on these rows before,
            perhaps with other sets, as `PartialLabelClassifier.content` returns it. If it is set,
            `fit` starts from them and from the labels that they predict.
        history: The records of the finished epochs.
        epoch: The number of finished epochs.
        targets: The current targets.

    Examples:
        >>> X, y = four_squares([50, 20, 10, 5], seed=0)
        >>> sets = uniform_candidates(y, n_classes=4, ambiguity=0.3, seed=0)
        >>> model = build_model("mlp", seed=0, n_inputs=2, n_classes=4)
        >>> trainer = PartialLabelTrainer(model, PRODEN(), RECORDS(), epochs=2)
        >>> _ = trainer.fit(X, sets)
        >>> trainer.predict(X).shape
        (85,)
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
        final_lr_factor: float = 1e-3,
        milestones: Sequence[int] = (),
        momentum: float = 0.9,
        weight_decay: float = 1e-3,
        max_step: float | None = None,
        warmup_epochs: int | None = None,
        truth_missing: float | Sequence[float] = 0.0,
        drop_last: bool = True,
        seed: int = 0,
        device: str | torch.device = "auto",
        precision: Literal["float32", "bfloat16"] = "float32",
        engine: Literal["auto", "eager", "captured", "compiled"] = "auto",
        chunk: int = 4096,
        on_nan: Literal["stop", "skip"] = "stop",
        threads: int | Literal["auto"] = "auto",
        world: World | None = None,
    ) -> None:
        self.device = chosen_device(device)
        self.world = world or current_world()
        self.engine = chosen_engine(engine, self.device, self.world)
        self.epochs = whole_number(epochs, 1, "epochs")
        self.batch_size = whole_number(batch_size, 1, "batch_size")
        warmup_epochs = method.warmup_epochs if warmup_epochs is None else warmup_epochs
        self.warmup_epochs = whole_number(warmup_epochs, 0, "warmup_epochs")
        self.truth_missing = truth_missing
        self._open_from = max(1, self.warmup_epochs, round(method.open_after * self.epochs))
        self._ramp = max(1, round(OPEN_RAMP * self.epochs))
        self.lr = in_range(lr, "lr", 0, above=True)
        self.final_lr_factor = in_range(final_lr_factor, "final_lr_factor", 0, 1)
        self.max_step = None if max_step is None else in_range(max_step, "max_step", 0, above=True)
        self.chunk = whole_number(chunk, 1, "chunk")
        self.drop_last = drop_last
        self._together = 1  # rows that depend on each other
        self.seed = self.world.value_of_first_process(seed)
        self.threads = Threads(threads)
        self.views = views or Views()

        # The parts. The first process's weights go to all processes before parts copy them.
        self.model = method.network_around(model.to(self.device))
        self.world.broadcast_weights(self.model)
        random = random_state_of(self.seed, self.device)
        self.method, self.rebalancer = method, rebalancer or NoRebalancing()
        self.extras: list[Extra] = list(extras)
        self.forward_pass = ForwardPass(self.model, self.device, precision, self.engine)
        modules = {"model": self.model, "method": method, "rebalancer": self.rebalancer}
        modules["extras"] = nn.ModuleList(extras)
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            set_random_state(random, self.device)
            for part in self._parts:
                part.attach(self.model)
            random = get_random_state(self.device)
        for module in modules.values():
            module.to(self.device)
            if self.forward_pass.dtype is torch.float64:
                module.double()
        parts = (self.method, self.rebalancer, self.views)
        self.predictor = Predictor(self.forward_pass, *parts, self.extras)
        check_parts(self.head, *parts)

        in_range(momentum, "momentum", 0, 1)
        self.optimizer = self._optimizer(
            modules, momentum, in_range(weight_decay, "weight_decay", 0)
        )
        if on_nan not in ("stop", "skip"):
            raise InputError(f"on_nan is {on_nan!r}: choose 'stop' or 'skip'.")
        self._nonfinite: NonFinitePolicy = StopOnNonFinite(self.lr, self.device)
        if on_nan == "skip":
            self._nonfinite = SkipNonFinite(modules.values(), self.optimizer, self.device)
        self.generator = torch.Generator(self.device).manual_seed(self.seed)
        changing = (random, self._nonfinite.n_skipped, self.threads)
        self.state = TrainingState(modules, self.optimizer, self.generator, *changing)
        self._restart = self.method.restart(self.epochs)
        if not 0 <= self._restart < self.epochs:
            raise InputError(
                f"The method {method.name!r} restarts after {self._restart} of {self.epochs} "
                "epochs: train longer."
            )
        self.milestones = check_milestones(milestones, self._stage_length)
        self.earlier: Tensors = {}
        if self._restart:
            weights = self.model.state_dict()
            self.state.initial = {name: value.clone() for name, value in weights.items()}

    @property
    def _parts(self) -> tuple[Part, ...]:
        return self.method, self.rebalancer, *self.extras

    def _optimizer(
        self, modules: dict[str, nn.Module], momentum: float, weight_decay: float
    ) -> torch.optim.Optimizer:
        every = [p for module in modules.values() for p in module.parameters()]
        parameters = [parameter for parameter in every if parameter.requires_grad]
        on_cuda = self.device.type == "cuda"
        factor_of = getattr(self.model, "lr_factor_of", lambda parameter: 1.0)
        by_factor: dict[float, list[nn.Parameter]] = {}
        for parameter in parameters:
            by_factor.setdefault(factor_of(parameter), []).append(parameter)
        groups: list[dict[str, Any]] = []
        for factor, group in by_factor.items():
            lr: Any = self.lr * factor
            if on_cuda:  # a step recorded as a CUDA graph reads its learning rates from the device
                lr = torch.tensor(lr, device=self.device)
            groups.append({"params": group, "lr_factor": factor, "lr": lr})
        optimizer = torch.optim.SGD(
            groups, momentum=momentum, weight_decay=weight_decay, fused=on_cuda
        )
        if momentum:
            # For all parameters at once: the fused optimizer refuses parameters that get momenta
            # only later.
            for parameter in parameters:
                optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        optimizer.register_step_pre_hook(lambda *_: self.forward_pass.finish_gradients())
        if not self.world.alone:
            optimizer.register_step_pre_hook(
                lambda *_: self.world.average_gradients(self.model.parameters())
            )
        if self.max_step is not None:
            most = self.max_step / self.lr
            optimizer.register_step_pre_hook(lambda *_: self._limit_norm(parameters, most))
        return optimizer

    def _limit_norm(self, parameters: Sequence[nn.Parameter], most: float) -> None:
        nn.utils.clip_grad_norm_(parameters, most)  # does not ask the device for the norm

    @property
    def head(self) -> nn.Linear:
        """The last linear layer of the model."""
        return linear_head(self.model)

    @property
    def epoch(self) -> int:
        return self.state.epoch

    @property
    def history(self) -> list[dict[str, Any]]:
        return self.state.history

    @property
    def x(self) -> Tensor:
        """The training inputs, on the device or, if they do not fit there, on the CPU."""
        return self.inputs.x

    @property
    def targets(self) -> Targets:
        return self.state.targets

    # ---- the algorithm --------------------------------------------------------------------------

    def step(self, index: Tensor, views: Sequence[Tensor]) -> Tensor:
        """Train on `views` of the rows in `index`, refine their targets, and return the loss.

        This is the algorithm; CUDA graphs, skipped batches and several processes are added from
        outside.
        """
        if self._steps_in_blocks(len(index)):
            return self._step_in_blocks(index, views)
        batch = Batch(
            self.world.whole_views(views, len(index)),
            self.targets[index],
            self._candidates(index),
            self._log_weights(index),
        )
        extras = [extra for extra in self.extras if extra.active(self._stage_epoch)]
        of_method = batch._replace(views=batch.views[: self.method.n_forward_views])
        added = [extra.inputs(of_method, self.generator) for extra in extras]
        all_outputs, *added_outputs = self._forward(
            [self._forward_views(batch, extras), *(more.views if more else () for more in added)]
        )
        outputs = all_outputs.first(self.method.n_forward_views)

        # The rebalancer observes the network, and targets are refined from the adjusted logits.
        seen = outputs.detach()
        self.rebalancer.observe(seen, self.head)
        if self._opens:
            batch = self._opened(batch, index, seen)
        parts = (self.head, self.rebalancer, self._forward_one, self.generator)
        step, refined = self._refined(Step(batch, outputs, *parts, rows=index))

        # The loss uses the raw logits and, for most methods, the targets from before this step.
        loss = self.method.step_loss(step)
        for extra, more, more_outputs in zip(extras, added, added_outputs, strict=True):
            with_all = replace(step, outputs=all_outputs)
            loss = loss + extra.loss(self.method, with_all, more, more_outputs if more else None)

        self._nonfinite.observe(index, [*seen.logits, refined], loss)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        return loss.detach()

    def _refined(self, step: Step) -> tuple[Step, Tensor]:
        """The step with the targets that the loss uses, and the refined targets."""
        refined = step.batch.targets
        if self._refines:
            with torch.no_grad():
                self.targets[step.rows] = refined = self.method.refined_targets(step)
        if self.method.learns_refined:
            step = replace(step, batch=step.batch._replace(targets=refined))
        return step, refined

    def _refined_on_candidates(self, step: Step) -> tuple[Step, Tensor]:
        """`_refined`, but computed from the candidates of each row alone, (batch, max_size)."""
        targets, rows, batch = self.targets, step.rows, step.batch
        assert isinstance(targets, CandidateTargets)
        refined = targets.on_candidates(rows)
        if self._refines:
            with torch.no_grad():
                labels, known = self.sets.rows(rows).labels, self.sets.is_candidate_slot(rows)
                logits = tuple(z.gather(1, labels) for z in step.adjusted().logits)
                outputs = Outputs(logits, step.outputs.detach().features)
                mask = known & batch.candidates.gather(1, labels)
                refined = self.method.disambiguate(outputs, refined, mask)
                # Short rows repeat their last candidate.
                places = torch.arange(labels.shape[1]).minimum(known.sum(1, keepdim=True) - 1)
                refined = refined.gather(1, places)
                targets.set_on_candidates(rows, refined.to(targets.values.dtype))
        if self.method.learns_refined:
            step = replace(step, batch=batch._replace(targets=targets[rows]))
        return step, refined

    def _steps_in_blocks(self, n: int) -> bool:
        """Whether a step on n rows has many classes, and a method whose rows are independent."""
        return (
            n > rows_of_block(self.head.out_features)
            and self.device.type == "cpu"
            and vars(type(self.method)).get("row_by_row", False)
            and next(self.method.parameters(), None) is None
            and type(self.method).refined_targets is Method.refined_targets
            and not (self.extras or self.method.separate_views)
            and isinstance(self.targets, CandidateTargets)
            and not isinstance(self.sets, OpenSets)
            and (self.world.alone or not self._observes_logits)
        )

    @property
    def _observes_logits(self) -> bool:
        part = self.rebalancer
        return part.observes_logits and type(part).observe is not Rebalancer.observe

    def _step_in_blocks(self, index: Tensor, views: Sequence[Tensor]) -> Tensor:
        """`step`, but the losses and targets of a few rows at a time; each process has its own."""
        n, world, targets = len(index), self.world, self.targets
        own, views = index[world.own_rows(n)], views[: self.method.n_forward_views]
        outputs = self.forward_pass(torch.cat([*views]))
        seen = world.gather_features(views_of(*outputs, len(views)).detach(), n)
        self.rebalancer.observe(seen, self.head)
        parts = (self.head, self.rebalancer, self._forward_one, self.generator)
        found = []

        def loss_of(block: slice, its_outputs: Outputs) -> Tensor:
            rows = own[block]
            known = targets[rows], self._candidates(rows), self._log_weights(rows)
            batch = Batch([view[block] for view in views], *known)
            step = Step(batch, its_outputs, *parts, rows=rows)
            step, refined = self._refined_on_candidates(step)
            loss = self.method.step_loss(step)
            marks = marks_of_rows([*its_outputs.detach().logits, refined])
            found.append(torch.cat([loss.detach().to(marks).expand_as(marks), marks], dim=1))
            # Gradients are averaged over the processes.
            return loss * (len(rows) / n * world.size)

        self.optimizer.zero_grad(set_to_none=True)
        size = rows_of_block(self.head.out_features, self._together)
        backward_in_blocks(outputs, len(views), size, loss_of)
        assert isinstance(targets, CandidateTargets)
        shared = torch.cat(found)
        if not world.alone:
            shared = world.gather_rows(torch.cat([shared, targets.on_candidates(own)], dim=1), n)
            targets.set_on_candidates(index, shared[:, 2:])
        loss = shared[:, 0].mean()
        self._nonfinite.observe(index, [shared[:, 1:2]], loss)
        self.optimizer.step()
        return loss

    @torch.no_grad()
    def _opened(self, batch: Batch, index: Tensor, outputs: Outputs) -> Batch:
        """The batch with sets that hold one more class, because they may lack the true label."""
        assert isinstance(self.sets, OpenSets)
        adjusted = self.rebalancer.adjust(outputs, "targets", self.head).logits
        given = self.sets.add_outside_labels(index, torch.stack(adjusted).mean(0))
        return batch._replace(
            candidates=self._candidates(index), log_weights=self._log_weights(index), given=given
        )

    def _candidates(self, index: Tensor) -> Tensor:
        """The candidate sets of some rows, without what the method has ruled out."""
        candidates, remaining = self.sets[index], self.method.remaining_classes(index)
        return candidates if remaining is None else candidates & remaining

    def _log_weights(self, index: Tensor) -> Tensor | None:
        """The weights of the candidates of some rows, with the rebalancer's evidence."""
        known, evidence = self.sets.log_weights(index), self.rebalancer.evidence(index)
        return known if evidence is None else evidence if known is None else known + evidence

    def _forward_views(self, batch: Batch, extras: Sequence[Extra]) -> Sequence[Tensor]:
        needed = [extra.n_forward_views for extra in extras]
        return batch.views[: max([self.method.n_forward_views, *needed])]

    def _forward(
        self, groups: Sequence[Sequence[Tensor]], network: nn.Module | None = None
    ) -> list[Outputs]:
        """The outputs of each group of views for the whole batch; each process runs its share."""
        separate = self.method.separate_views
        if self.world.alone:
            return self.forward_pass.outputs(groups, network, separate=separate)
        shares, sizes = zip(*map(self.world.own_shares, groups), strict=True)
        outputs = self.forward_pass.outputs(shares, network, separate=separate)
        return list(map(self.world.gather_outputs, outputs, sizes))

    def _forward_one(self, views: Sequence[Tensor], network: nn.Module | None = None) -> Outputs:
        return self._forward([views], network)[0]

    @property
    def _refines(self) -> bool:
        return self._stage_epoch >= self.warmup_epochs

    @property
    def _opens(self) -> bool:
        return isinstance(self.sets, OpenSets) and self._stage_epoch >= self._open_from

    @property
    def _stage_epoch(self) -> int:
        """Epochs since the network was last reset, for methods that restart."""
        return self.epoch - (self._restart if self.epoch >= self._restart else 0)

    @property
    def _stage_length(self) -> int:
        """Epochs after the network was last reset."""
        return self.epochs - self._restart

    def _phase(self) -> tuple[bool, ...]:
        """Everything that Python decides inside a step; a recorded step is valid for one value."""
        active = (extra.active(self._stage_epoch) for extra in self.extras)
        return self._refines, self._opens, *active, *self.method.phase

    # ---- the loop -------------------------------------------------------------------------------

    def fit(
        self, x: Array, candidates: Any, callbacks: Sequence[Callback] = ()
    ) -> PartialLabelTrainer:
        """Train until `epochs` are done.

        Args:
            x: Features, (rows, features), or images, (rows, channels, height, width).
            candidates: The candidate set of each row: `Candidates`, a 0/1 matrix, or lists of
                labels.
            callbacks: Hooks such as `Evaluate`, `Checkpoint` and `Progress`, called in this order;
                checkpoints are written last.

        Returns:
            The trainer itself.

        Raises:
            InputError: If the data do not fit the model or each other, or this trainer was trained
                before.
            NotFiniteError: If numbers become infinite or NaN, unless `on_nan="skip"`.
        """
        callbacks = sorted(callbacks, key=lambda callback: isinstance(callback, Checkpoint))
        checkpoints = [one for one in callbacks if isinstance(one, Checkpoint)]
        resumes = any(checkpoint.exists(self) for checkpoint in checkpoints)
        if self.epoch > 0 and not resumes:
            # The targets would restart while the network would not.
            raise InputError(
                f"This trainer has already trained for {counted(self.epoch, 'epoch')}: "
                "create a new one, with a new model."
            )
        self.prepare(x, candidates)
        for callback in callbacks:
            callback.on_train_begin(self)
        if resumes:
            for callback in callbacks:
                callback.on_resume(self)
        # Several processes cannot measure separately, because their layers may communicate.
        timed_pass = self._timed_pass if self.device.type == "cpu" and self.world.alone else None
        with (
            delayed_signals(bool(checkpoints)) as signals,
            self._runner.releasing_graphs(),
            self.threads.restored(),
            fast_products() if self._steps_in_blocks(self.batch_size) else nullcontext(),
        ):
            interrupted = SharedSignals(signals, self.world)

            def after_step() -> bool:
                for callback in callbacks:
                    callback.on_step_end(self)
                return interrupted()

            if self.epoch < self.epochs:
                self.threads.choose(timed_pass, self.state.batches.size)
            while self.epoch < self.epochs:
                record = self.train_epoch(after_step)
                if record is None:  # interrupted within the epoch
                    self.world.synchronise_state(self.model, self._parts, self.targets.values)
                else:
                    self.state.add_record(record)
                    for callback in callbacks:
                        callback.on_epoch_end(self, record)
                if record is None or interrupted():
                    for callback in callbacks:
                        callback.on_interrupt(self)
                    signals.deliver()
        self._check_finite()
        return self

    def prepare(self, x: Array, candidates: Any) -> None:
        """Check the data, move it to the device if it fits, and initialise the targets."""
        sets = Candidates.of(candidates)
        inputs = self.predictor.inputs(x, "training")
        check_data(inputs, sets, self.head)
        self.inputs, self.candidates = Inputs(inputs, self.device), sets.to(self.device)
        self.sets = self._new_sets()
        if isinstance(self.sets, OpenSets):
            prior = estimate_prior(self.candidates, missing=self.truth_missing)
            self.sets.limit_outside_shares(np.maximum(prior.estimate, prior.upper))
        targets = initial_targets(self.sets, self.method.targets_on, self.forward_pass.dtype)
        batches = self._sampler()
        if batches.size < self.world.size:
            raise InputError(
                f"A batch of {counted(batches.size, 'row')} is too small for {self.world.size} "
                "processes: use fewer."
            )
        self._nonfinite.reset(len(sets))
        self.state.start(self.candidates, targets, batches)
        for part in self._parts:
            part.start_training(self)
        if self.earlier:
            for name in ("model", "rebalancer"):
                self.state.modules[name].load_state_dict(under_prefix(name, self.earlier))
            targets.values.copy_(self.final_targets().values)
            self.warmup_epochs = 0
        # Created here, because recorded steps hold on to the tensors above.
        self._runner = Runner(
            self._nonfinite.guard(self.step, targets),
            self._draw_from,
            self.inputs.read,
            self._phase,
            self.engine,
            self.generator,
            self.world,
        )

    def _sampler(self) -> BatchSampler:
        n, settings = len(self.sets), (self.batch_size, self.drop_last, self.chunk)
        return BatchSampler(n, *settings, self.generator, self.world)

    def _new_sets(self) -> Candidates:
        """The candidate sets, open if they may lack the true label."""
        if np.any(self.truth_missing):
            return OpenSets(self.candidates, self.truth_missing)
        return self.candidates

    def train_epoch(self, interrupted: Callable[[], bool] = lambda: False) -> dict[str, Any] | None:
        """Train for one epoch, or for the rest of an interrupted one.

        Args:
            interrupted: Called after every step; if it returns True, the epoch stops there and
                continues with the next call.

        Returns:
            The epoch's record, or None if it was interrupted.
        """
        batches = self.state.batches
        if batches.step == 0 and self._restart and self.epoch == self._restart:
            self._reset_network()
        rate = self._set_learning_rate()
        self.model.train()
        if batches.step == 0:
            self._start_epoch()
        self._nonfinite.start_epoch(batches.step)
        with self._own_random_state():
            for index, views in batches.batches(self._runner.draw, self.inputs.announce):
                self.state.loss_sum += self._runner.step(index, views)
                stops = interrupted()
                if stops or self.device.type == "cpu":
                    self._nonfinite.check(self.epoch + 1)
                if stops:
                    return None
        # This times out, unlike waiting for a GPU that waits for a lost process.
        self.world.wait_for_all()
        self._nonfinite.check(self.epoch + 1)
        record = {"epoch": self.epoch + 1, "lr": rate, **self._mean_loss()}
        self.world.synchronise_state(self.model, self._parts, self.targets.values)
        for part in (self.rebalancer, self.method, *self.extras):
            part.end_epoch(self)
        self.state.end_epoch()
        return record

    def _mean_loss(self) -> dict[str, Any]:
        n_steps, skipped = self.state.batches.step, int(self.state.n_skipped)
        if skipped == n_steps:
            where = "the only batch" if skipped == 1 else f"all {skipped} batches"
            what = f"In {where} the loss, outputs or gradients were"
            raise not_finite_error(what, self.epoch + 1, None, (), self.lr)
        loss = float(self.state.loss_sum) / (n_steps - skipped)
        counts = isinstance(self._nonfinite, SkipNonFinite)
        return {"loss": loss} | ({"skipped": skipped} if counts else {})

    def _set_learning_rate(self) -> float:
        if self.milestones:
            rate = step_rate(self._stage_epoch, self.milestones, self.lr)
        else:
            at = min(self._stage_epoch, self._stage_length)
            rate = cosine_rate(at, self._stage_length, self.lr, self.lr * self.final_lr_factor)
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(rate * group["lr_factor"])
            else:
                group["lr"] = rate * group["lr_factor"]
        return rate

    def _start_epoch(self, seconds_before: float = 0.0) -> None:
        self.state.start_epoch(seconds_before)
        if not self.world.alone:
            # Layers of each process draw from a seed of the epoch, so that no process's random
            # state has to be saved.
            seeds = np.random.SeedSequence([self.seed, self.world.rank, self.epoch])
            drawn = seeds.generate_state(1, np.uint64)[0]
            self.state.random = random_state_of(int(drawn >> np.uint64(1)), self.device)
        if isinstance(self.sets, OpenSets):
            risen = (self._stage_epoch + 1 - self._open_from) / self._ramp
            self.sets.outside_strength.fill_(min(risen, 1.0) if self._opens else 0.0)
        for part in self._parts:
            part.start_epoch(self.epoch, self.epochs)

    def _reset_network(self) -> None:
        """Reset network, optimizer and targets in place: recorded steps hold on to them."""
        self.model.load_state_dict(self.state.initial)
        self.state.initial = {}
        for state in self.optimizer.state.values():
            for value in state.values():
                if isinstance(value, Tensor):
                    value.zero_()
        first = initial_targets(self._new_sets(), self.method.targets_on, self.forward_pass.dtype)
        self.targets.values.copy_(first.values)

    # ---- views ----------------------------------------------------------------------------------

    @property
    def view_kinds(self) -> tuple[ViewKind, ...]:
        """The kinds of views: the method's, and more strong ones if extras need them."""
        strong: ViewKind = "strong"
        missing = max([0, *(extra.n_views for extra in self.extras)]) - self.method.n_views
        return self.method.views + (strong,) * missing

    def draw(self, rows: Tensor, places: Tensor | None = None) -> tuple[Tensor, ...]:
        """Draw the views of the rows, or of only those at `places`."""
        return self._draw_from(self.inputs[rows], places)

    def _draw_from(self, x: Tensor, places: Tensor | None = None) -> tuple[Tensor, ...]:
        # Custom view sources for a single process need not accept places.
        chosen = () if places is None else (places,)
        return self.views.draw(x, self.view_kinds, self.generator, *chosen)

    @contextmanager
    def _own_random_state(self) -> Iterator[None]:
        """Let layers such as dropout draw from this trainer's random state, not the caller's."""
        with torch.random.fork_rng(devices=[self.device] if self.device.type == "cuda" else []):
            set_random_state(self.state.random, self.device)
            yield
            self.state.random = get_random_state(self.device)

    # ---- progress -------------------------------------------------------------------------------

    @property
    def step_of_epoch(self) -> int:
        """The number of finished steps of the current epoch."""
        return self.state.batches.step

    @property
    def steps_per_epoch(self) -> int:
        return math.ceil(self.state.batches.rows / self.state.batches.size)

    @property
    def epochs_done(self) -> float:
        """Finished epochs, with the fraction of the current one."""
        return self.epoch + self.step_of_epoch / self.steps_per_epoch

    @property
    def views_per_epoch(self) -> int:
        """The number of augmented images or rows per epoch, without those that extras add."""
        return self.method.n_forward_views * self.state.batches.rows

    def _timed_pass(self) -> Callable[[int], object]:
        """Return a function that runs a copy of the network on some rows, to time CPU threads."""
        network = deepcopy(self.model).train()
        parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]

        def run(rows: int) -> object:
            with torch.random.fork_rng(devices=[]):  # for dropout
                views = [self.views.plain(self.x[:rows])] * self.method.n_forward_views
                separate = self.method.separate_views
                logits = self.forward_pass.outputs([views], network, separate=separate)[0].logits
                total = torch.cat(logits).logsumexp(1).sum()
                return torch.autograd.grad(total, parameters, allow_unused=True)

        return run

    # ---- checkpoints ----------------------------------------------------------------------------

    def save(self, path: Path | str) -> None:
        """Write a checkpoint and keep the previous one beside it.

        Raises:
            NotFiniteError: If a weight, target or momentum is not finite; such a state is never
                written.
        """
        self._check_finite()
        if self.world.first:
            add_checkpoint(Path(path), *self.state.state_dict())

    def load(self, path: Path | str) -> None:
        """Restore a checkpoint of the same parts and data, or the previous one if it is damaged.

        Call `prepare` first.

        Raises:
            InputError: If there is no usable checkpoint of this training.
        """
        if not self.world.first:
            # Until the first process has set an unusable checkpoint aside.
            self.world.wait_for_all()
        tensors, values = usable_checkpoint(Path(path), self.state.mismatch)
        if self.world.first:
            self.world.wait_for_all()
        try:
            self.state.load_state_dict(
                tensors, values, self._start_epoch, with_random=self.world.first
            )
        except Exception as error:  # about states of another kind, or missing entries
            raise InputError(
                f"The checkpoint {path} does not fit this training ({first_line(error)}): {ADVICE}."
            ) from None

    def _check_finite(self) -> None:
        if not self.state.is_finite():
            epoch = self.epoch + (self.step_of_epoch > 0)
            raise not_finite_error("The weights, momenta or targets are", epoch, None, (), self.lr)

    # ---- prediction -----------------------------------------------------------------------------

    def outputs(self, x: Array, batch_size: int | None = None) -> Outputs:
        """Return the network's outputs for inputs without augmentation, without rebalancing."""
        if self.world.alone or len(x) < self.world.size:  # type: ignore[arg-type]
            return self.predictor.outputs(x, batch_size)
        inputs = self.predictor.inputs(x)
        share = self.predictor.outputs(inputs[self.world.own_rows(len(inputs))], batch_size)
        return self.world.gather_outputs(share, len(inputs))

    @torch.no_grad()
    def plain_outputs(self) -> Iterator[tuple[Outputs, Tensor]]:
        """Yield the outputs for training examples without augmentation, with their candidates."""
        size = prediction_batch_size(self.x, self.head.out_features)
        chunks = torch.arange(len(self.x), device=self.device).split(size)
        shares = [rows[self.world.own_rows(len(rows))] for rows in chunks]
        for rows, share, following in zip(chunks, shares, [*shares[1:], None], strict=True):
            x = self.inputs[share]
            if following is not None:
                self.inputs.announce(following)
            outputs = Outputs.from_views([self.predictor.plain(x)])
            yield self.world.gather_outputs(outputs, len(rows)), self._candidates(rows)

    @torch.no_grad()
    def final_targets(self) -> Targets:
        """What the trained network says about the labels of the training examples.

        The targets of the last epoch are those of an augmented view each, before the last steps,
        and corrected by the rebalancer; these recover as many labels or more.

        Returns:
            Targets for inputs without augmentation, for which every example counts the same.
        """
        targets, done = initial_targets(self.sets, dtype=self.forward_pass.dtype), 0
        for outputs, candidates in self.plain_outputs():
            rows = torch.arange(done, done + len(candidates), device=self.device)
            logits = self.predictor.adjusted(outputs, "accuracy")
            known = self.sets.log_weights(rows)
            logits = logits if known is None else logits + known
            targets[rows] = restricted_softmax(logits, candidates)
            done += len(rows)
        return targets

    def logits(self, x: Array, goal: Goal = "balanced") -> Tensor:
        """Return the logits for prediction, for "balanced" corrected for the class prior."""
        return self.predictor.logits(x, goal)

    def predict(self, x: Array, goal: Goal = "balanced") -> npt.NDArray[np.int64]:
        """Return the predicted class number of each row."""
        return self.predictor.predict(x, goal)


# ---- the learning rate ---------------------------------------------------------------------------


def cosine_rate(epoch: int, n_epochs: int, start: float, end: float) -> float:
    """The learning rate of an epoch, falling from `start` towards `end` along half a cosine."""
    return end + (start - end) * (1 + math.cos(math.pi * epoch / n_epochs)) / 2


def step_rate(epoch: int, milestones: Sequence[int], start: float) -> float:
    """The learning rate of an epoch, multiplied by 0.1 after each of `milestones` epochs."""
    return start * STEP_FACTOR ** bisect_right(milestones, epoch)


def check_milestones(milestones: Sequence[int], n_epochs: int) -> tuple[int, ...]:
    """Check that milestones are increasing numbers of epochs, each followed by an epoch."""
    numbers = list(milestones)
    whole = {type(number) for number in numbers} <= {int}
    if not whole or sorted({*numbers} & {*range(1, n_epochs)}) != numbers:
        raise InputError(
            f"milestones is {shown(numbers)}: they must be increasing numbers of epochs, at least "
            f"1 and below {n_epochs}, the number of epochs in which the learning rate falls."
        )
    return tuple(numbers)
