"""Oracle-LA (logit adjustment: Menon et al., ICLR 2021; Hong et al., CVPR 2021): subtract the true
prior, which only an oracle knows.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ltpll.errors import InputError, InputWarning
from ltpll.formatting import are, counted
from ltpll.interfaces import Rebalancer


def _checked_log_frequencies(class_frequencies: Any, name: str) -> Tensor:
    """log(n_c / N) of class counts or shares.

    A class without examples counts as the rarest class that has some.
    """
    if class_frequencies is None:
        raise InputError(
            f"The rebalancer {name!r} needs the true class frequencies, which cannot be read from "
            "partially labelled data: "
            "give class_frequencies, or choose 'records', which estimates them."
        )
    # In numpy, because loading a saved classifier first constructs its parts on the meta device,
    # where tensors have no values.
    frequencies = np.asarray(class_frequencies, dtype=np.float64).ravel()
    wrong = np.flatnonzero(~np.isfinite(frequencies) | (frequencies < 0))
    if len(wrong):
        which = f"The frequency of class {wrong[0]} is {frequencies[wrong[0]]}"
        raise InputError(f"{which}: frequencies must be counts or shares.")
    present = frequencies > 0
    if not present.any():
        which = "All class frequencies are zero"
        raise InputError(f"{which}: give the number of training examples of each class.")
    if absent := int((~present).sum()):
        # log 0 would lift an absent class above every other one.
        warnings.warn(
            f"{counted(absent, 'class has', 'classes have')} frequency 0 and {are(absent)} "
            "adjusted like the rarest class with examples.",
            InputWarning,
            stacklevel=3,
        )
        frequencies = np.maximum(frequencies, frequencies[present].min())
    return torch.from_numpy(np.log(frequencies / frequencies.sum()).astype(np.float32))


class OracleLA(Rebalancer):
    """Oracle logit adjustment (Menon et al., ICLR 2021): subtract the true log-prior.

    Formula:
        π          = class_frequencies / their sum;  a class with frequency 0 counts as the rarest
                     other one
        targets    from ẑ = z − log π
        prediction = z − log π

    References:
        Aditya Krishna Menon, Sadeep Jayasumana, Ankit Singh Rawat, Himanshu Jain, Andreas Veit and
        Sanjiv Kumar: Long-Tail Learning via Logit Adjustment, ICLR 2021.
        https://openreview.net/forum?id=37nvvqkCo5

        Youngkyu Hong, Seungju Han, Kwanghee Choi, Seokjun Seo, Beomsu Kim and Buru Chang:
        Disentangling Label Distribution for Long-Tailed Visual Recognition, CVPR 2021.
        https://arxiv.org/abs/2012.00321

    Args:
        class_frequencies: The number or the share of training examples of each class.

    Examples:
        >>> rebalancer = OracleLA(class_frequencies=[600, 300, 10])
        >>> classifier = PartialLabelClassifier(rebalancer=rebalancer)
    """

    name = "oracle-la"
    log_frequencies: Tensor

    def __init__(self, class_frequencies: Any) -> None:
        super().__init__()
        self.class_frequencies = class_frequencies
        frequencies = _checked_log_frequencies(class_frequencies, self.name)
        self.register_buffer("log_frequencies", frequencies)

    def log_prior(self, head: nn.Linear) -> Tensor:
        return self.log_frequencies
