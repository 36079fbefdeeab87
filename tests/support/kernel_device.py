"""The device on which Triton kernels are tested: a GPU, or the CPU with Triton's interpreter
(tests/conftest.py).
"""

import pytest
import torch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
pytest.importorskip("triton")
