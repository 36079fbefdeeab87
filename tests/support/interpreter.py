"""Triton's interpreter for tests of kernels where there is no GPU; import this before the kernels."""

import os

import pytest
import torch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
if DEVICE.type == "cpu":
    os.environ["TRITON_INTERPRET"] = "1"
pytest.importorskip("triton")
