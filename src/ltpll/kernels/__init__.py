"""Kernels: Triton versions of what torch's operations do elsewhere, imported only where they can run."""
