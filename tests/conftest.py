"""Settings for every test: one thread, so that two workers on two cores do not wait for each other."""

import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("ltpll", deadline=None, max_examples=50, derandomize=True)
settings.load_profile("ltpll")
