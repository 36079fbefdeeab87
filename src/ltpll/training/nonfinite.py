"""Finite numbers: which rows of a step have others, what is said then, and how a step that has any can be made to change nothing."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from ltpll.errors import NotFiniteError


def rows_not_finite(parts: Sequence[Tensor]) -> Tensor:
    """Which rows, (batch,), have a number that is not finite in one of the (batch, …) parts."""
    # Zero times a number is NaN if that is not finite, and a sum with a NaN is one; fewer kernels than asking each number.
    return torch.cat([*parts], dim=1).mul_(0).sum(1) != 0


def not_finite(what: str, epoch: int, step: int | None, rows: Sequence[int], lr: float) -> NotFiniteError:
    """The error that says where training met a number that is not finite; epochs and steps count from 1."""
    where = f"epoch {epoch}" + ("" if step is None else f", step {step}")
    shown = ", ".join(map(str, rows[:5])) + (", …" if len(rows) > 5 else "")
    of = f", for row{'s' if len(rows) > 1 else ''} {shown}" if rows else ""
    where_to_look = "these rows" if rows else "the features"
    return NotFiniteError(
        f"{what} not finite in {where}{of}: lower the learning rate (now {lr:g}), look for extreme values in {where_to_look}, "
        "or have such batches dropped (on_nan='skip', or --on-nan skip on the command line).",
        epoch=epoch,
        step=step,
        rows=rows,
    )


@torch.no_grad()
def all_finite(tensors: Iterable[Tensor]) -> bool:
    """Whether every number of every tensor is finite; waits for the device once."""
    sums = [(tensor * 0).sum() for tensor in tensors if tensor.is_floating_point()]
    return not sums or bool((torch.stack([each.float() for each in sums]) == 0).all())


def finite_throughout(value: Any) -> bool:
    """Whether every number in a record of plain values is finite."""
    if isinstance(value, Mapping):
        return all(map(finite_throughout, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(finite_throughout, value))
    return not isinstance(value, float) or math.isfinite(value)


class Watch:
    """Remembers the rows that were not finite, and ends the training if there are any.

    Where steps are not looked at one by one, since looking means to wait for the device, it remembers those of the first bad step of an
    epoch, and its number: in the steps behind it hardly anything is finite any more.
    """

    def __init__(self, n: int, lr: float, device: torch.device) -> None:
        self.rows = torch.zeros(n, dtype=torch.bool, device=device)
        self.lr = lr
        self.looks = device.type == "cpu"
        self._steps, self._first = torch.zeros(2, dtype=torch.int64, device=device).unbind()

    def start(self, step: int) -> None:
        """An epoch begins, or goes on behind so many steps."""
        self._steps.fill_(step)

    def note(self, index: Tensor, rows: Tensor) -> None:
        """Called once in every step with the rows in it and which of them are not finite."""
        if self.looks:
            self.rows[index] = rows
            return
        self._steps += 1
        new = rows & (self._first == 0)
        self.rows[index] = new
        self._first.copy_(torch.where(new.any(), self._steps, self._first))

    def check_step(self, index: Tensor, loss: Tensor, epoch: int, step: int) -> None:
        """Look at one step."""
        if not math.isfinite(loss) or bool(self.rows[index].any()):
            self._refuse(index, epoch, step)

    def check(self, total: Tensor, epoch: int) -> None:
        """Look at all steps so far, whose losses sum to `total`."""
        if not math.isfinite(total) or bool(self.rows.any()):
            self._refuse(None, epoch, int(self._first) or None)

    def _refuse(self, index: Tensor | None, epoch: int, step: int | None) -> NoReturn:
        rows = torch.nonzero(self.rows).flatten().tolist()
        what = "The network's logits, or the targets refined from them, are" if rows else "The loss is"
        # Of a loss alone it is not known which rows of the batch it comes from.
        known = rows or ([] if index is None else index.tolist())
        raise not_finite(what, epoch, step, known, self.lr)


class Guard:
    """Lets a step change weights, momenta, buffers and targets only if its loss, outputs, targets and gradients are all finite.

    With a fused optimizer, as on a GPU, nothing waits for the device: whatever changes during a step is copied before and chosen again at
    the end, so that the step can be recorded. What a step draws from random states stays drawn.
    """

    def __init__(self, modules: Iterable[nn.Module], optimizer: torch.optim.Optimizer, device: torch.device) -> None:
        self.optimizer = optimizer
        self.dropped = torch.zeros((), device=device)
        self._one = torch.ones((), device=device)
        self._trained = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        trained = {id(parameter) for parameter in self._trained}
        # Statistics of batch norm, F, queues, prototypes, networks that follow.
        changing = {id(tensor): tensor for module in modules for tensor in (*module.parameters(), *module.buffers())}
        self._changing = [tensor for number, tensor in changing.items() if number not in trained]

    def n_dropped(self) -> int:
        return int(self.dropped)

    def before(self) -> list[Tensor]:
        """Called before anything in a step changes; what it gives is for `finish`."""
        return [tensor.detach().clone() for tensor in self._changing]

    @torch.no_grad()
    def finish(self, before: Sequence[Tensor], loss: Tensor, rows: Tensor) -> Tensor:
        """The optimizer's step, or everything as it was before; gives whether it was one, a boolean on the device."""
        bad = (rows.any() | ~torch.isfinite(loss)).float()
        gradients = [parameter.grad for parameter in self._trained if parameter.grad is not None]
        torch._amp_foreach_non_finite_check_and_unscale_(gradients, bad, self._one)  # which sets it to one if it finds any
        self.dropped += bad
        good = bad == 0
        if self.optimizer.defaults.get("fused"):
            self.optimizer.found_inf = bad  # type: ignore[attr-defined]  # where it is one, the fused optimizer leaves everything alone
            self.optimizer.step()
            for tensor, old in zip(self._changing, before, strict=True):
                tensor.copy_(torch.where(good, tensor, old))
        elif good:
            self.optimizer.step()
        else:
            for tensor, old in zip(self._changing, before, strict=True):
                tensor.copy_(old)
        return good
