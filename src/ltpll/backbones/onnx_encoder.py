"""ONNX encoders: networks in .onnx files, run by onnxruntime; saved, but not fine-tuned."""

from __future__ import annotations

import logging
import os
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ltpll.backbones.preprocessing import Preprocessing
from ltpll.errors import InputError, first_line, required_by, shown
from ltpll.files import parse_json

KIND = "onnx"
INSTALL = "'ltpll[onnx]'"
SIDE = 224  # for networks that accept pictures of any size
FEATURES = ("features", "embedding", "embeddings", "pooler_output", "image_embeds")
FLOATS = {"tensor(float)": np.float32, "tensor(float16)": np.float16}
MOST_FEATURES = 1 << 20


class OnnxEncoder(nn.Module):
    """An ONNX network from pictures, (batch, 3, height, width), to features, (batch, n_features).

    Its bytes are a buffer, so that it is saved, loaded and fingerprinted like any other network.
    They have no external data, and are empty if `load_state_dict` sets them later. The number of
    features is None if it is not known yet.
    """

    content: Tensor

    def __init__(
        self, content: bytes, n_features: int | None, name: str = "a saved backbone"
    ) -> None:
        super().__init__()
        self.n_features, self.name = n_features, name
        held = np.frombuffer(bytearray(content), np.uint8)
        self.register_buffer("content", torch.from_numpy(held))
        self._session: Any = None

    @property
    def architecture(self) -> dict[str, Any]:
        return {"kind": KIND, "n_features": self.n_features}

    @classmethod
    def from_architecture(cls, architecture: Mapping[str, Any]) -> OnnxEncoder:
        """The encoder of a record; `load_state_dict` sets the model itself."""
        n_features = architecture.get("n_features")
        if not isinstance(n_features, int) or not 1 <= n_features <= MOST_FEATURES:
            raise InputError(f"A saved backbone has {shown(n_features)} features: it is damaged.")
        return cls(b"", n_features)

    def open(self, threads: int | None = None) -> None:
        """Prepare the model for this number of CPU threads; None for onnxruntime's choice."""
        self._session = onnx_session(self.content.cpu().numpy().tobytes(), self.name, threads)

    def forward(self, pictures: Tensor) -> Tensor:
        if self._session is None:
            self.open()
        given, wanted = picture_input(self._session, self.name), features_output(self._session)
        rows = pictures.detach().cpu().numpy().astype(FLOATS[given.type], copy=False)
        # Some networks take one picture at a time only.
        parts = np.split(rows, len(rows)) if given.shape[0] == 1 and len(rows) else [rows]
        found = [self._session.run([wanted], {given.name: part})[0] for part in parts]
        features = torch.from_numpy(np.concatenate(found).astype(np.float32))
        expected = (len(rows), self.n_features)
        if self.n_features is not None and features.flatten(1).shape != expected:
            raise InputError(
                f"The network {self.name} returns an array of shape {tuple(features.shape)} for "
                f"{len(rows)} pictures: it must return {self.n_features} features for each."
            )
        return features.to(pictures.device)

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *arguments: Any) -> None:
        # The size of a model is known only now.
        given = state_dict.get(f"{prefix}content")
        if isinstance(given, Tensor) and given.dtype == torch.uint8 and given.ndim == 1:
            self.content, self._session = torch.empty_like(given, device=self.content.device), None
        super()._load_from_state_dict(state_dict, prefix, *arguments)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_session": None}  # sessions can be neither copied nor pickled


def read_onnx_encoder(path: Path) -> tuple[OnnxEncoder, Preprocessing]:
    """Read an ONNX file, and the preprocessing from NAME.onnx.json beside it, if there is one."""
    with required_by(f"The backbone {path}", install=INSTALL):
        import onnx
    try:
        model = onnx.load(path, load_external_data=False)
        # Refuses paths that lead out of the folder.
        onnx.load_external_data_for_model(model, str(path.parent))
        content = model.SerializeToString()
    except Exception as error:  # onnx and protobuf raise many kinds of errors
        raise InputError(
            f"{path} is not an ONNX model that can be read ({first_line(error)}): give another."
        ) from None
    session = onnx_session(content, str(path))
    if [output.name for output in session.get_outputs()] == ["logits", "probabilities"]:
        raise InputError(
            f"{path} is a classifier, not an encoder: give the backbone that it was trained with."
        )
    return OnnxEncoder(content, None, str(path)), _preprocessing(
        path, picture_input(session, str(path))
    )


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
    """A session of onnxruntime on the CPU for a model, which may come from anywhere.

    Only this function imports onnxruntime, so that nothing is reported to anybody.
    """
    # Else it writes a device id into the user's cache folder and sends events over the network,
    # from the moment it is imported.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    with required_by(f"The network {name}", install=INSTALL):
        import onnx
        import onnxruntime

    onnxruntime.disable_telemetry_events()  # for Windows, which ignores the variable
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors arrive as exceptions
    if threads is not None:
        options.intra_op_num_threads = threads
    try:
        with tempfile.TemporaryDirectory() as empty:
            onnx.load_external_data_for_model(onnx.load_from_string(content), empty)
        return onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # onnx and onnxruntime raise many kinds of errors
        raise InputError(
            f"The network {name} cannot be run by onnxruntime ({first_line(error)}): export it "
            "again."
        ) from None


def picture_input(session: Any, name: str) -> Any:
    """The only input of a session, checked to be a batch of normalised square pictures."""
    inputs = session.get_inputs()
    for given in inputs[:1]:
        batch, channels, *sides = given.shape if len(given.shape) == 4 else (0, 0)
        fixed = {side for side in sides if isinstance(side, int)}
        free = not isinstance(batch, int) or batch == 1
        colours = not isinstance(channels, int) or channels == 3
        if given.type in FLOATS and free and colours and len(fixed) <= 1 == len(inputs):
            return given
    reads = ", ".join(f"{one.type} {one.shape}" for one in inputs)
    raise InputError(
        f"The network {name} reads {shown(reads)}: it must read floats of shape (batch, 3, side, "
        "side), with a dynamic batch."
    )


def features_output(session: Any) -> str:
    """The name of the output that holds the features."""
    names = [output.name for output in session.get_outputs()]
    return str(next((name for name in FEATURES if name in names), names[0]))


def _preprocessing(path: Path, given: Any) -> Preprocessing:
    """From the file beside the model, or else ImageNet's."""
    beside = path.with_name(f"{path.name}.json")
    fixed = next((length for length in given.shape[2:] if isinstance(length, int)), None)
    try:
        values = parse_json(beside.read_bytes()) if beside.is_file() else {}
        values = {"side": fixed or SIDE} | values if isinstance(values, dict) else values
        preprocessing = Preprocessing.from_record(values)
        if fixed not in (None, preprocessing.side):
            raise ValueError(f"the network reads pictures of {fixed} pixels")
    except (OSError, ValueError) as error:
        raise InputError(
            f"The preprocessing in {beside} cannot be used ({first_line(error)}): correct it."
        ) from None
    return preprocessing
