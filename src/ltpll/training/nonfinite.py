"""Non-finite numbers in a training step: stop the training, or skip the batch."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from ltpll.errors import NotFiniteError, option
from ltpll.targets import Targets
from ltpll.training.checkpoint import trained_parameters

StepFunction = Callable[[Tensor, Sequence[Tensor]], Tensor]
"""A training step: takes row numbers and their views, returns the loss."""


def _rows_not_finite(parts: Sequence[Tensor]) -> Tensor:
    """Return which rows, (batch,), have a non-finite number in one of the (batch, …) parts."""
    # Zero times a non-finite number is NaN, as is any sum with it: fewer kernels than tests.
    return torch.cat([*parts], dim=1).mul_(0).sum(1) != 0


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

    counts_skipped = False

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

    def check_step(self, index: Tensor, loss: Tensor, epoch: int, step: int) -> None:
        """Called after a step, to raise an error; must not synchronise with a GPU."""

    def check_epoch(self, loss_sum: Tensor, epoch: int) -> None:
        """Called after the steps of an epoch, to raise an error."""


class StopOnNonFinite(NonFinitePolicy):
    """Ends the training with an error that names the step and the rows.

    On a CPU every step is checked. On a GPU a check would force a synchronisation, so the rows and
    the number of the first bad step are kept on the device and checked once per epoch; after that
    step hardly anything is finite any more.
    """

    def __init__(self, lr: float, device: torch.device) -> None:
        super().__init__(device)
        self.lr = lr
        self.checks_every_step = device.type == "cpu"
        self._step, self._first_bad_step = torch.zeros(2, dtype=torch.int64, device=device).unbind()

    def reset(self, n_rows: int) -> None:
        self.rows = torch.zeros(n_rows, dtype=torch.bool, device=self.device)
        self._first_bad_step.zero_()

    def start_epoch(self, step: int) -> None:
        self._step.fill_(step)

    def observe(self, index: Tensor, parts: Sequence[Tensor], loss: Tensor) -> None:
        bad = _rows_not_finite(parts)
        if self.checks_every_step:
            self.rows[index] = bad
            return
        self._step += 1
        new = bad & (self._first_bad_step == 0)
        self.rows[index] = new
        self._first_bad_step.copy_(torch.where(new.any(), self._step, self._first_bad_step))

    def check_step(self, index: Tensor, loss: Tensor, epoch: int, step: int) -> None:
        if self.checks_every_step and (not math.isfinite(loss) or bool(self.rows[index].any())):
            self._fail(index, epoch, step)

    def check_epoch(self, loss_sum: Tensor, epoch: int) -> None:
        if not math.isfinite(loss_sum) or bool(self.rows.any()):
            self._fail(None, epoch, int(self._first_bad_step) or None)

    def _fail(self, index: Tensor | None, epoch: int, step: int | None) -> NoReturn:
        rows = torch.nonzero(self.rows).flatten().tolist()
        what = "The network's logits, or the targets refined from them, are"
        if not rows:  # a loss alone does not tell which rows of the batch it comes from
            what, rows = "The loss is", [] if index is None else index.tolist()
        raise not_finite_error(what, epoch, step, rows, self.lr)


class SkipNonFinite(NonFinitePolicy):
    """Undoes a step whose loss, outputs, targets or gradients are not all finite, and counts it.

    With a fused optimizer, as on a GPU, nothing synchronises with the device, so that the step can
    be recorded as a CUDA graph: whatever the step changes is copied beforehand and restored on the
    device. Random states advance as if the step had counted.
    """

    counts_skipped = True

    def __init__(
        self, modules: Iterable[nn.Module], optimizer: torch.optim.Optimizer, device: torch.device
    ) -> None:
        super().__init__(device)
        self.optimizer = optimizer
        self._bad, self._one = torch.zeros((), device=device), torch.ones((), device=device)
        self._trained = trained_parameters(optimizer)
        trained = set(map(id, self._trained))
        # Batch norm statistics, running features, queues, prototypes, momentum encoders.
        found = [one for module in modules for one in (*module.parameters(), *module.buffers())]
        changing = {id(tensor): tensor for tensor in found if id(tensor) not in trained}
        self._changing = list(changing.values())
        optimizer.register_step_pre_hook(self._block_update)

    def reset(self, n_rows: int) -> None:
        self.n_skipped.zero_()

    def guard(self, step: StepFunction, targets: Targets) -> StepFunction:
        """Return a step that changes nothing, with loss zero, if a number is not finite."""

        def guarded(index: Tensor, views: Sequence[Tensor]) -> Tensor:
            before = [tensor.detach().clone() for tensor in self._changing]
            targets_before = targets[index]
            loss = step(index, views)
            good = self._bad == 0
            with torch.no_grad():
                for tensor, old in zip(self._changing, before, strict=True):
                    tensor.copy_(torch.where(good, tensor, old))
                targets[index] = torch.where(good, targets[index], targets_before)
            self.n_skipped += self._bad
            return torch.where(good, loss, 0.0)

        return guarded

    def observe(self, index: Tensor, parts: Sequence[Tensor], loss: Tensor) -> None:
        self._bad.copy_((_rows_not_finite(parts).any() | ~torch.isfinite(loss.detach())).float())

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
