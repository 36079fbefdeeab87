"""Networks of `transformers`, from a folder or the hub; nothing is unpickled, no code is run."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from ltpll.backbones.image_processor import read_processor
from ltpll.backbones.preprocessing import Preprocessing
from ltpll.errors import InputError, first_line, required_by, shown
from ltpll.files import parse_json

KIND = "transformers"
INSTALL = "'ltpll[transformers]'"
WEIGHTS = "model*.safetensors"
NEEDED = ("config.json", "*processor_config.json", WEIGHTS)
CONNECT_SECONDS = 5.0
ANOTHER_MODEL = "download it again, or choose another"
# Values of a config that name code or downloads, or that say nothing about the encoder.
LEFT_OUT = """auto_map quantization_config use_pretrained_backbone custom_pipelines dtype
torch_dtype _name_or_path architectures transformers_version id2label label2id problem_type"""
MOST_PARAMETERS, MOST_LAYERS, LARGEST_NUMBER = 8_000_000_000, 1000, 10**9

Pooling = Literal["pooler", "first", "mean"]


class TransformersEncoder(nn.Module):
    """A picture model of `transformers` that returns one row of features per picture.

    They are the model's pooled output, the first token, which the head of a classifier reads, or
    the mean over all tokens or positions. With `reverse`, the model expects blue, green, red.
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
    """An encoder, its preprocessing and its architecture, from a folder or the hub."""
    folder = model_folder(source, NEEDED)
    with reading_model(f"The backbone {source}", ANOTHER_MODEL):
        config = read_config(folder)
        # Of a model for pictures and text, such as CLIP.
        config = getattr(config, "vision_config", None) or config
        preprocessing, reverse = read_processor(folder)
        model, missing = read_model(folder, config, "pixel_values")
        pooling = "first" if missing else _pooling(model, preprocessing.side)
        architecture = {"kind": KIND, "config": _plain(config.to_dict())}
    encoder = TransformersEncoder(model, pooling, reverse=reverse).eval()
    return encoder, preprocessing, architecture | {"pooling": pooling, "reverse": reverse}


def encoder_from_architecture(architecture: Mapping[str, Any]) -> TransformersEncoder:
    """The encoder that `load_pretrained` described, with weights that are not set."""
    pooling: Any = architecture.get("pooling")
    reverse: Any = architecture.get("reverse")
    with reading_model("The network of a saved backbone", "save it again") as transformers:
        if pooling not in get_args(Pooling) or not isinstance(reverse, bool):
            raise ValueError(f"its pooling is {shown(pooling)}, reversed {shown(reverse)}")
        config = _config(architecture.get("config"))
        # A few networks cannot be built without memory.
        with suppress(NotImplementedError, RuntimeError), torch.device("meta"):
            empty = transformers.AutoModel.from_config(config)
            _check_reads(empty, "pixel_values")
            if sum(weight.numel() for weight in empty.parameters()) > MOST_PARAMETERS:
                raise ValueError(f"it has more than {MOST_PARAMETERS:.3g} weights")
        model = transformers.AutoModel.from_config(config, dtype=torch.float32)
    return TransformersEncoder(model, pooling, reverse=reverse)


# ---- for pictures and for text -------------------------------------------------------------------


def model_folder(source: str | Path, needed: Sequence[str], optional: Sequence[str] = ()) -> Path:
    """The folder of a model: the source itself, the hub's local cache, or a download into it.

    It has the `needed` files, given as patterns; the `optional` ones are downloaded as well.
    """
    folder = Path(source)
    if folder.exists():
        absent = _absent(folder, needed)
        if absent is not None:
            raise InputError(
                f"{folder} has no {absent}: give the folder that `hf download` or `save_pretrained` "
                "made."
            )
        return folder
    name = str(source)
    with required_by(f"The backbone {name}", install=INSTALL):
        from huggingface_hub import HfApi, snapshot_download
        from huggingface_hub.errors import HFValidationError
    try:
        with suppress(OSError):  # it is not in the cache
            folder = Path(snapshot_download(name, local_files_only=True))
            if _absent(folder, needed) is None:
                return folder
        revision = HfApi().model_info(name, timeout=CONNECT_SECONDS).sha
        # Weights in several files have an index beside them.
        wanted = [*needed, *optional, f"{WEIGHTS}*"]
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=wanted))
        if (absent := _absent(folder, needed)) is not None:
            raise OSError(f"it has no {absent}")
        return folder
    except HFValidationError:
        raise InputError(
            f"There is no folder {name}: give an existing folder or the name of a model on the hub."
        ) from None
    except Exception as error:  # of the hub's client, the network or the disk
        raise InputError(
            f"The backbone {name} is neither a folder here nor in the cache of the hub, and cannot "
            f"be downloaded ({first_line(error)}): run hf download {name} --local-dir DIR on a "
            "machine with internet access, copy DIR here and give it as the backbone."
        ) from None


def _absent(folder: Path, needed: Sequence[str]) -> str | None:
    """What a folder lacks of a model."""
    return next((name for name in needed if not any(folder.glob(name))), None)


def package_folder(package: str, what: str, install: str) -> Path:
    """The folder of an installed package of weights, which is not imported."""
    with required_by(what, install=install):
        found = find_spec(package)
        if found is None or found.origin is None:
            raise ModuleNotFoundError(name=package)
    return Path(found.origin).parent


@contextmanager
def reading_model(what: str, advice: str, install: str = INSTALL) -> Iterator[Any]:
    """Import `transformers`, keep it silent, and turn all errors of the block into one sentence."""
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
    except Exception as error:  # transformers raises many kinds of errors
        raise InputError(f"{what} cannot be used ({first_line(error)}): {advice}.") from None
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()


def read_config(folder: Path) -> Any:
    """The config object of a folder; what is wrong with it raises many kinds of errors."""
    return _config(parse_json((folder / "config.json").read_bytes()))


def read_model(folder: Path, config: Any, reads: str) -> tuple[Any, set[str]]:
    """A model with its weights, and the names of weights that are missing and therefore random."""
    import transformers

    model, report = transformers.AutoModel.from_pretrained(
        folder,
        config=config,
        dtype=torch.float32,
        local_files_only=True,
        trust_remote_code=False,
        use_safetensors=True,
        ignore_mismatched_sizes=True,  # reported below
        output_loading_info=True,
    )
    missing = {*report["missing_keys"], *(name for name, *_ in report["mismatched_keys"])}
    lacking = sorted(name for name in missing if not name.startswith("pooler."))
    if lacking:
        raise ValueError(
            f"its weights do not fit its config.json: {lacking[0]} is missing or has another shape"
        )
    _check_reads(model, reads)
    return model.eval(), missing


def _check_reads(model: nn.Module, reads: str) -> None:
    if getattr(model, "main_input_name", None) != reads:
        raise ValueError(f"it does not read {reads}")


def _config(values: Any) -> Any:
    """The config object of these values; what is wrong with them is a ValueError."""
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
    """A config as JSON values, without what names code or files or says nothing of the encoder."""
    return {
        name: _plain(value) if isinstance(value, Mapping) else value
        for name, value in values.items()
        if name not in LEFT_OUT.split() and not str(name).endswith("implementation")
    }


def _check_numbers(values: Any, key: str = "") -> None:
    """Refuse numbers that would build a network for hours."""
    most = MOST_LAYERS if "layer" in key or "depth" in key else LARGEST_NUMBER
    if isinstance(values, Mapping):
        for name, value in values.items():
            _check_numbers(value, str(name))
    elif isinstance(values, list):
        if len(values) > 100 * MOST_LAYERS:
            raise ValueError(f"{shown(key)} is too long")
        for value in values:
            _check_numbers(value, key)
    elif isinstance(values, int | float) and not abs(values) <= most:  # also NaN
        raise ValueError(f"{shown(key)} is {shown(values)}, which is too large")


def _pooling(model: nn.Module, side: int) -> Pooling:
    """How a model's output becomes features."""
    with torch.no_grad():
        outputs = model(pixel_values=torch.zeros(1, 3, side, side))
    if getattr(outputs, "pooler_output", None) is not None:
        return "pooler"
    if isinstance(getattr(outputs, "last_hidden_state", None), Tensor):
        return "mean"
    raise ValueError("it returns no features")
