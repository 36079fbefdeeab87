"""The scikit-learn face: `PartialLabelClassifier`, an estimator that is fitted to candidate sets."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted, check_random_state, validate_data
from torch import Tensor, nn

from ltpll.candidates import Candidates
from ltpll.candidates.labels import read_labels
from ltpll.errors import InputError, first_line
from ltpll.evaluation.scorers import covering_rate
from ltpll.extras import EXTRAS
from ltpll.inference.forward import ForwardPass
from ltpll.inference.predictor import Predictor
from ltpll.interfaces import Extra, Method, Rebalancer, linear_head
from ltpll.methods import METHODS
from ltpll.models import build_model
from ltpll.rebalancers import REBALANCERS
from ltpll.targets import Transduced, transduce
from ltpll.training.callbacks import OnEpoch
from ltpll.training.checkpoint import check_fits, read_checkpoint, under_prefix, with_prefix, write_checkpoint
from ltpll.training.distributed import World
from ltpll.training.trainer import PartialLabelTrainer
from ltpll.validation import as_inputs, at_least, chosen_device, rows_at_once
from ltpll.views import ImageViews, ViewSource
from ltpll.views.features import FeatureViews

FEW_PIXELS = 32 * 32  # up to which a small network does
IMAGE_MODELS = ("small-cnn", "resnet18")


class Schedule(NamedTuple):
    """How long a training is."""

    epochs: int
    batch_size: int


class Fitting(NamedTuple):
    """A training that has not begun, and what to give to its `fit`."""

    trainer: PartialLabelTrainer
    x: Tensor
    candidates: Candidates


class PartialLabelClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Learns from examples that carry a set of candidate labels each, one of them true.

    `fit(X, y)` takes features (2-D, a DataFrame) or images (4-D: bytes with 1 or 3 channels first or last, or any numbers), and for `y` a
    0/1 matrix, a list of sets, a pandas Series of strings such as `cat|dog`, `Candidates`, or one plain label a row.

    `method`, `rebalancer` and `extras` are names (`ltpll list`), `options` their settings by name: {"corr": {"form": "original"}}.
    `model` is "auto" (a perceptron for features, a convolutional network for images), a name from `ltpll.MODELS`, a network whose last
    linear layer is `.head`, or a function of the shape of one example and the number of classes that builds one.
    "auto" for `epochs` and `batch_size` chooses by the number of rows: about `steps` steps in all.
    `on_nan` is "stop", or "skip": batches whose numbers are not finite are dropped.
    `threads` is how many `fit` uses on a CPU; "auto" measures whether one or all of them are faster, and obeys OMP_NUM_THREADS.

    After `fit`: `classes_`, `class_prior_` (how frequent each class seems to be), `model_`, `history_`, `n_features_in_`.
    """

    def __init__(
        self,
        method: str = "corr",
        rebalancer: str = "records",
        extras: Sequence[str] = (),
        *,
        options: Mapping[str, Mapping[str, Any]] | None = None,
        model: str | nn.Module | Callable[[tuple[int, ...], int], nn.Module] = "auto",
        views: ViewSource | str = "auto",
        epochs: int | str = "auto",
        steps: int = 2000,
        batch_size: int | str = "auto",
        lr: float = 0.05,
        weight_decay: float = 1e-3,
        random_state: Any = 0,
        device: str = "auto",
        precision: str = "float32",
        on_nan: str = "stop",
        threads: int | str = "auto",
        on_epoch: Callable[[dict[str, Any]], None] | None = None,
    ) -> None:
        self.method = method
        self.rebalancer = rebalancer
        self.extras = extras
        self.options = options
        self.model = model
        self.views = views
        self.epochs = epochs
        self.steps = steps
        self.batch_size = batch_size
        self.lr = lr
        self.weight_decay = weight_decay
        self.random_state = random_state
        self.device = device
        self.precision = precision
        self.on_nan = on_nan
        self.threads = threads
        self.on_epoch = on_epoch

    # ---- fitting --------------------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, **unsupported: Any) -> Self:
        """Train on examples and their candidate sets."""
        if unsupported:
            name = next(iter(unsupported))
            raise InputError(f"fit takes no {name}: every row counts the same here; repeat rows, or leave {name} out.")
        trainer, x, candidates = self.begin(X, y)
        return self.finish(trainer.fit(x, candidates, [OnEpoch(self.on_epoch)] if self.on_epoch else []))

    def begin(self, X: Any, y: Any, world: World | None = None) -> Fitting:
        """The training that `fit` would carry out, for those who want to watch it, keep checkpoints or stop; hand it to `finish`.

        With a `world` of several processes, all of them call this with the same data and train together.
        """
        x = self._inputs(X, reset=True)
        if y is None:
            raise InputError("This classifier requires y to be passed, but the target y is None: give the candidate sets.")
        given = read_labels(y)
        self.classes_ = given.classes
        return Fitting(self._trainer(x, given.candidates, world or World()), x, given.candidates)

    def _trainer(self, x: Tensor, candidates: Candidates, world: World) -> PartialLabelTrainer:
        seed = (
            int(check_random_state(self.random_state).randint(2**31 - 1)) if not isinstance(self.random_state, int) else self.random_state
        )
        seed = world.agreed(seed)
        n = len(x)
        epochs, batch_size = self.schedule(n)
        self.input_shape_ = tuple(x.shape[1:])
        model = self._model(self.input_shape_, candidates.n_classes, seed)
        return PartialLabelTrainer(
            model,
            *self._parts(model, candidates.n_classes),
            views=self._views(x),
            epochs=epochs,
            batch_size=batch_size,
            lr=self.lr,
            weight_decay=self.weight_decay,
            drop_last=0 < n % batch_size < world.size or (n >= 2 * batch_size and n % batch_size < batch_size // 2),
            seed=seed,
            device=self.device,
            precision=self.precision,  # type: ignore[arg-type]
            chunk=rows_at_once(x) if x.ndim == 2 else 4096,
            on_nan=self.on_nan,  # type: ignore[arg-type]
            threads=self.threads,  # type: ignore[arg-type]
            world=world,
        )

    def _parts(self, model: nn.Module, n_classes: int) -> tuple[Method, Rebalancer, list[Extra]]:
        options = dict(self.options or {})
        for name in options:
            if name not in (self.method, self.rebalancer, *self.extras):
                raise InputError(f"There are options for {name!r}, which is neither the method, the rebalancer nor an extra here.")
        context = {"n_features": linear_head(model).in_features, "n_classes": n_classes}
        return (
            METHODS.create(self.method, **options.get(self.method, {})),
            REBALANCERS.create(self.rebalancer, context, **options.get(self.rebalancer, {})),
            [EXTRAS.create(name, **options.get(name, {})) for name in self.extras],
        )

    def schedule(self, n: int) -> Schedule:
        """How long `fit` trains on n rows, and how many of them are in a batch."""
        # A step for every thirty-second part of few rows; of many, batches that keep the processor busy.
        chosen = min(max(2 ** round(math.log2(max(n / 32, 1))), 16), 512)
        batch_size = chosen if self.batch_size == "auto" else at_least(self.batch_size, 1, "batch_size")
        epochs = min(max(math.ceil(self.steps * batch_size / n), 10), 500) if self.epochs == "auto" else self.epochs
        return Schedule(at_least(epochs, 1, "epochs"), batch_size)

    def _model(self, shape: tuple[int, ...], n_classes: int, seed: int) -> nn.Module:
        if isinstance(self.model, nn.Module):
            return deepcopy(self.model)
        if not isinstance(self.model, str):
            return self.model(shape, n_classes)
        name = self.model
        if name == "auto":
            name = "mlp" if len(shape) == 1 else "small-cnn" if shape[1] * shape[2] <= FEW_PIXELS else "resnet18"
        if name in IMAGE_MODELS and len(shape) == 1:
            raise InputError(f"The model {name!r} is for images, and each example has {shape[0]} features: choose 'mlp' or 'auto'.")
        inputs = {"n_inputs": math.prod(shape)} if name == "mlp" else {"n_channels": shape[0]}
        return build_model(name, seed, n_classes=n_classes, **inputs)

    def _views(self, x: Tensor) -> ViewSource:
        if not isinstance(self.views, str):
            return self.views
        if x.dtype != torch.uint8:
            if self.views != "auto":
                raise InputError(f"The view policy {self.views!r} is for images of bytes: choose 'auto' for other numbers.")
            return FeatureViews.of(x)
        mean, std = _channel_figures(x)
        return ImageViews("flip-crop" if self.views == "auto" else self.views, mean, std)

    def finish(self, trainer: PartialLabelTrainer) -> Self:
        """Take over what a training that `begin` gave has learned."""
        self.model_ = trainer.model
        self.history_ = trainer.history
        self.n_iter_ = trainer.epoch
        self.device_ = str(trainer.device)
        # An eager one: the trainer's own network may be a CUDA graph.
        forward_pass = ForwardPass(trainer.model, trainer.device, self.precision)
        self._predictor = Predictor(forward_pass, trainer.method, trainer.rebalancer, trainer.views)
        prior = self._predictor.estimated_prior()
        self.class_prior_ = (trainer.targets.mean() if prior is None else prior).cpu().numpy().astype(np.float64)
        self.transduced_ = transduce(trainer.targets, trainer.candidates)
        return self

    # ---- using ----------------------------------------------------------------------------------------------------

    def predict_proba(self, X: Any) -> npt.NDArray[np.float32]:
        """Debiased class probabilities, (rows, classes), in the order of `classes_`."""
        return torch.softmax(self._logits(X), dim=1).cpu().numpy()

    def decision_function(self, X: Any) -> npt.NDArray[np.float32]:
        """Debiased logits; for two classes, the second's less the first's."""
        logits = self._logits(X).cpu().numpy()
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The predicted class of each row."""
        check_is_fitted(self)
        predicted: npt.NDArray[Any] = self.classes_[self._predictor.predict(self._inputs(X, reset=False))]
        return predicted

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Accuracy where `y` is one label a row; the covering rate (predictions that are candidates) where it holds sets."""
        check_is_fitted(self)
        if sample_weight is None and not read_labels(y).certain:
            return covering_rate(self, X, y)
        return float(super().score(X, y, sample_weight))

    def transduce(self) -> Transduced:
        """The disambiguated labels of the training examples, in their order, and how sure training was of them."""
        check_is_fitted(self)
        first, confidence, second, margin = self.transduced_
        return Transduced(self.classes_[first], confidence, self.classes_[second], margin)

    def _logits(self, X: Any) -> Tensor:
        check_is_fitted(self)
        return self._predictor.logits(self._inputs(X, reset=False))

    def _inputs(self, X: Any, *, reset: bool) -> Tensor:
        """Features as they are, images with channels first; `reset` remembers the number of features and their names."""
        if isinstance(X, Tensor):
            X = X.detach().cpu().numpy()
        shape = getattr(X, "shape", None)
        least = 2 if reset else 1
        if shape is not None and len(shape) == 4:
            checked = check_array(X, dtype=[np.float32, np.uint8], allow_nd=True, ensure_min_samples=least, estimator=self, input_name="X")
            images = images_first(checked)
            validate_data(self, images.numpy(), reset=reset, skip_check_array=True)  # what counts as features are the channels
            return images
        return as_inputs(validate_data(self, X, reset=reset, dtype=np.float32, ensure_min_samples=least), "given")

    # ---- keeping --------------------------------------------------------------------------------------------------

    def save(self, path: Path | str) -> None:
        """Write the fitted classifier to one file that holds numbers and text alone, so that loading it runs nobody's code."""
        check_is_fitted(self)
        if not isinstance(self.model, str) or not isinstance(self.views, str):
            raise InputError("A network or views of one's own cannot be written as numbers and text: pickle this classifier instead.")
        tensors = with_prefix("believed", {str(i): torch.as_tensor(column) for i, column in enumerate(self.transduced_)})
        tensors["class_prior"] = torch.from_numpy(self.class_prior_)
        for name, module in self._modules().items():
            tensors |= with_prefix(name, module.state_dict())
        views = self._predictor.views
        assert isinstance(views, (FeatureViews, ImageViews))
        tensors |= with_prefix("views", {name: torch.as_tensor(getattr(views, name)) for name in ("mean", "std")})
        params = {name: value for name, value in self.get_params(deep=False).items() if name != "on_epoch"}
        values = {
            "params": {**params, "extras": list(self.extras), "random_state": None},
            "classes": self.classes_.tolist(),
            "shape": list(self.input_shape_),
            "policy": views.policy if isinstance(views, ImageViews) else None,
            "n_features_in": self.n_features_in_,
            "feature_names_in": getattr(self, "feature_names_in_", np.asarray([])).tolist(),
            "history": self.history_,
        }
        try:
            json.dumps(values)
        except TypeError:
            raise InputError("Some options or class names are no plain numbers or text: pickle this classifier instead.") from None
        write_checkpoint(Path(path), tensors, values)

    def to_onnx(self, path: Path | str) -> None:
        """Write an ONNX model: inputs as `predict` takes them (images with channels first), debiased logits in the order of `classes_`."""
        from ltpll.inference.export import export_onnx

        check_is_fitted(self)
        export_onnx(self._predictor, self.input_shape_, Path(path))

    @classmethod
    def load(cls, path: Path | str, device: str = "auto") -> Self:
        """A classifier that `save` wrote, ready to predict on `device`."""
        tensors, values = read_checkpoint(Path(path), advice="save the classifier again")
        try:
            self = cls(**{**values["params"], "device": device})
            self.classes_, self.input_shape_ = np.asarray(values["classes"]), tuple(values["shape"])
            self.n_features_in_, self.history_ = int(values["n_features_in"]), list(values["history"])
            names, policy = list(values["feature_names_in"]), values["policy"]
            whole = (
                all(type(size) is int and size > 0 for size in self.input_shape_)
                and len(self.input_shape_) in (1, 3)
                and self.classes_.ndim == 1
            )
            whole = (
                whole
                and (len(self.input_shape_) == 3 or self.input_shape_[0] == self.n_features_in_)
                and len(names) in (0, self.n_features_in_)
            )
        except (KeyError, TypeError, ValueError, OverflowError):
            whole = False
        if not whole:
            raise InputError(f"{path} is a checkpoint, but not one of a fitted classifier.")
        if names:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        try:
            with torch.device("meta"):  # parts without memory first: a damaged file may describe larger ones than it holds
                check_fits(self._built(), tensors)
            self._restore(tensors, policy, chosen_device(device))
        except InputError:
            raise
        except Exception as error:  # of torch about a state of another shape or kind, or of what is not there
            raise InputError(f"The classifier in {path} is damaged ({first_line(error)}): save it again.") from None
        return self

    def _built(self) -> dict[str, nn.Module]:
        model = self._model(self.input_shape_, len(self.classes_), seed=0)
        method, rebalancer, _ = self._parts(model, len(self.classes_))
        method.attach(model)
        return {"model": model, "method": method, "rebalancer": rebalancer}

    def _restore(self, tensors: Mapping[str, Tensor], policy: str | None, where: torch.device) -> None:
        """Build the parts as they were fitted, and load what they had learned."""
        mean, std = tensors["views.mean"], tensors["views.std"]
        first, confidence, second, margin = (tensors[f"believed.{i}"].numpy() for i in range(4))
        self.class_prior_ = tensors["class_prior"].numpy()
        n_classes, n_rows = len(self.classes_), len(first)
        if self.class_prior_.shape != (n_classes,) or not mean.numel() == std.numel() == self.input_shape_[0]:
            raise ValueError("its figures are of other inputs or classes")
        if not first.shape == confidence.shape == second.shape == margin.shape == (n_rows,):
            raise ValueError("its labels have several lengths")
        if "".join(column.dtype.kind for column in (first, confidence, second, margin)) != "ifif":
            raise ValueError("its labels are no class numbers, or its confidences no numbers")
        if n_rows and not 0 <= min(first.min(), second.min()) <= max(first.max(), second.max()) < n_classes:
            raise ValueError("it believes in classes that it does not have")
        self.transduced_ = Transduced(first, confidence, second, margin)
        shape = (-1, *(1,) * (len(self.input_shape_) - 1))
        views: ViewSource = FeatureViews(mean.float().reshape(shape), std.float().reshape(shape))
        if policy:
            views = ImageViews(policy, tuple(mean.flatten().tolist()), tuple(std.flatten().tolist()))
        parts: dict[str, Any] = {name: module.to(where) for name, module in self._built().items()}
        for name, module in parts.items():
            module.load_state_dict(under_prefix(name, tensors))
        self._predictor = Predictor(ForwardPass(parts["model"], where, self.precision), parts["method"], parts["rebalancer"], views)
        self.model_, self.n_iter_, self.device_ = parts["model"], len(self.history_), str(where)

    def _modules(self) -> dict[str, nn.Module]:
        return {"model": self.model_, "method": self._predictor.method, "rebalancer": self._predictor.rebalancer}

    def __getstate__(self) -> dict[str, Any]:
        """On the processor, so that a classifier fitted on a GPU can be loaded anywhere."""
        state = dict(super().__getstate__())
        if "_predictor" in state:
            predictor = deepcopy(state["_predictor"])
            for part in (predictor.passes.model, predictor.method, predictor.rebalancer):
                part.cpu()
            predictor.passes.device = torch.device("cpu")
            state |= {"_predictor": predictor, "model_": predictor.passes.model, "device_": "cpu"}
        return state


def images_first(images: npt.NDArray[Any]) -> Tensor:
    """(rows, channels, height, width); of bytes always three channels, which is what image views are made for."""
    channels_last = images.shape[3] in (1, 3) and images.shape[1] not in (1, 3)
    x = torch.from_numpy(np.require(images, requirements=["C", "W"]))
    if channels_last:
        x = x.permute(0, 3, 1, 2)
    if x.shape[1] not in (1, 3):
        raise InputError(f"Images need 1 or 3 channels, first or last behind the rows; these have shape {images.shape}.")
    return x.expand(-1, 3, -1, -1) if x.dtype == torch.uint8 and x.shape[1] == 1 else x


def _channel_figures(x: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation of each channel of images of bytes, with values from 0 to 1."""
    views = FeatureViews.of(x)
    mean, std = (views.mean.flatten() / 255).tolist(), (views.std.flatten() / 255).tolist()
    return tuple(mean), tuple(std)
