"""Kernels: Triton versions of torch's operations, imported only where they can run."""
