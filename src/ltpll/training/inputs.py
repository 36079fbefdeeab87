"""Inputs: training examples on the device, or read from the host in chunks if they do not fit."""

from __future__ import annotations

import os
from concurrent.futures import Future, ThreadPoolExecutor

import torch
from torch import Tensor

# Of the free memory of a GPU that inputs may take: networks, views and targets need the rest.
DEVICE_SHARE = 0.5
# Of the main memory; larger inputs, such as a file that is mapped into memory, are read ahead of
# their use.
HOST_SHARE = 0.5


class Inputs:
    """Training inputs: on the device or, if they do not fit there, copied to it as they are needed.

    In the latter case they are in main memory or a memory-mapped file, and a thread copies the
    announced rows while the device computes. On CUDA it fills pinned memory, from which the device
    reads by itself. On a CPU, inputs that fit are not copied.
    """

    def __init__(self, x: Tensor, device: torch.device) -> None:
        self.device, self.streamed = device, not fits(x, device)
        self.x = x if self.streamed else x.to(device)
        if self.streamed:
            # Whole rows are copied in the order in which they are stored.
            pictures = x.ndim == 4 and not x.is_contiguous()
            self._channels_last = pictures and x.is_contiguous(memory_format=torch.channels_last)
            self._stored = x.permute(0, 2, 3, 1) if self._channels_last else x
            self._thread = ThreadPoolExecutor(1, "inputs")
            self._announced: tuple[Tensor, Future[Tensor]] | None = None

    def __getitem__(self, rows: Tensor) -> Tensor:
        """These rows, on the device."""
        return self.read(rows)

    def read(self, rows: Tensor, places: Tensor | None = None) -> Tensor:
        """These rows, on the device; if they are streamed, those not at `places` may be zero."""
        if not self.streamed:
            return self.x[rows]
        announced, self._announced = self._announced, None
        if announced is not None and announced[0] is rows:
            found = announced[1].result()
        else:
            found = self._copied(rows.cpu(), self._buffer(len(rows)), places)
        found = found.to(self.device, non_blocking=True)
        return found.permute(0, 3, 1, 2) if self._channels_last else found

    def announce(self, rows: Tensor, places: Tensor | None = None) -> None:
        """Say which rows are wanted next, of which only those at `places` are read."""
        if self.streamed:
            # The thread itself never calls CUDA, which would end the recording of a CUDA graph in
            # the main thread.
            places, buffer = None if places is None else places.cpu(), self._buffer(len(rows))
            copy = self._thread.submit(self._copied, rows.cpu(), buffer, places)
            self._announced = (rows, copy)

    def _buffer(self, n: int) -> Tensor:
        # torch does not reuse pinned memory before the device has read it.
        shape, dtype = self._stored.shape[1:], self._stored.dtype
        return torch.empty(n, *shape, dtype=dtype, pin_memory=self.device.type == "cuda")

    def _copied(self, rows: Tensor, buffer: Tensor, places: Tensor | None) -> Tensor:
        if places is None:
            return torch.index_select(self._stored, 0, rows, out=buffer)
        # Of several processes, each reads its own rows: otherwise all would read the whole file.
        buffer.zero_()[places.cpu()] = self._stored[rows[places.cpu()]]
        return buffer


def fits(x: Tensor, device: torch.device) -> bool:
    """Whether inputs take so little memory that they can be on the device as a whole."""
    if x.device.type != "cpu":
        return True
    if device.type == "cuda":
        return x.nbytes <= DEVICE_SHARE * torch.cuda.mem_get_info(device)[0]
    try:
        main_memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return True  # it is not known
    return x.nbytes <= HOST_SHARE * main_memory
