"""Networks of `transformers`, from a folder or the hub; nothing is unpickled, no code is run."""

from __future__ import annotations

import fnmatch
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from ltpll.backbones.image_processor import FILES as PROCESSOR_FILES
from ltpll.backbones.image_processor import read_processor
from ltpll.backbones.preprocessing import Preprocessing
from ltpll.errors import InputError, first_line, required_by, shown
from ltpll.files import parse_json

KIND = "transformers"
INSTALL = "'ltpll[transformers]'"
Files = Sequence[Sequence[str]]
NEEDED: Files = (
    ("config.json",),
    PROCESSOR_FILES,
    ("model*.safetensors", "pytorch_model*.bin"),
)
CONNECT_SECONDS = 5.0
# Values of a config that name code or downloads, or that say nothing about the encoder.
LEFT_OUT = """auto_map quantization_config use_pretrained_backbone custom_pipelines dtype
torch_dtype _name_or_path architectures transformers_version id2label label2id problem_type"""
MOST_PARAMETERS, MOST_LAYERS, LARGEST_NUMBER = 8_000_000_000, 1000, 10**9

Pooling = Literal["pooler", "first", "mean"]


class TransformersEncoder(nn.Module):
    """A picture model of `transformers` that returns one row of features per picture.

    Args:
        model: The model.
        pooling: "pooler" uses the model's pooled output; "first" the first token, which the head of
            a classifier reads; "mean" the mean over all tokens or positions.
        reverse: Whether the model expects blue, green, red.
    """

    def __init__(
        self, model: nn.Module, pooling: Pooling = "pooler", *, reverse: bool = False
    ) -> None:
        super().__init__()
        self.model, self.pooling, self.reverse = model, pooling, reverse
        if pooling == "first" and hasattr(model, "pooler"):
            model.register_module("pooler", None)  # a classifier's weights do not include it

    def forward(self, pictures: Tensor) -> Tensor:
        outputs = self.model(pixel_values=pictures.flip(1) if self.reverse else pictures)
        if self.pooling == "pooler":
            pooled: Tensor = outputs.pooler_output
            return pooled.flatten(1)
        hidden: Tensor = outputs.last_hidden_state
        if self.pooling == "first":
            return hidden[:, 0]
        return hidden.mean(1) if hidden.ndim == 3 else hidden.flatten(2).mean(2)


def load_pretrained(
    source: str | Path,
) -> tuple[TransformersEncoder, Preprocessing, dict[str, Any]]:
    """Load an encoder, its preprocessing and its architecture.

    Args:
        source: A folder with config.json, preprocessor_config.json and weights, or the name of a
            model on the hub.

    Raises:
        InputError: If there is no such model, or it is not an encoder of pictures.
    """
    folder = model_folder(source, NEEDED)
    with reading_model(f"The backbone {source}", folder):
        config = read_config(folder)
        # Of a model for pictures and text, such as CLIP.
        config = getattr(config, "vision_config", None) or config
        preprocessing, reverse = read_processor(folder)
        model, missing = read_weights(folder, config)
        pooling = "first" if missing else _pooling(model, preprocessing.side)
    encoder = TransformersEncoder(model, pooling, reverse=reverse)
    architecture = {"kind": KIND, "config": plain_config(config)}
    return encoder.eval(), preprocessing, architecture | {"pooling": pooling, "reverse": reverse}


def encoder_from_architecture(architecture: Mapping[str, Any]) -> TransformersEncoder:
    """The encoder that `load_pretrained` described, with weights that are not set.

    Raises:
        InputError: If the description, which may come from anywhere, is not that of an encoder.
    """
    pooling: Any = architecture.get("pooling")
    reverse = architecture.get("reverse")
    if pooling not in get_args(Pooling) or not isinstance(reverse, bool):
        raise InputError(
            f"The pooling of a saved backbone is {shown(pooling)}, reversed {shown(reverse)}: save "
            "it again."
        )
    model = model_from_config(architecture.get("config"), "pixel_values")
    return TransformersEncoder(model, pooling, reverse=reverse)


# ---- for pictures and for text -------------------------------------------------------------------


def model_folder(source: str | Path, needed: Files, optional: Sequence[str] = ()) -> Path:
    """The folder of a model: the source itself, or where the hub's model of this name is stored.

    Args:
        source: A folder, or the name of a model on the hub.
        needed: The files of a model, each as the names that it may have; the weights come last.
        optional: The names of files that are downloaded if they are there.

    Raises:
        InputError: If there is no such model, or it lacks a file.
    """
    folder = Path(source)
    if folder.is_file():
        raise InputError(
            f"The backbone {source} is a file: give the folder with its config.json and weights, "
            "or an .onnx file."
        )
    if not folder.is_dir():
        folder = download_model(str(source), needed, optional)
    absent = _absent(folder, needed)
    if absent is not None:
        raise InputError(
            f"The folder {folder} has no {absent}: give a folder that `hf download` or "
            "`save_pretrained` made."
        )
    return folder


@contextmanager
def reading_model(what: str, folder: Path, install: str = INSTALL) -> Iterator[None]:
    """Import `transformers`, and turn all errors of the block into one sentence.

    Raises:
        InputError: If the block fails.
    """
    with _imported(what, install):
        try:
            yield
        except UnpicklingError:
            raise InputError(
                f"The weights in {folder} are a pickle that could run code when it is read: choose "
                "a model with safetensors."
            ) from None
        except Exception as error:  # transformers raises many kinds of errors
            raise InputError(
                f"The model in {folder} cannot be used ({first_line(error)}): download it again, "
                "or choose another."
            ) from None


def read_config(folder: Path) -> Any:
    """The config object of a folder; what is wrong with it raises many kinds of errors."""
    return _config(parse_json((folder / "config.json").read_bytes()))


def read_weights(folder: Path, config: Any, **how: Any) -> tuple[Any, set[str]]:
    """A model with its weights, and the names of weights that are missing and therefore random.

    Raises:
        ValueError: Weights other than those of the pooler are missing. Damaged files raise other
            errors.
    """
    import transformers

    model, report = transformers.AutoModel.from_pretrained(
        folder,
        config=config,
        dtype=torch.float32,
        local_files_only=True,
        trust_remote_code=False,
        weights_only=True,
        ignore_mismatched_sizes=True,  # reported below
        output_loading_info=True,
        **how,
    )
    missing = {*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])}
    lacking = sorted(name for name in missing if not name.startswith("pooler."))
    if lacking:
        raise ValueError(
            f"its weights do not fit its config.json: {lacking[0]} is missing or has another shape"
        )
    return model.eval(), missing


def plain_config(config: Any) -> dict[str, Any]:
    """A config as JSON values, without what names code or files."""
    return _plain(config.to_dict())


def model_from_config(values: Any, reads: str, install: str = INSTALL) -> Any:
    """A model with weights that are not set.

    Args:
        values: Its config, which may come from anywhere.
        reads: The input that it must read.
        install: What to install without `transformers`.

    Raises:
        InputError: If there is no such model.
    """
    with _imported("A saved backbone", install) as transformers:
        try:
            config = _config(values)
            # A few networks cannot be built without memory.
            with suppress(NotImplementedError, RuntimeError), torch.device("meta"):
                check_reads(empty := transformers.AutoModel.from_config(config), reads)
                if sum(weight.numel() for weight in empty.parameters()) > MOST_PARAMETERS:
                    raise ValueError(f"it has more than {MOST_PARAMETERS:.3g} weights")
            return transformers.AutoModel.from_config(config, dtype=torch.float32)
        except Exception as error:  # whatever a config from a file makes a network raise
            raise InputError(
                f"The network of a saved backbone cannot be built ({first_line(error)}): save it "
                "again."
            ) from None


def download_model(name: str, needed: Files, optional: Sequence[str]) -> Path:
    """The folder of a model of the hub: in the local cache, or downloaded into it.

    Raises:
        InputError: If it is in neither place, or the hub does not answer within seconds.
    """
    with required_by(f"The backbone {name}", install=INSTALL):
        from huggingface_hub import HfApi, snapshot_download
        from huggingface_hub.errors import HFValidationError
    try:
        with suppress(OSError):  # it is not in the cache
            folder = Path(snapshot_download(name, local_files_only=True))
            if _absent(folder, needed) is None:
                return folder
        found = HfApi().model_info(name, timeout=CONNECT_SECONDS)
        names = [file.rfilename for file in found.siblings or []]
        *others, weights = needed
        best = next((one for one in weights if fnmatch.filter(names, one)), weights[0])
        # Weights in several files have an index beside them.
        wanted = [*chain(*others), f"{best}*", *optional]
        return Path(snapshot_download(name, revision=found.sha, allow_patterns=wanted))
    except HFValidationError:
        raise InputError(
            f"There is no folder {name}: give an existing folder, an .onnx file or the name of a "
            "model on the hub."
        ) from None
    except Exception as error:  # of the hub's client, the network or the disk
        raise InputError(
            f"The backbone {name} is neither a folder here nor in the cache of the hub, and cannot "
            f"be downloaded ({first_line(error)}): run hf download {name} --local-dir DIR on a "
            "machine with internet access, copy DIR here and give it as the backbone."
        ) from None


def _absent(folder: Path, needed: Files) -> str | None:
    """What a folder lacks of a model."""
    for names in needed:
        if not any(any(folder.glob(name)) for name in names):
            return " or ".join(names)
    return None


@contextmanager
def _imported(what: str, install: str) -> Iterator[Any]:
    """Import `transformers`, which writes nothing to the terminal while the block runs."""
    with required_by(what, install=install):
        import transformers
        from transformers.utils import logging
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(logging.CRITICAL)
    logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield transformers
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


# ---- configs: what is wrong with them is a ValueError --------------------------------------------


def _config(values: Any) -> Any:
    """The config object of these values."""
    from transformers import CONFIG_MAPPING, __version__

    _check_numbers(values)
    kind = values.get("model_type") if isinstance(values, Mapping) else None
    if not isinstance(kind, str) or kind not in CONFIG_MAPPING or kind.startswith("timm"):
        raise ValueError(f"transformers {__version__} cannot build the model_type {shown(kind)}")
    config = CONFIG_MAPPING[kind].from_dict(_plain(values))
    if hasattr(config, "mask_ratio"):
        config.mask_ratio = 0.0  # masked autoencoders hide most of a picture at random
    return config


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """A config without what names code or files, or says nothing about the encoder."""
    return {
        name: _plain(value) if isinstance(value, Mapping) else value
        for name, value in values.items()
        if name not in LEFT_OUT.split() and not str(name).endswith("implementation")
    }


def _check_numbers(values: Any, key: str = "") -> None:
    """Refuse numbers that would build a network for hours."""
    most = MOST_LAYERS if "layer" in key or "depth" in key else LARGEST_NUMBER
    if isinstance(values, Mapping | list):
        if len(values) > 100 * MOST_LAYERS:
            raise ValueError(f"{shown(key)} is too long")
        names = values.keys() if isinstance(values, Mapping) else [key] * len(values)
        parts = values.values() if isinstance(values, Mapping) else values
        for name, value in zip(names, parts, strict=True):
            _check_numbers(value, str(name))
    elif isinstance(values, int | float) and not abs(values) <= most:  # also NaN
        raise ValueError(f"{shown(key)} is {shown(values)}, which is too large")


def check_reads(model: nn.Module, reads: str) -> None:
    """Refuse a model whose input is something else."""
    if getattr(model, "main_input_name", None) != reads:
        what = {"pixel_values": "pictures", "input_ids": "text"}[reads]
        raise ValueError(f"it does not read {what}")


def _pooling(model: nn.Module, side: int) -> Pooling:
    """How a model's output becomes features."""
    check_reads(model, "pixel_values")
    with torch.no_grad():
        outputs = model(pixel_values=torch.zeros(1, 3, side, side))
    if getattr(outputs, "pooler_output", None) is not None:
        return "pooler"
    if isinstance(getattr(outputs, "last_hidden_state", None), Tensor):
        return "mean"
    raise ValueError("it returns no features")
