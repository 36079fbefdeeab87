"""Triton support: whether kernels can run, which takes a GPU and, at run time, a C compiler."""

from __future__ import annotations

import warnings
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor


def runs_kernels(x: Tensor) -> bool:
    """Whether to use our kernels for a tensor; torch.compile generates its own."""
    return x.is_cuda and not torch.compiler.is_compiling() and _triton_works(x.device)


@cache
def _triton_works(device: torch.device) -> bool:
    if find_spec("triton") is None:
        return False
    from ltpll.kernels.conv_kernels import neighbourhoods

    try:
        # Each of four pixels is a neighbour of all.
        return bool(neighbourhoods(torch.ones(1, 1, 2, 2, device=device)).sum() == 16)
    except Exception as error:  # a missing compiler or an old driver can raise anything
        warnings.warn(
            f"Triton does not work here ({type(error).__name__}: {error}); "
            "training is slower without it.",
            stacklevel=2,
        )
        return False
