"""`PartialLabelClassifier`, a scikit-learn estimator that learns from candidate sets."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted, check_random_state, validate_data
from torch import Tensor, nn

from ltpll.backbones import Backbone
from ltpll.before_training import (
    AUTO,
    FoldsOf,
    can_compare,
    check_truth_missing,
    estimate_missing,
    held_out_scores,
    overall_share,
)
from ltpll.candidates import Candidates
from ltpll.errors import InputError, first_line
from ltpll.evaluation.scorers import SetClassifier, as_checked_by_sklearn
from ltpll.extras import EXTRAS
from ltpll.formatting import counted
from ltpll.interfaces import Extra, Method, Rebalancer
from ltpll.methods import METHODS
from ltpll.models import FineTune, build_model
from ltpll.models.finetune import FineTunedClassifier
from ltpll.network.forward import ForwardPass
from ltpll.network.predictor import Predictor
from ltpll.parts import Options, build_parts
from ltpll.rebalancers import REBALANCERS
from ltpll.registry import Configurable
from ltpll.rng import seeded_layers
from ltpll.targets import Transduced, transduce
from ltpll.training.callbacks import Callback, OnEpoch
from ltpll.training.checkpoint import (
    Tensors,
    Values,
    check_state_fits,
    read_checkpoint,
    under_prefix,
    with_prefix,
    write_checkpoint,
)
from ltpll.training.trainer import PartialLabelTrainer
from ltpll.validation import as_inputs, chosen_device, rows_per_chunk, shared_tensor, whole_number
from ltpll.views import FeatureViews, ImageViews, ViewSource

SMALL_IMAGE = 32 * 32  # pixels up to which "auto" chooses the small network
# Pixels above which a picture counts as a photograph, with views and a stem that suit it.
PHOTO_SIDE = 64
SCALED = "scaled"  # views of features whose sizes say how much each counts
CHUNK_ROWS, CHUNK_PIXELS = 4096, 2**23  # for which views are drawn at once, at most
CALIBRATION_ROWS = 64  # from which the offset and the scale of a backbone's features are computed
# The values of which the mean and deviation of pictures are computed; of more, a sample is taken.
STATISTICS_VALUES = 2**30
# Share of the epochs: convolutional networks take longer than others to tell rare classes apart.
IMAGE_WARMUP = 0.5
# The longest step for features, the learning rate times the norm of the gradient. Without a limit,
# small batches diverge, and any batch where columns share a strong common factor.
MAX_STEP = 0.1
IMAGE_MODELS, FEATURE_MODELS = ("small-cnn", "resnet18"), ("mlp", "linear")
# Beyond which the learning rate for tables falls; a small table of 1,280 features diverged without.
MANY_FEATURES = 128
# Types of features that are kept; others become the first.
NUMBERS = [np.dtype(kind) for kind in ("f8", "f4", "f2", "i8", "i4", "i2", "i1", "u1", "?")]
REGISTRIES: Mapping[str, Any] = {"method": METHODS, "rebalancer": REBALANCERS, "extras": EXTRAS}


class Defaults(NamedTuple):
    """What "auto" stands for."""

    lr: float
    weight_decay: float
    batch_size: tuple[int, int]  # the smallest and the largest
    epochs: tuple[int, int]  # the fewest and the most


FROM_SCRATCH = Defaults(lr=0.05, weight_decay=2e-3, batch_size=(32, 512), epochs=(10, 500))
# A pretrained network needs fewer epochs, and little weight decay: it would pull the backbone
# towards zero, not towards where it started.
FINE_TUNING = Defaults(lr=0.02, weight_decay=1e-4, batch_size=(16, 64), epochs=(5, 30))


class Schedule(NamedTuple):
    """How long a classifier trains."""

    epochs: int
    batch_size: int


class Fitting(NamedTuple):
    """A trainer that has not started, and the arguments of its `fit`."""

    trainer: PartialLabelTrainer
    x: Tensor
    candidates: Candidates


class PartialLabelClassifier(SetClassifier, BaseEstimator):  # type: ignore[misc]
    """A classifier for examples with sets of candidate labels, exactly one of which is true.

    Args:
        method: A method such as `CORR()`, or its name (`ltpll list` shows all names).
        rebalancer: A rebalancer such as `RECORDS(momentum=0.99)`, or its name; "auto" chooses by
            the candidate sets and says what it chose (`choice_`). Where the sets of a table leave
            it open, it first compares two ways by cross-validation, which takes six training runs;
            "set-evidence" and "mean-target" avoid that.
        extras: Extras such as `Mixup()`, or their names.
        options: Options of parts that are given by name, for example `{"corr": {"form":
            "original"}}`.
        model: "auto" (a multi-layer perceptron for features, a convolutional network for images), a
            name in `ltpll.MODELS`, a network whose last linear layer is `.head`, or a function that
            builds one from the shape of an example and the number of classes. `FineTune`, or a
            `Backbone`, fine-tunes a pretrained network on 8-bit pictures.
        views: "auto", a view policy for 8-bit images ("paper", "flip-crop", "crop" or "photo"), or
            a source of views such as `Views`. "auto" is "photo" for backbones and for pictures of
            more than 64 pixels, and "flip-crop" for others. It standardises features; after a
            `ColumnEncoder`, choose "scaled", which keeps the sizes of features beside each other.
        epochs: The number of epochs, or "auto": as many as make about `steps` steps, between 10 and
            500, or 5 and 30 for a backbone.
        steps: The number of training steps that `epochs="auto"` aims at.
        batch_size: The batch size, or "auto": chosen by the number of rows, from 32 to 512, or from
            16 to 64 for a backbone.
        lr: The initial learning rate, or "auto": 0.05, less for tables of more than 128 features
            and for SoLar, and 0.02 for a fine-tuned backbone.
        weight_decay: The weight decay, or "auto": 0.002, or 0.0001 for a backbone.
        truth_missing: Whether candidate sets may lack the true label: "never"; the share of sets
            that do, such as 0.1; or "auto", which estimates the share by cross-validation (three
            more training runs) and is "never" if it finds next to none. Labels of training examples
            can then lie outside their sets. A list gives the share for each size of a set, from 0
            to the number of classes.
        goal: What `predict` optimises: "accuracy" (every example counts the same) or "balanced"
            (every class counts the same), which corrects for the class prior. It does not affect
            training, so it may be changed with `set_params` after `fit`.
        random_state: An integer, a `RandomState` or None. An integer makes results reproducible.
        device: "cpu", "cuda" or "auto".
        precision: "float32" or "bfloat16", for the passes through the network; "auto" is "bfloat16"
            for a backbone on CUDA.
        on_nan: "stop" raises an error if a batch gives numbers that are not finite; "skip" drops
            the batch.
        threads: The number of CPU threads for `fit`, or "auto", which measures whether one or all
            are faster and obeys OMP_NUM_THREADS.
        on_epoch: A function that is called with the record of each finished epoch.

    Attributes:
        classes_: The class labels, (n_classes,).
        class_prior_: The estimated share of each class, (n_classes,): the estimate of the
            rebalancer or method, or else the mean target.
        choice_: What the rebalancer "auto" chose and why, in one sentence; empty for others.
        model_: The trained network.
        history_: The records of all epochs.
        n_iter_: The number of epochs trained.
        n_features_in_: The number of features, or of channels for images.
        feature_names_in_: The names of the features, if `X` was a DataFrame.
        input_shape_: The shape of one example.
        temperature_: The logits for the goal "accuracy" are divided by it before they become
            probabilities; 1 unless `ltpll train` has calibrated them.
        balanced_temperature_: The same for the goal "balanced".
        truth_missing_: The share of candidate sets that was assumed to lack the true label.
        transduced_: The labels of the training examples as class numbers; `transduce` returns them
            as labels.
        device_: The device that the classifier was trained on.

    Examples:
        >>> X, y = four_squares([50, 20, 10, 5], seed=0)
        >>> sets = uniform_candidates(y, n_classes=4, ambiguity=0.3, seed=0)
        >>> classifier = PartialLabelClassifier(rebalancer=RECORDS(), epochs=20).fit(X, sets)
        >>> classifier.predict([[-0.5, -0.5]])
        array([0])
        >>> labels, confidence, *_ = classifier.transduce()  # labels of the training examples
        >>> labels.shape
        (85,)
    """

    def __init__(
        self,
        method: str | Method = "corr",
        rebalancer: str | Rebalancer = "auto",
        extras: Sequence[str | Extra] = (),
        *,
        options: Options | None = None,
        model: str | nn.Module | FineTune | Callable[[tuple[int, ...], int], nn.Module] = "auto",
        views: ViewSource | str = "auto",
        epochs: int | str = "auto",
        steps: int = 2000,
        batch_size: int | str = "auto",
        lr: float | str = "auto",
        weight_decay: float | str = "auto",
        truth_missing: float | str | Sequence[float] = "never",
        goal: str = "accuracy",
        random_state: Any = 0,
        device: str = "auto",
        precision: str = "auto",
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
        self.truth_missing = truth_missing
        self.goal = goal
        self.random_state = random_state
        self.device = device
        self.precision = precision
        self.on_nan = on_nan
        self.threads = threads
        self.on_epoch = on_epoch

    # ---- fitting ---------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any, groups: Any = None, **unsupported: Any) -> Self:
        """Train on examples and their candidate sets.

        Args:
            X: Features (2-D, a DataFrame, a sparse matrix) or images (4-D: 8-bit with 1 or 3
                channels, first or last, or any numbers).
            y: A 0/1 matrix, a list of sets, a pandas Series of strings such as `cat|dog`,
                `Candidates`, or a single label per row.
            groups: The picture, scene or recording that each row belongs to, if rows of one share
                their candidate set; the rebalancer "auto" uses it. Without it, "auto" looks for
                such groups among neighbouring rows.

        Returns:
            The fitted classifier.

        Raises:
            InputError: If the data cannot be used, or if parts or options do not fit together.
        """
        if unsupported:
            name = next(iter(unsupported))
            raise InputError(
                f"fit takes no {name}: all rows have the same weight; repeat rows, or leave {name} "
                "out."
            )
        fitting = self.prepare_training(X, y, groups)
        self.decide_by_cross_validation(fitting.trainer, fitting.x.numpy(), fitting.candidates)
        return self.run_training(fitting, [OnEpoch(self.on_epoch)] if self.on_epoch else [])

    def prepare_training(self, X: Any, y: Any, groups: Any = None) -> Fitting:
        """Prepare the training that `fit` would run, for callers of `decide` and `train`.

        Under `torchrun`, all processes call this with the same data and train together.
        """
        check_truth_missing(self.truth_missing)
        x = self.checked_inputs(X, reset=True)
        candidates = self._candidates_of(y, groups)
        return Fitting(self._trainer(x, candidates), x, candidates)

    def decide_by_cross_validation(
        self,
        trainer: PartialLabelTrainer,
        x: Any,
        candidates: Candidates,
        kept: Mapping[str, FoldsOf] = MappingProxyType({}),
    ) -> dict[str, float] | None:
        """Set the missing share and the way that "auto" trains, by cross-validation.

        Args:
            trainer: The trainer of `prepare_training`.
            x: The examples.
            candidates: Their candidate sets.
            kept: For "missing" and "comparison", the callbacks of each training run and where runs
                are kept.

        Returns:
            The scores of the comparison, if there was one.
        """
        if self.truth_missing == AUTO:
            own = kept.get("missing", ())
            trainer.truth_missing = estimate_missing(self, x, candidates, *own)
        # The comparison assumes that sets hold the true label.
        if np.any(trainer.truth_missing) or not can_compare(trainer.rebalancer, x, candidates):
            return None
        own = kept.get("comparison", ())
        scores = held_out_scores(self, trainer.rebalancer, x, candidates, *own)
        trainer.rebalancer.scores = scores
        return scores

    def _trainer(self, x: Tensor, candidates: Candidates) -> PartialLabelTrainer:
        seed, n, is_table = seed_of(self.random_state), len(x), x.ndim == 2
        epochs, batch_size = self.schedule(n)
        self.input_shape_ = tuple(x.shape[1:])
        device, defaults = chosen_device(self.device), self._defaults
        model = self._model(self.input_shape_, candidates.n_classes, seed, n)
        views = self._views(x, device)
        if x.ndim == 4 and self._channels_last(device):
            model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        if isinstance(model, FineTunedClassifier):
            rows = torch.linspace(0, n - 1, min(n, CALIBRATION_ROWS)).long()
            model.to(device).calibrate(views.plain(x[rows].to(device)).float())
        context = {"warmup": IMAGE_WARMUP} if x.ndim == 4 else {}
        parts = build_parts(self.method, self.rebalancer, self.extras, self.options, **context)
        lr, weight_decay, chunk = self.lr, self.weight_decay, rows_per_chunk(x)
        if lr == "auto":
            # Gradients grow with the squared length of an example, and so with its features.
            falls = min(1.0, MANY_FEATURES / x.shape[1]) if is_table else 1.0
            lr = defaults.lr * falls * parts.method.lr_factor
        if weight_decay == "auto":
            weight_decay = defaults.weight_decay
        if not is_table:
            chunk = min(CHUNK_ROWS, rows_per_chunk(x[:, 0], CHUNK_PIXELS))
        # `decide` replaces "auto".
        shares: Any = 0.0 if isinstance(self.truth_missing, str) else self.truth_missing
        return PartialLabelTrainer(
            model,
            *parts,
            views=views,
            epochs=epochs,
            batch_size=batch_size,
            lr=lr,  # type: ignore[arg-type]
            weight_decay=weight_decay,  # type: ignore[arg-type]
            truth_missing=shares,
            max_step=MAX_STEP if is_table else None,
            drop_last=n >= 2 * batch_size and n % batch_size < batch_size // 2,
            seed=seed,
            device=device,
            precision=self._precision(device),  # type: ignore[arg-type]
            chunk=chunk,
            on_nan=self.on_nan,  # type: ignore[arg-type]
            threads=self.threads,  # type: ignore[arg-type]
        )

    def schedule(self, n: int) -> Schedule:
        """The number of epochs and the batch size that `fit` uses for n rows."""
        (smallest, largest), (fewest, most) = self._defaults.batch_size, self._defaults.epochs
        # About 32 steps per epoch for small tables; larger batches, which keep the processor busy,
        # for large ones.
        batch_size, epochs = self.batch_size, self.epochs
        if batch_size == "auto":
            batch_size = min(max(2 ** round(math.log2(max(n / 32, 1))), smallest), largest)
        batch_size = whole_number(batch_size, 1, "batch_size")
        if epochs == "auto":
            epochs = min(max(math.ceil(self.steps * batch_size / n), fewest), most)
        return Schedule(whole_number(epochs, 1, "epochs"), batch_size)

    @property
    def _fine_tune(self) -> FineTune | None:
        """How a backbone is fine-tuned; None for other models."""
        if isinstance(self.model, Backbone):
            return FineTune(self.model)
        return self.model if isinstance(self.model, FineTune) else None

    @property
    def _defaults(self) -> Defaults:
        return FROM_SCRATCH if self._fine_tune is None else FINE_TUNING

    def _precision(self, device: torch.device) -> str:
        if self.precision != "auto":
            return self.precision
        return "bfloat16" if self._fine_tune is not None and device.type == "cuda" else "float32"

    def _model(
        self, shape: tuple[int, ...], n_classes: int, seed: int, n_rows: int | None = None
    ) -> nn.Module:
        if (fine_tune := self._fine_tune) is not None:
            with seeded_layers(seed):
                return fine_tune(shape, n_classes, n_rows)
        if isinstance(self.model, nn.Module):
            return deepcopy(self.model)
        if not isinstance(self.model, str):
            return self.model(shape, n_classes)
        name, pixels = self.model, math.prod(shape[1:])
        if name == "auto" and len(shape) == 1:
            name = "mlp"
        elif name == "auto":
            name = "small-cnn" if pixels <= SMALL_IMAGE else "resnet18"
        if name in FEATURE_MODELS:
            return build_model(name, seed, n_classes=n_classes, n_inputs=math.prod(shape))
        if name in IMAGE_MODELS and len(shape) == 1:
            raise InputError(
                f"The model {name!r} is for images, but each example has "
                f"{counted(shape[0], 'feature')}: choose 'mlp' or 'auto'."
            )
        inputs: dict[str, Any] = {"n_channels": shape[0]}
        if name == "resnet18" and max(shape[1:]) > PHOTO_SIDE:
            inputs["stem"] = "strided"
        return build_model(name, seed, n_classes=n_classes, **inputs)

    def _views(self, x: Tensor, device: torch.device) -> ViewSource:
        if not isinstance(self.views, str):
            return self.views
        fine_tune = self._fine_tune
        if fine_tune is not None and x.dtype != torch.uint8:
            raise InputError(
                "A backbone takes 8-bit pictures, with values from 0 to 255: "
                "convert the pictures to uint8."
            )
        if x.dtype != torch.uint8:
            if self.views not in ("auto", SCALED):
                raise InputError(
                    f"The view policy {self.views!r} is for 8-bit images: "
                    "choose 'auto' for other data."
                )
            return FeatureViews.of(x, scaled=self.views == SCALED)
        photo = fine_tune is not None or max(x.shape[2:]) > PHOTO_SIDE
        policy = ("photo" if photo else "flip-crop") if self.views == "auto" else self.views
        if fine_tune is None:
            mean, std = _channel_statistics(x)
        else:
            mean, std = fine_tune.backbone.preprocessing.mean, fine_tune.backbone.preprocessing.std
        low = device.type == "cuda" and self._precision(device) == "bfloat16"
        dtype = torch.bfloat16 if low else torch.float32
        return ImageViews(policy, mean, std, dtype, self._channels_last(device))

    def _channels_last(self, device: torch.device) -> bool:
        """Whether pictures have the channels-last memory format.

        On a CPU, EfficientNet-Lite0 trains 1.3 to 1.7 times as fast with it, the small network 1.2
        to 1.6 times. Networks of others may not expect it.
        """
        own = isinstance(self.model, str) or self._fine_tune is not None
        return device.type == "cuda" or own

    def run_training(self, fitting: Fitting, callbacks: Sequence[Callback] = ()) -> Self:
        """Run the training that `prepare_training` has prepared, and take over its results."""
        return self.take_over(fitting.trainer.fit(fitting.x, fitting.candidates, callbacks))

    def take_over(self, trainer: PartialLabelTrainer) -> Self:
        """Become the classifier that a trainer has trained."""
        self.model_ = trainer.model
        self.choice_ = trainer.rebalancer.because
        self.temperature_ = self.balanced_temperature_ = 1.0
        self.history_, self.n_iter_ = trainer.history, trainer.epoch
        self.device_ = str(trainer.device)
        # An eager one: the trainer's own network may be a CUDA graph.
        forward_pass = ForwardPass(trainer.model, trainer.device, self._precision(trainer.device))
        extras = _predicting(trainer.extras)
        self._predictor = Predictor(
            forward_pass, trainer.method, trainer.rebalancer, trainer.views, extras
        )
        prior = self._predictor.estimated_prior()
        prior = trainer.targets.mean() if prior is None else prior
        self.class_prior_ = prior.cpu().numpy().astype(np.float64)
        self.transduced_ = transduce(trainer.final_targets(), trainer.sets)
        shares = trainer.truth_missing
        if not isinstance(shares, int | float):
            shares = overall_share(shares, trainer.candidates)
        self.truth_missing_ = float(shares)
        return self

    # ---- predicting ------------------------------------------------------------------------------

    def predict_proba(self, X: Any) -> npt.NDArray[np.float32]:
        """Class probabilities for the goal: debiased if it is "balanced".

        Args:
            X: Inputs of the kind that the classifier was fitted to.

        Returns:
            Probabilities, (rows, classes), in the order of `classes_`.
        """
        return torch.softmax(self._logits(X) / self._goal_temperature, dim=1).cpu().numpy()

    def decision_function(self, X: Any) -> npt.NDArray[np.float32]:
        """Logits for the goal, (rows, classes); for two classes, their difference, (rows,)."""
        logits = self._logits(X).cpu().numpy()
        return logits[:, 1] - logits[:, 0] if logits.shape[1] == 2 else logits

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The predicted class label of each row, (rows,), for the goal."""
        check_is_fitted(self)
        numbers = self._predictor.predict(self.checked_inputs(X, reset=False), self._goal)
        predicted: npt.NDArray[Any] = self.classes_[numbers]
        return predicted

    def _logits(self, X: Any) -> Tensor:
        check_is_fitted(self)
        return self._predictor.logits(self.checked_inputs(X, reset=False), self._goal)

    def checked_inputs(self, X: Any, *, reset: bool) -> Tensor:
        """Features unchanged, images with channels first; `reset` stores their number and names."""
        X = as_checked_by_sklearn(X)
        shape = getattr(X, "shape", None)
        least = 2 if reset else 1
        if shape is not None and len(shape) == 4:
            # Of bytes, which are always finite, some rows suffice: the pictures may be a file that
            # does not fit into memory.
            whole = not isinstance(X, np.ndarray) or X.dtype != np.uint8
            how: dict[str, Any] = {"dtype": [np.float32, np.uint8], "allow_nd": True}
            how |= {"ensure_min_samples": least, "estimator": self, "input_name": "X"}
            checked = check_array(X if whole else X[:least], **how)
            images = channels_first(checked if whole else X)
            # The channels count as features.
            validate_data(self, images.numpy(), reset=reset, skip_check_array=True)
            return images
        # Not made float32 here: it depends on all rows of the training whether that would blur them
        # (`kept_type`).
        checked = validate_data(self, X, reset=reset, dtype=NUMBERS, ensure_min_samples=least)
        return as_inputs(checked, "given") if reset else self._predictor.inputs(checked, "given")

    # ---- saving ----------------------------------------------------------------------------------

    def save(self, path: Path | str) -> None:
        """Write the fitted classifier to a file, which can be loaded without unpickling.

        Raises:
            InputError: If the classifier has a custom network, custom views, a part that is not
                registered, or an option that is not made of numbers and text.
        """
        write_checkpoint(Path(path), *self.content())

    def content(self) -> tuple[Tensors, Values]:
        """What `save` writes, and `from_content` takes: tensors, and values that JSON has."""
        check_is_fitted(self)
        fine_tune = self._fine_tune
        if not (isinstance(self.model, str) or fine_tune) or not isinstance(self.views, str):
            raise InputError(
                "A custom network or custom views cannot be saved as numbers and text: "
                "pickle this classifier instead."
            )
        columns = enumerate(self.transduced_)
        tensors = {f"believed.{i}": torch.as_tensor(column) for i, column in columns}
        tensors["class_prior"] = torch.from_numpy(self.class_prior_)
        used = self._predictor
        modules = _named_modules(self.model_, used.method, used.rebalancer, used.extras)
        for name, module in modules.items():
            tensors |= with_prefix(name, module.state_dict())
        for name in used.method.per_example:
            del tensors[f"method.{name}"]
        views = self._predictor.views
        assert isinstance(views, (FeatureViews, ImageViews))
        # A backbone states its statistics in double precision.
        kept = torch.float64 if isinstance(views, ImageViews) else None
        for name in ("mean", "std"):
            tensors[f"views.{name}"] = torch.as_tensor(getattr(views, name), dtype=kept)
        params = self.get_params(deep=False)
        del params["on_epoch"]
        model = self.model if fine_tune is None else {"fine_tune": fine_tune.record()}
        values = {
            "params": {**params, "model": model, "extras": list(self.extras), "random_state": None},
            "classes": self.classes_.tolist(),
            "shape": list(self.input_shape_),
            "policy": views.policy if isinstance(views, ImageViews) else None,
            "n_features_in": self.n_features_in_,
            "feature_names_in": getattr(self, "feature_names_in_", np.asarray([])).tolist(),
            "history": self.history_,
            "choice": self.choice_,
            "temperature": self.temperature_,
            "balanced_temperature": self.balanced_temperature_,
            "truth_missing": self.truth_missing_,
        }
        try:
            values = json.loads(json.dumps(values, default=_as_json))
        except TypeError as error:
            raise InputError(
                f"This classifier cannot be saved as numbers and text ({first_line(error)}): "
                "pickle it instead."
            ) from None
        return tensors, values

    def to_onnx(
        self,
        path: Path | str,
        feature_names: Sequence[str] | None = None,
        backbone: Backbone | None = None,
    ) -> None:
        """Write an ONNX model that maps inputs of `predict` to logits and probabilities.

        Images have their channels first. The model's metadata and a JSON file beside it
        (`model.onnx.json`) hold the class names, the input and the preprocessing.

        Args:
            path: The file to write.
            feature_names: Names of the features for the description; by default those of the
                DataFrame that was used for training.
            backbone: The backbone whose features the classifier was trained on; the model then
                takes pictures, (rows, 3, side, side) with pixels from 0 to 255. A backbone that was
                fine-tuned is part of the model without it.

        Raises:
            InputError: If the classifier cannot be exported, or `ltpll[onnx]` is not installed.
        """
        from ltpll.network.export import PredictingNetwork, write_onnx

        check_is_fitted(self)
        names = getattr(self, "feature_names_in_", ()) if feature_names is None else feature_names
        network = PredictingNetwork(self._predictor, self._goal, self._goal_temperature)
        shape, classes = self.input_shape_, self.classes_.tolist()
        write_onnx(network, shape, Path(path), classes, [*map(str, names)], backbone)

    @classmethod
    def load(cls, path: Path | str, device: str = "auto") -> Self:
        """Load a classifier that `save` has written, to predict on `device`.

        Raises:
            InputError: If the file is damaged or was not written by `save`.
        """
        tensors, values = read_checkpoint(Path(path), advice="save the classifier again")
        return cls.from_content(tensors, values, device, str(path))

    @classmethod
    def from_content(
        cls, tensors: Mapping[str, Tensor], values: Values, device: str = "auto", path: str = "This"
    ) -> Self:
        """The classifier with this `content`, which the file `path` holds.

        Raises:
            InputError: It is damaged, or that of something else.
        """
        try:
            params = {**values["params"], "device": device}
            for kind in ("method", "rebalancer"):
                params[kind] = _from_json(kind, params[kind])
            params["extras"] = [_from_json("extras", extra) for extra in params["extras"]]
            self = cls(**params)
            self.classes_, self.input_shape_ = np.asarray(values["classes"]), tuple(values["shape"])
            self.n_features_in_ = int(values["n_features_in"])
            self.history_ = list(values["history"])
            self.choice_ = str(values.get("choice", ""))
            self.temperature_ = float(values.get("temperature", 1.0))
            other = values.get("balanced_temperature", self.temperature_)
            self.balanced_temperature_ = float(other)
            self.truth_missing_ = float(values.get("truth_missing", 0.0))
            names, policy = list(values["feature_names_in"]), values["policy"]
            shape, n = self.input_shape_, self.n_features_in_
            whole = (
                all(type(size) is int and size > 0 for size in shape)
                and (shape == (n,) or len(shape) == 3)
                and 0 < self.temperature_ < math.inf
                and 0 < self.balanced_temperature_ < math.inf
                and self.classes_.ndim == 1
                and len(names) in (0, n)
            )
        except InputError:
            raise
        except (KeyError, TypeError, ValueError, OverflowError, AttributeError):
            whole = False
        if not whole:
            raise InputError(f"{path} is a checkpoint, but not one of a fitted classifier.")
        if names:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        try:
            described = self.model
            # Without memory first, because a damaged file may describe huge parts.
            with torch.device("meta"):
                self.model = _model_from_json(described)
                check_state_fits(self._built(), tensors)
            self.model = _model_from_json(described)
            self._restore(tensors, policy, chosen_device(device))
        except InputError:
            raise
        # Torch and safetensors raise many kinds of errors for a state that does not fit.
        except Exception as error:
            raise InputError(
                f"The classifier in {path} is damaged ({first_line(error)}): save it again."
            ) from None
        return self

    def _built(self) -> dict[str, nn.Module]:
        model = self._model(self.input_shape_, len(self.classes_), seed=0)
        parts = build_parts(self.method, self.rebalancer, self.extras, self.options)
        model, extras = parts.method.network_around(model), _predicting(parts.extras)
        for part in (parts.method, parts.rebalancer, *extras):
            part.attach(model)
        return _named_modules(model, parts.method, parts.rebalancer, extras)

    def _restore(
        self, tensors: Mapping[str, Tensor], policy: str | None, where: torch.device
    ) -> None:
        """Build the parts and load their state."""
        mean, std = tensors["views.mean"], tensors["views.std"]
        self.transduced_ = Transduced(*(tensors[f"believed.{i}"].numpy() for i in range(4)))
        self.class_prior_ = tensors["class_prior"].numpy()
        n_classes, labels = len(self.classes_), np.concatenate(self.transduced_[::2])
        sizes = mean.numel(), std.numel(), self.class_prior_.shape
        if sizes != (self.input_shape_[0], self.input_shape_[0], (n_classes,)):
            raise ValueError("its statistics belong to other inputs or classes")
        if {column.shape for column in self.transduced_} != {(len(self.transduced_[0]),)}:
            raise ValueError("its labels differ in length")
        if "".join(column.dtype.kind for column in self.transduced_) != "ifif":
            raise ValueError("its labels are not class numbers, or its confidences are not numbers")
        if len(labels) and not 0 <= labels.min() <= labels.max() < n_classes:
            raise ValueError("its labels are outside its classes")
        shape = (-1, *(1,) * (len(self.input_shape_) - 1))
        kind = torch.float64 if mean.dtype == std.dtype == torch.float64 else torch.float32
        views: ViewSource = FeatureViews(mean.to(kind).reshape(shape), std.to(kind).reshape(shape))
        if policy:
            figures = (tuple(mean.flatten().tolist()), tuple(std.flatten().tolist()))
            views = ImageViews(policy, *figures, channels_last=self._channels_last(where))
        parts: dict[str, Any] = {name: module.to(where) for name, module in self._built().items()}
        if len(self.input_shape_) == 3 and self._channels_last(where):
            parts["model"].to(memory_format=torch.channels_last)
        for name, module in parts.items():
            module.load_state_dict(under_prefix(name, tensors))
        forward_pass = ForwardPass(parts["model"], where, self._precision(where))
        self._predictor = Predictor(
            forward_pass, parts["method"], parts["rebalancer"], views, parts["extras"]
        )
        self.model_, self.n_iter_, self.device_ = parts["model"], len(self.history_), str(where)
        if isinstance(self.model, FineTune):
            # Another `fit` starts from the fine-tuned backbone: the file does not hold the original
            # one.
            self.model.backbone.load_state_dict(self.model_.encoder.state_dict())  # type: ignore[union-attr]

    def __getstate__(self) -> dict[str, Any]:
        """Without objects of torch if `save` can write it, as skops needs it; otherwise with all
        tensors on the CPU, so that the classifier can be unpickled anywhere.
        """
        state = dict(super().__getstate__())
        if "_predictor" not in state:
            return state
        try:
            tensors, values = self.content()
            content = {name: tensor.detach().cpu().numpy() for name, tensor in tensors.items()}
        except (InputError, TypeError):  # parts of others, or numbers that numpy does not have
            predictor = deepcopy(state["_predictor"])
            model = predictor.forward_pass.model
            for part in (model, predictor.method, predictor.rebalancer, *predictor.extras):
                part.cpu()
            predictor.forward_pass.device = torch.device("cpu")
            return {**state, "_predictor": predictor, "model_": model, "device_": "cpu"}
        state["_content"] = content, values
        return {name: one for name, one in state.items() if name not in ("_predictor", "model_")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        own = dict(state)
        content = own.pop("_content", None)
        super().__setstate__(own)
        if content is not None:
            arrays, values = content
            tensors = {name: torch.tensor(array) for name, array in arrays.items()}
            restored = self.from_content(tensors, values, "cpu")
            self._predictor, self.model_ = restored._predictor, restored.model_
            self.device_ = "cpu"


def seed_of(random_state: Any) -> int:
    """The integer itself, or one that is drawn from a `RandomState` or, for None, from numpy's."""
    if isinstance(random_state, int):
        return random_state
    return int(check_random_state(random_state).randint(2**31 - 1))


def _named_modules(
    model: nn.Module, method: Method, rebalancer: Rebalancer, extras: Sequence[Extra]
) -> dict[str, nn.Module]:
    """All modules of a fitted classifier, by the names that files use."""
    others = nn.ModuleList(extras)
    return {"model": model, "method": method, "rebalancer": rebalancer, "extras": others}


def _predicting(extras: Iterable[Extra]) -> list[Extra]:
    """The extras with a head for predictions; the others are not needed after training."""
    return [extra for extra in extras if type(extra).balanced_logits is not Extra.balanced_logits]


def _as_json(value: Any) -> Any:
    """For `json.dumps`: a part as its name and options, an array as a list."""
    if isinstance(value, Configurable):
        name = getattr(value, "name", "")
        if type(value) not in [registry.get(name) for registry in REGISTRIES.values()]:
            raise TypeError(f"{type(value).__name__} is not registered")
        return {"name": name, "params": value.get_params()}
    if isinstance(value, (np.ndarray, np.generic, Tensor)):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is neither")


def _from_json(kind: str, value: Any) -> Any:
    made = isinstance(value, dict)
    return REGISTRIES[kind].create(value["name"], **value["params"]) if made else value


def _model_from_json(value: Any) -> Any:
    return value if isinstance(value, str) else FineTune.from_record(value["fine_tune"])


def channels_first(images: npt.NDArray[Any]) -> Tensor:
    """Images as (rows, channels, height, width); 8-bit images always get three channels."""
    if images.dtype == np.uint8:
        x = shared_tensor(images)
    else:
        x = torch.from_numpy(np.require(images, requirements=["C", "W"]))
    if images.shape[3] in (1, 3) and images.shape[1] not in (1, 3):
        x = x.permute(0, 3, 1, 2)
    if x.shape[1] not in (1, 3):
        raise InputError(
            "Images need 1 or 3 channels in the second or the last dimension; "
            f"these have shape {images.shape}."
        )
    return x.expand(-1, 3, -1, -1) if x.dtype == torch.uint8 and x.shape[1] == 1 else x


def _channel_statistics(x: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """The mean and deviation of each channel of 8-bit images, scaled to values from 0 to 1."""
    views = FeatureViews.of(x[:: math.ceil(x.numel() / STATISTICS_VALUES)])
    mean, std = (views.mean.flatten() / 255).tolist(), (views.std.flatten() / 255).tolist()
    return tuple(mean), tuple(std)
