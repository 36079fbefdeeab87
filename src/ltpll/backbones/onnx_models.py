"""ONNX models: networks that torch exports and onnxruntime runs."""

from __future__ import annotations

import logging
import os
import tempfile
import warnings
from collections.abc import Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ltpll.errors import InputError, first_line, required_by


def exported_model(network: nn.Module, example: Tensor, outputs: Sequence[str]) -> bytes:
    """A network as an ONNX model whose input is `x`, for any number of rows like the example's."""
    with (
        tempfile.TemporaryDirectory() as folder,
        warnings.catch_warnings(),
        redirect_stdout(StringIO()),
    ):
        warnings.simplefilter("ignore")  # from inside the exporter
        for name in ("torch.onnx", "onnxscript", "onnx_ir"):
            # They report optional packages and optimisations that are not needed.
            logging.getLogger(name).setLevel(logging.ERROR)
        path = Path(folder) / "model.onnx"
        torch.onnx.export(
            network,
            (example,),
            path,
            input_names=["x"],
            output_names=outputs,
            dynamic_shapes=({0: torch.export.Dim("rows", min=1)},),
            opset_version=18,  # the version that torch writes without converting
            dynamo=True,
            external_data=False,
            verbose=False,
        )
        return path.read_bytes()


def onnx_session(content: bytes, name: str, threads: int | None = None) -> Any:
    """A session of onnxruntime on the CPU for a model that `exported_model` has made.

    Only this function imports onnxruntime, so that nothing is reported to anybody.
    """
    # Else it writes a device id into the user's cache folder and sends events over the network,
    # from the moment it is imported.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    with required_by(f"The network {name}", install="'ltpll[onnx]'"):
        import onnxruntime

    onnxruntime.disable_telemetry_events()  # for Windows, which ignores the variable
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors arrive as exceptions
    if threads is not None:
        options.intra_op_num_threads = threads
    try:
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime raises many kinds of errors
        raise InputError(
            f"The network {name} cannot be run by onnxruntime ({first_line(error)}): export it "
            "again."
        ) from None
