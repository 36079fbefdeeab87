"""Non-finite numbers in a training step: stop the training, or skip the batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ltpll.errors import NotFiniteError, option
from ltpll.targets import Targets
from ltpll.training.checkpoint import trained_parameters

StepFunction = Callable[[Tensor, Sequence[Tensor]], Tensor]
"""A training step: takes row numbers and their views, returns the loss."""


def marks_of_rows(parts: Sequence[Tensor]) -> Tensor:
    """NaN for rows with a non-finite number in one of the (batch, …) parts, else 0, (batch, 1)."""
    # Zero times a non-finite number is NaN, as is any sum with it: fewer kernels than tests.
    return torch.cat([*parts], dim=1).mul_(0).sum(1, keepdim=True)


def not_finite_error(
    what: str, epoch: int, step: int | None, rows: Sequence[int], lr: float
) -> NotFiniteError:
    """The error that says where a non-finite number was found; epochs and steps count from 1."""
    where = f"epoch {epoch}" + ("" if step is None else f", step {step}")
    listed = ", ".join(map(str, rows[:5])) + (", …" if len(rows) > 5 else "")
    of_rows = f", for row{'s' if len(rows) > 1 else ''} {listed}" if rows else ""
    message = (
        f"{what} not finite in {where}{of_rows}: lower the learning rate (now {lr:g}), look for "
        f"extreme values in {'these rows' if rows else 'the features'}, or skip such batches "
        f"with {option('on_nan', 'skip')}."
    )
    return NotFiniteError(message, epoch=epoch, step=step, rows=rows)


@torch.no_grad()
def all_finite(tensors: Iterable[Tensor]) -> bool:
    """Return whether all numbers of all tensors are finite; synchronises with the device once."""
    sums = [(tensor * 0).sum().float() for tensor in tensors if tensor.is_floating_point()]
    return not sums or bool((torch.stack(sums) == 0).all())


class NonFinitePolicy:
    """What happens if a number is not finite; this base class does nothing."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.n_skipped = torch.zeros((), device=device)

    def reset(self, n_rows: int) -> None:
        """Called before training on `n_rows` rows."""

    def guard(self, step: StepFunction, targets: Targets) -> StepFunction:
        """Return a step to use instead."""
        return step

    def start_epoch(self, step: int) -> None:
        """Called when an epoch starts, or resumes after `step` steps."""

    def observe(self, index: Tensor, parts: Sequence[Tensor], loss: Tensor) -> None:
        """Called before the backward pass with the batch's rows and (batch, …) tensors."""

    def check(self, epoch: int) -> None:
        """Called to raise an error: after every step on a CPU, elsewhere once per epoch."""


class StopOnNonFinite(NonFinitePolicy):
    """Ends the training with an error that names the step and the rows.

    On a GPU a check after every step would force a synchronisation, so the rows and the number of
    the first bad step are kept on the device; after that step hardly anything is finite any more.
    """

    def __init__(self, lr: float, device: torch.device) -> None:
        super().__init__(device)
        self.lr = lr
        self._step, self._bad_step = torch.zeros(2, dtype=torch.int64, device=device).unbind()

    def reset(self, n_rows: int) -> None:
        self.rows = torch.zeros(n_rows, dtype=torch.bool, device=self.device)
        self._bad_step.zero_()

    def start_epoch(self, step: int) -> None:
        self._step.fill_(step)

    def observe(self, index: Tensor, parts: Sequence[Tensor], loss: Tensor) -> None:
        self._step += 1
        bad = marks_of_rows(parts)[:, 0] != 0
        if not bad.is_cuda and math.isfinite(loss.detach()) and not bad.any():
            return  # which is faster
        any_bad = bad.any()
        first = (any_bad | ~torch.isfinite(loss.detach())) & (self._bad_step == 0)
        # A loss alone does not tell which rows of the batch it comes from.
        self.rows[index] = first & (bad | ~any_bad)
        self._bad_step.copy_(torch.where(first, self._step, self._bad_step))

    def check(self, epoch: int) -> None:
        if step := int(self._bad_step):
            rows = torch.nonzero(self.rows).flatten().tolist()
            what = "The network's logits, the targets or the loss are"
            raise not_finite_error(what, epoch, step, rows, self.lr)


class SkipNonFinite(NonFinitePolicy):
    """Undoes a step whose loss, outputs, targets or gradients are not all finite, and counts it.

    With a fused optimizer, as on a GPU, nothing synchronises with the device, so that the step can
    be recorded as a CUDA graph: whatever the step changes is copied beforehand and restored on the
    device. Random states advance as if the step had counted.
    """

    def __init__(
        self, modules: Iterable[nn.Module], optimizer: torch.optim.Optimizer, device: torch.device
    ) -> None:
        super().__init__(device)
        self.optimizer = optimizer
        self._bad, self._one = torch.zeros((), device=device), torch.ones((), device=device)
        self._modules, self._trained = list(modules), trained_parameters(optimizer)
        optimizer.register_step_pre_hook(self._block_update)

    def reset(self, n_rows: int) -> None:
        self.n_skipped.zero_()

    def guard(self, step: StepFunction, targets: Targets) -> StepFunction:
        """Return a step that changes nothing, with loss zero, if a number is not finite."""
        trained = set(map(id, self._trained))
        # Batch norm statistics, running features, queues, prototypes, momentum encoders, and state
        # per example, which exists once the training has started.
        parts = self._modules
        found = [one for module in parts for one in (*module.parameters(), *module.buffers())]
        changing = {id(tensor): tensor for tensor in found if id(tensor) not in trained}.values()

        def guarded(index: Tensor, views: Sequence[Tensor]) -> Tensor:
            before = [tensor.detach().clone() for tensor in changing]
            targets_before = targets[index]
            loss = step(index, views)
            good = self._bad == 0
            with torch.no_grad():
                for tensor, old in zip(changing, before, strict=True):
                    tensor.copy_(torch.where(good, tensor, old))
                targets[index] = torch.where(good, targets[index], targets_before)
            self.n_skipped += self._bad
            return torch.where(good, loss, 0.0)

        return guarded

    def observe(self, index: Tensor, parts: Sequence[Tensor], loss: Tensor) -> None:
        bad = (marks_of_rows(parts) != 0).any()
        self._bad.copy_((bad | ~torch.isfinite(loss.detach())).float())

    @torch.no_grad()
    def _block_update(self, *_: Any) -> None:
        """Keep the optimizer from changing weights and momenta if something is not finite."""
        gradients = [parameter.grad for parameter in self._trained if parameter.grad is not None]
        # Sets `_bad` to one if it finds any.
        torch._amp_foreach_non_finite_check_and_unscale_(gradients, self._bad, self._one)
        if self.optimizer.defaults.get("fused"):
            # The fused optimizer does nothing where it is one.
            self.optimizer.found_inf = self._bad  # type: ignore[attr-defined]
        elif self._bad:
            self.optimizer.zero_grad(set_to_none=True)  # such parameters are left alone
