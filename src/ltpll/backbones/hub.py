"""Networks of `transformers`: encoders from a folder or from the Hugging Face hub; nothing is unpickled and no remote code is run."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
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
SAFE, PICKLE = "model.safetensors", "pytorch_model.bin"
WEIGHTS = (SAFE, f"{SAFE}.index.json", PICKLE, f"{PICKLE}.index.json")
CONNECT_SECONDS = 5.0
# Values of a config that name code to run or files to download, or that say nothing about the encoder.
LEFT_OUT = {
    "auto_map",
    "quantization_config",
    "use_pretrained_backbone",
    "custom_pipelines",
    "dtype",
    "torch_dtype",
    "_name_or_path",
}
LEFT_OUT |= {"architectures", "transformers_version", "id2label", "label2id", "problem_type"}
# Tables that old files store and that new versions compute.
COMPUTED = ("position_ids", "relative_position_index", "num_batches_tracked", "attn_mask")
MOST_PARAMETERS, MOST_LAYERS, LARGEST_NUMBER = 8_000_000_000, 1000, 10**9

Pooling = Literal["pooler", "first", "mean"]


class TransformersEncoder(nn.Module):
    """A picture model of `transformers` that returns one row of features per picture.

    Args:
        model: The model.
        pooling: "pooler" uses the model's pooled output; "first" the first token, which the head of a classifier reads; "mean" the mean
            over all tokens or positions.
        reverse: Whether the model expects blue, green, red.
    """

    def __init__(
        self, model: nn.Module, pooling: Pooling = "pooler", *, reverse: bool = False
    ) -> None:
        super().__init__()
        self.model, self.pooling, self.reverse = model, pooling, reverse

    def forward(self, pictures: Tensor) -> Tensor:
        outputs = self.model(pixel_values=pictures.flip(1) if self.reverse else pictures)
        if self.pooling == "pooler":
            pooled: Tensor = outputs.pooler_output
            return pooled.flatten(1)
        hidden: Tensor = outputs.last_hidden_state
        if self.pooling == "first":
            return hidden[:, 0]
        return hidden.mean(1) if hidden.ndim == 3 else hidden.flatten(2).mean(2)


# ---- loading --------------------------------------------------------------------------------------------------------


def pretrained(source: str | Path) -> tuple[TransformersEncoder, Preprocessing, dict[str, Any]]:
    """Load an encoder, its preprocessing and its architecture.

    Args:
        source: A folder with config.json, preprocessor_config.json and weights, or the name of a model on the hub.

    Raises:
        InputError: If there is no such model, it cannot be read, or it is not an encoder of pictures.
    """
    folder = Path(source)
    if not folder.is_dir():
        if folder.exists():
            raise InputError(
                f"The backbone {source} is a file: give the folder with its config.json and weights, or an .onnx file."
            )
        folder = downloaded(str(source))
    values, weights = _config_values(folder), _weight_files(folder)
    with _imported(f"The backbone {source}") as transformers:
        config = _config(values, folder.name)
        config = (
            getattr(config, "vision_config", None) or config
        )  # of a model for pictures and text, such as CLIP
        _check_reads_pictures(config, folder.name)
        preprocessing, reverse = read_processor(folder)
        try:
            model, report = transformers.AutoModel.from_pretrained(
                folder,
                config=config,
                dtype=torch.float32,
                local_files_only=True,
                trust_remote_code=False,
                weights_only=True,
                use_safetensors=weights[0].suffix == ".safetensors",
                output_loading_info=True,
            )
        except Exception as error:  # transformers raises many kinds of errors
            raise InputError(
                f"The weights in {folder} do not fit its config.json ({first_line(error)}): download both again."
            ) from None
        without_pooler = _check_complete(model, report, folder)
        with torch.no_grad():
            pooling = (
                "first" if without_pooler else _pooling(model, preprocessing.side, folder.name)
            )
    encoder = _encoder(model, pooling, reverse)
    architecture = {
        "kind": KIND,
        "config": _plain(config.to_dict()),
        "pooling": pooling,
        "reverse": reverse,
    }
    return encoder.eval(), preprocessing, architecture


def from_architecture(architecture: Mapping[str, Any]) -> TransformersEncoder:
    """The encoder that `pretrained` described, with weights that are not set.

    Raises:
        InputError: If the description, which may come from anywhere, is not one of an encoder of pictures.
    """
    values, reverse = architecture.get("config"), architecture.get("reverse")
    pooling: Any = architecture.get("pooling")
    if (
        not isinstance(values, Mapping)
        or pooling not in get_args(Pooling)
        or not isinstance(reverse, bool)
    ):
        raise InputError(
            f"The architecture {shown(dict(architecture))} of a saved backbone is damaged: save it again."
        )
    with _imported("A saved backbone") as transformers:
        config = _config(values, "a saved backbone")
        _check_reads_pictures(config, "a saved backbone")
        try:
            with (
                suppress(NotImplementedError, RuntimeError),
                torch.device("meta"),
            ):  # a few networks cannot be built without memory
                n_parameters = sum(
                    weight.numel()
                    for weight in transformers.AutoModel.from_config(config).parameters()
                )
                if n_parameters > MOST_PARAMETERS:
                    raise InputError(
                        f"A saved backbone has {n_parameters:.3g} weights, more than {MOST_PARAMETERS:.3g}: it is damaged."
                    )
            model = transformers.AutoModel.from_config(config, dtype=torch.float32)
        except InputError:
            raise
        except Exception as error:  # whatever a config from a file makes a network raise
            raise InputError(
                f"The network of a saved backbone cannot be built ({first_line(error)}): save it again."
            ) from None
    return _encoder(model, pooling, reverse)


def downloaded(name: str) -> Path:
    """The folder of a model of the hub: in the local cache, or downloaded into it.

    Raises:
        InputError: If it is in neither place, or the hub does not answer within seconds.
    """
    with required_by(f"The backbone {name}", install=INSTALL):
        from huggingface_hub import HfApi, snapshot_download
        from huggingface_hub.errors import HFValidationError
    try:
        folder = Path(snapshot_download(name, local_files_only=True))
        if all(
            any((folder / name).is_file() for name in names)
            for names in (["config.json"], PROCESSOR_FILES, WEIGHTS)
        ):
            return folder
    except HFValidationError:
        raise InputError(
            f"There is no folder {name}: give an existing folder, an .onnx file or the name of a model on the hub."
        ) from None
    except OSError:
        pass  # it is not in the cache
    try:
        with _quiet_downloads():
            files = {
                file.rfilename
                for file in HfApi().model_info(name, timeout=CONNECT_SECONDS).siblings or []
            }
            safe = bool(files & set(WEIGHTS[:2]))
            wanted = [
                "config.json",
                *PROCESSOR_FILES,
                *(WEIGHTS[:2] if safe else WEIGHTS[2:]),
                "model-*.safetensors" if safe else "pytorch_model-*.bin",
            ]
            return Path(
                snapshot_download(name, allow_patterns=wanted, etag_timeout=CONNECT_SECONDS)
            )
    except Exception as error:  # of the hub's client, the network or the disk
        raise InputError(
            f"The backbone {name} is neither a folder here nor in the cache of the hub, and cannot be downloaded ({first_line(error)}): "
            f"run hf download {name} --local-dir DIR on a machine with internet access, copy DIR here and give it as the backbone."
        ) from None


@contextmanager
def _quiet_downloads() -> Iterator[None]:
    from huggingface_hub.utils.tqdm import (
        are_progress_bars_disabled,
        disable_progress_bars,
        enable_progress_bars,
    )

    shown_before = not are_progress_bars_disabled()
    disable_progress_bars()
    try:
        yield
    finally:
        if shown_before:
            enable_progress_bars()


@contextmanager
def _imported(what: str) -> Iterator[Any]:
    """Import `transformers`, without its log messages, warnings and progress bars while the block runs."""
    with required_by(what, install=INSTALL):
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


# ---- configs --------------------------------------------------------------------------------------------------------


def _config_values(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.is_file():
        raise InputError(
            f"The folder {folder} has no config.json: give a folder that `hf download` or `save_pretrained` made."
        )
    try:
        values = parse_json(path.read_bytes())
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} cannot be read ({first_line(error)}): download it again."
        ) from None
    if not isinstance(values, dict):
        raise InputError(f"{path} does not describe a model: download it again.")
    return values


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """A config without what names code or files, or says nothing about the encoder, in all of its parts."""
    kept = {
        name: value
        for name, value in values.items()
        if name not in LEFT_OUT and not str(name).endswith("implementation")
    }
    return {
        name: _plain(value) if isinstance(value, Mapping) else value for name, value in kept.items()
    }


def _config(values: Mapping[str, Any], name: str) -> Any:
    """The config object of these values."""
    from transformers import CONFIG_MAPPING, __version__

    _check_numbers(values, name)
    kind = values.get("model_type")
    if not isinstance(kind, str) or kind not in CONFIG_MAPPING or kind.startswith("timm"):
        raise InputError(
            f"The config of {name} has the model_type {shown(kind)}, which transformers {__version__} cannot build: "
            "choose another model or a newer transformers."
        )
    try:
        config = CONFIG_MAPPING[kind].from_dict(_plain(values))
    except Exception as error:  # transformers raises many kinds of errors
        raise InputError(
            f"The config of {name} is not that of a {kind} model ({first_line(error)}): download it again."
        ) from None
    if hasattr(config, "mask_ratio"):
        config.mask_ratio = 0.0  # masked autoencoders hide most of a picture at random
    return config


def _check_numbers(values: Any, name: str, key: str = "", depth: int = 0) -> None:
    """Refuse numbers that would build a network for hours."""
    most = MOST_LAYERS if "layer" in key or "depth" in key else LARGEST_NUMBER
    if isinstance(values, Mapping | list):
        inside = (
            values.items() if isinstance(values, Mapping) else ((key, value) for value in values)
        )
        if len(values) > 100 * MOST_LAYERS or depth > 20:
            raise InputError(f"The config of {name} is too long: download it again.")
        for part, value in inside:
            _check_numbers(value, name, str(part), depth + 1)
    elif isinstance(values, int | float) and not abs(values) <= most:  # also NaN
        raise InputError(
            f"The config of {name} has {shown(key)}: {shown(values)}, which is too large: download it again."
        )


def _check_reads_pictures(config: Any, name: str) -> None:
    from transformers import MODEL_MAPPING

    found = MODEL_MAPPING.get(type(config), None)
    models = found if isinstance(found, tuple) else (found,)
    if not any(getattr(model, "main_input_name", None) == "pixel_values" for model in models):
        raise InputError(
            f"The model {name} ({config.model_type}) does not read pictures: choose an image model, such as facebook/dinov2-small."
        )


# ---- weights --------------------------------------------------------------------------------------------------------


def _weight_files(folder: Path) -> list[Path]:
    """The files of weights, checked to be readable without unpickling."""
    first = next((folder / name for name in WEIGHTS if (folder / name).is_file()), None)
    if first is None:
        raise InputError(
            f"The folder {folder} has no weights: it needs one of {', '.join(WEIGHTS)}."
        )
    files = _shards(first) if first.suffix == ".json" else [first]
    for file in files:
        try:
            if file.suffix == ".safetensors":
                from safetensors import safe_open

                with safe_open(file, "pt") as tensors:
                    tensors.keys()
            else:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # about pickles
                    torch.load(file, map_location="meta", weights_only=True)
        except (
            Exception
        ) as error:  # torch and safetensors raise many kinds of errors for damaged files
            if file.suffix == ".safetensors":
                raise InputError(
                    f"{file} is damaged ({first_line(error)}): download it again."
                ) from None
            raise InputError(
                f"{file} is damaged, or a pickle that could run code when it is read: give {SAFE} instead, "
                "which model.save_pretrained(DIR) writes where the file is trusted."
            ) from None
    return files


def _shards(index: Path) -> list[Path]:
    """The files that an index of weights names."""
    try:
        names = sorted(set(parse_json(index.read_bytes())["weight_map"].values()))
        suffix = ".safetensors" if index.name.startswith(SAFE) else ".bin"
        files = [
            index.parent / name
            for name in names
            if Path(name).name == name and name.endswith(suffix)
        ]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{index} cannot be read ({first_line(error)}): download it again."
        ) from None
    missing = sorted(set(names) - {file.name for file in files if file.is_file()})
    if missing or not files:
        raise InputError(
            f"{index} names files of weights that are not in its folder, such as {shown((missing or [''])[0])}: add them."
        )
    return files


def _check_complete(model: nn.Module, report: Mapping[str, Any], folder: Path) -> bool:
    """Refuse weights that `transformers` would leave random, or out; returns whether only those of the pooler are missing."""
    missing = sorted(map(str, report["missing_keys"]))
    if missing and not all(name.startswith("pooler.") for name in missing):
        raise InputError(
            f"The weights in {folder} do not fit its config.json: {len(missing)} tensors of the encoder are missing, such as "
            f"{missing[0]}; download both again."
        )
    own = {name for name, _ in model.named_children()}
    prefix = f"{getattr(model, 'base_model_prefix', '')}."
    left_out = [
        name for name in sorted(map(str, report["unexpected_keys"])) if not name.endswith(COMPUTED)
    ]
    left_out = [name for name in left_out if name.removeprefix(prefix).partition(".")[0] in own]
    if left_out:
        raise InputError(
            f"The weights in {folder} do not fit its config.json, which has no place for {len(left_out)} tensors of the encoder, such as "
            f"{left_out[0]}; download both again."
        )
    return bool(missing)


def _encoder(model: nn.Module, pooling: Pooling, reverse: bool) -> TransformersEncoder:
    if pooling == "first" and hasattr(model, "pooler"):
        model.register_module("pooler", None)  # the weights of a classifier do not include it
    return TransformersEncoder(model, pooling, reverse=reverse)


def _pooling(model: nn.Module, side: int, name: str) -> Pooling:
    """Whether the model has a pooled output."""
    try:
        outputs = model.eval()(pixel_values=torch.zeros(1, 3, side, side))
    except Exception as error:  # whatever a network raises
        raise InputError(
            f"The model {name} fails on a picture of {side} × {side} pixels ({first_line(error)}): choose another."
        ) from None
    if getattr(outputs, "pooler_output", None) is not None:
        return "pooler"
    if isinstance(getattr(outputs, "last_hidden_state", None), Tensor):
        return "mean"
    raise InputError(
        f"The model {name} returns no features: choose an image model, such as facebook/dinov2-small."
    )
