"""`LabelCleaner`, a scikit-learn estimator that cleans labels and says how far to trust them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ltpll.before_training import NEVER
from ltpll.candidates.arrow import pandas_frame
from ltpll.candidates.labels import read_labels
from ltpll.cleaning.cleaning_job import cleaning_job
from ltpll.cleaning.dataset import Examples
from ltpll.cleaning.results import FALSE_DISCOVERIES, CleanedTable, cleaned_columns, summary
from ltpll.cleaning.review import QUEUE, review_rows
from ltpll.cleaning.stored_tables import shown_values
from ltpll.columns import ColumnEncoder
from ltpll.columns.encoder import needs_encoding
from ltpll.committee import Committee
from ltpll.errors import InputError, shown
from ltpll.estimator import PartialLabelClassifier, seed_of
from ltpll.files import check_output
from ltpll.report.cleaning_page import write_cleaning_page
from ltpll.runs.environment import environment
from ltpll.runs.recording import round_floats
from ltpll.tables.read_tables import LabelTable
from ltpll.training.callbacks import Progress
from ltpll.validation import chosen_device, in_range, whole_number

if TYPE_CHECKING:
    from pandas import DataFrame

# Columns of `ltpll clean`; `issue` is called `lacks_label` here.
COLUMNS = ["label", "confidence", "runner_up", "margin", "set_size", "suspicion"]
COLUMNS += ["issue", "suggestion", "judged"]


class LabelCleaner(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Cleans labels: finds each row's label, its confidence, and sets that lack the true label.

    It trains classifiers on all rows, and others for each fold of a cross-validation, so that every
    row is also judged by classifiers that were not trained on it. `ltpll train` and `ltpll clean`
    do the same for a table in a file.

    Args:
        estimator: The classifier, which is cloned: a `Committee` or a `PartialLabelClassifier`. By
            default a committee for features, and a single network for images.
        encoder: What turns the columns of `X` into numbers; by default a `ColumnEncoder` if some
            are not all finite numbers, and otherwise nothing. It is cloned.
        folds: The number of folds. With 0, a single network is trained, and rows are judged by the
            one that was trained on them: no set is flagged, and confidences are not calibrated.
        false_discoveries: The expected share of flagged sets that hold their true label after all.
        workers: How many folds are trained in parallel on a CPU; None decides by the amount of
            work and the machine. A script with several needs `if __name__ == "__main__":`.
        verbose: Whether to print the progress, with the time left, to standard error.

    Attributes:
        labels_: A DataFrame with a row for each row of `X`, in its order and with its index:
            `label`, `confidence`, `runner_up`, `margin`, `set_size`, `suspicion` (the probability
            that the set lacks the true label), `lacks_label` (whether it is flagged), `suggestion`
            (the likelier label of a flagged set) and `judged` (whether the set could be judged).
        expected_wrong_: The expected number of wrong labels.
        summary_: What `ltpll clean` prints: how far labels and flags can be trusted.
        classifier_: The classifier that was trained on all rows, with a calibrated temperature.
        encoder_: What turns the columns of `X` into numbers, if something has to.
        classes_: The class labels, (n_classes,).
        table_: The results as a `ltpll.cleaning.results.CleanedTable`.

    Examples:
        >>> from sklearn.datasets import load_iris
        >>> from ltpll import LabelCleaner, PartialLabelClassifier
        >>> X, y = load_iris(return_X_y=True, as_frame=True)
        >>> candidates = [{label, (label + row) % 3} for row, label in enumerate(y)]
        >>> cleaner = LabelCleaner(PartialLabelClassifier(steps=200), folds=2).fit(X, candidates)
        >>> bool(cleaner.labels_["label"].eq(y).mean() > 0.9)
        True
    """

    def __init__(
        self,
        estimator: Committee | PartialLabelClassifier | None = None,
        folds: int = 5,
        *,
        encoder: ColumnEncoder | None = None,
        false_discoveries: float = FALSE_DISCOVERIES,
        workers: int | None = 1,
        verbose: bool = False,
    ) -> None:
        self.estimator = estimator
        self.folds = folds
        self.encoder = encoder
        self.false_discoveries = false_discoveries
        self.workers = workers
        self.verbose = verbose

    def fit(self, X: Any, y: Any, groups: Iterable[Any] | None = None) -> Self:
        """Train on examples and their candidate sets, and clean their labels.

        Args:
            X: Features, (rows, features), in an array or a table of pandas, polars or pyarrow:
                numbers, categories, dates and texts, with gaps (`ColumnEncoder`); or 4-D images
                with 1 or 3 channels in the second or the last dimension. Pictures in files are
                cleaned by `ltpll train`.
            y: Their candidate sets, one per row and none of them empty: strings such as `cat|fox`,
                sets or lists of class labels, a 0/1 matrix, `Candidates`, or one label per row.
            groups: The picture, scene or recording that each row belongs to. Rows of a group are
                in the same fold.

        Returns:
            The fitted cleaner.

        Raises:
            InputError: The data cannot be used, or parts or settings do not fit together. It is a
                ValueError, as are scikit-learn's errors about text, NaN or infinity in `X`.
        """
        import pandas as pd

        folds = whole_number(self.folds, 0, "folds")
        estimator = self.estimator
        if estimator is None:
            is_images = len(getattr(X, "shape", ())) == 4
            estimator = PartialLabelClassifier() if is_images or folds < 2 else Committee()
        if not isinstance(estimator, Committee | PartialLabelClassifier):
            raise InputError(
                f"The estimator is {shown(estimator)}: give a Committee or PartialLabelClassifier."
            )
        workers = self.workers and whole_number(self.workers, 1, "workers")
        in_range(self.false_discoveries, "false_discoveries", 0, 1)
        if y is None:
            missing = "A cleaner requires y to be passed, but the target y is None"
            raise InputError(f"{missing}: give the candidate sets.")
        seed = seed_of(estimator.random_state)
        classifier = clone(estimator).set_params(random_state=seed)
        index = X.index if hasattr(X, "iloc") else None
        self.encoder_ = None if self.encoder is None else clone(self.encoder)
        if self.encoder_ is None and needs_encoding(X):
            self.encoder_ = ColumnEncoder()
        frame = pandas_frame(X)
        if self.encoder_ is not None:
            X = np.asarray(self.encoder_.fit_transform(X))
        x = classifier.checked_inputs(X, reset=True)
        x = x.numpy() if isinstance(x, Tensor) else x
        names = getattr(self.encoder_ or classifier, "feature_names_in_", None)
        labels = read_labels(y)
        candidates = labels.candidates
        if groups is not None:
            groups = list(groups)
            candidates = candidates.with_groups(groups)
        elif candidates.groups is not None:
            groups = candidates.groups.tolist()
        index = pd.RangeIndex(len(x)) if index is None else index
        table = LabelTable(
            ids=_as_texts(index),
            candidates=candidates,
            feature_names=() if names is None else tuple(names),
            frame=frame,
            groups=None if groups is None else _as_texts(groups),
        )
        examples = Examples(table, x, [], encoder=self.encoder_)
        progress = Progress() if self.verbose else None
        if isinstance(classifier, Committee):
            classifier.set_params(folds=folds)
        job = cleaning_job(classifier, examples, folds=folds, workers=workers, progress=progress)
        with TemporaryDirectory(prefix="ltpll-") as folder:
            found = job.run(Path(folder))
        if found is None:
            several = "Under torchrun, only the first process has the results"
            raise InputError(f"{several}: start a single process.")
        if names is not None and self.encoder_ is None:
            classifier.feature_names_in_ = names
        self.classifier_, self.classes_ = classifier, labels.classes
        record = {**round_floats(found.facts), **_described(classifier, folds)}
        cleaned = replace(found.labels, false_discoveries=self.false_discoveries)
        parts = candidates.offsets, candidates.labels
        offsets, flat = (part.numpy().astype(np.int64) for part in parts)
        unknown = np.full(len(table), None, dtype=object)
        what = (record, table.ids, None, None, offsets, flat, unknown, cleaned)
        texts = shown_values(table, 1 - cleaned.confidence)
        self.table_ = CleanedTable(*what, groups=table.groups, shown=texts)
        self.expected_wrong_ = float(self.table_.doubts.sum())
        self.summary_ = "\n".join(summary(self.table_))
        columns = cleaned_columns(self.table_)
        self.labels_ = pd.DataFrame({name: columns[name] for name in COLUMNS}, index=index)
        self.labels_ = self.labels_.rename(columns={"issue": "lacks_label"})
        own_names = dict(zip(record["classes"], labels.classes.tolist(), strict=True))
        for name in ("label", "runner_up", "suggestion"):
            own = [own_names.get(text) for text in columns[name]]
            # With None where there is no name, numbers would become floats.
            self.labels_[name] = pd.Series(own, index=index, dtype=object if None in own else None)
        return self

    @property
    def n_features_in_(self) -> int:
        """The number of features, or of channels for images."""
        return int((self.encoder_ or self.classifier_).n_features_in_)

    @property
    def feature_names_in_(self) -> npt.NDArray[Any]:
        """The names of the features, if `X` was a DataFrame."""
        return np.asarray((self.encoder_ or self.classifier_).feature_names_in_)

    def predict(self, X: Any) -> npt.NDArray[Any]:
        """The label of each row, (rows,), predicted by `classifier_`."""
        check_is_fitted(self)
        predicted: npt.NDArray[Any] = self.classifier_.predict(self._encoded(X))
        return predicted

    def predict_proba(self, X: Any) -> npt.NDArray[np.float32]:
        """Calibrated probabilities, (rows, classes), in the order of `classes_`."""
        check_is_fitted(self)
        probabilities: npt.NDArray[np.float32] = self.classifier_.predict_proba(self._encoded(X))
        return probabilities

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """As `PartialLabelClassifier.score`: accuracy, or the covering rate of candidate sets."""
        check_is_fitted(self)
        return float(self.classifier_.score(self._encoded(X), y, sample_weight))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        tags.input_tags.sparse = True
        return tags

    def _encoded(self, X: Any) -> Any:
        return X if self.encoder_ is None else np.asarray(self.encoder_.transform(X))

    def review_queue(self, n: int = QUEUE) -> DataFrame:
        """The rows of `labels_` that a person should look at first.

        Args:
            n: The number of rows, at most.

        Returns:
            The rows, the most doubtful first.
        """
        check_is_fitted(self)
        return self.labels_.iloc[review_rows(self.table_, whole_number(n, 1, "n"))]

    def report(self, path: Path | str, title: str = "Cleaned labels") -> None:
        """Write the page of `ltpll report`, which opens offline.

        Raises:
            InputError: The path does not end in .html, or its folder does not exist.
        """
        check_is_fitted(self)
        check_output(Path(path), (".html", ".htm"))
        write_cleaning_page(Path(path), self.table_, title)


def _as_texts(values: Iterable[Any]) -> npt.NDArray[np.object_]:
    return np.asarray([str(value) for value in values], dtype=object)


def _described(classifier: Committee | PartialLabelClassifier, folds: int) -> dict[str, Any]:
    """What reports say about the settings, in place of a run's config and source."""
    params: Mapping[str, Any] = classifier.get_params(deep=False)
    left_out = ("truth_missing", NEVER)  # as in the config of a run
    config = {name: value for name, value in params.items() if (name, value) != left_out}
    named = json.dumps(
        {**config, "folds": folds}, default=lambda one: getattr(one, "name", str(one))
    )
    device = str(chosen_device(classifier.device))
    facts = {"environment": environment(device), "skipped": []}
    return {"config": json.loads(named), "source": {"table": None, "images": None}, **facts}
