"""Where tests of Triton kernels run: on a GPU, or in Triton's interpreter (`conftest.py`)."""

import pytest
import torch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
pytest.importorskip("triton")
