"""Oracle-LA (logit adjustment: Menon et al., ICLR 2021; Hong et al., CVPR 2021): subtract the true prior, which only an oracle knows."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn

from ltpll.errors import InputError, InputWarning
from ltpll.interfaces import Rebalancer


def checked_log_frequencies(class_frequencies: Any, name: str) -> Tensor:
    """log(n_c / N) for counts or shares of the classes; a class without examples is treated as the rarest class that has some."""
    if class_frequencies is None:
        raise InputError(
            f"The rebalancer {name!r} needs the true class frequencies, which partially labelled data do not show: "
            "give class_frequencies, or choose 'records', which estimates them."
        )
    frequencies = torch.as_tensor(class_frequencies, dtype=torch.float64).flatten()
    wrong = torch.nonzero(~torch.isfinite(frequencies) | (frequencies < 0)).flatten()
    if len(wrong):
        raise InputError(f"The frequency of class {int(wrong[0])} is {float(frequencies[wrong[0]])}: frequencies are counts or shares.")
    present = frequencies > 0
    if not bool(present.any()):
        raise InputError("All class frequencies are zero: give the number of training examples of each class.")
    if not bool(present.all()):
        # log 0 would lift an absent class above every other one.
        warnings.warn(
            f"{int((~present).sum())} classes have frequency 0; they are adjusted like the rarest class that has examples.",
            InputWarning,
            stacklevel=3,
        )
        frequencies = frequencies.clamp_min(float(frequencies[present].min()))
    return torch.log(frequencies / frequencies.sum()).float()


class OracleLA(Rebalancer):
    """The true log-prior, subtracted when refining targets and at prediction."""

    name = "oracle-la"

    def __init__(self, class_frequencies: Any) -> None:
        super().__init__()
        self.log_frequencies: Tensor
        self.register_buffer("log_frequencies", checked_log_frequencies(class_frequencies, self.name))

    def log_prior(self, head: nn.Linear) -> Tensor:
        return self.log_frequencies
