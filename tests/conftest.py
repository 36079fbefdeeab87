"""Settings for every test: one thread each, so that two workers on two cores do not compete, and Triton's interpreter without a GPU."""

import os

import torch
from hypothesis import settings

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when kernels are imported
torch.set_num_threads(1)
settings.register_profile("ltpll", deadline=None, max_examples=50, derandomize=True)
settings.load_profile("ltpll")
