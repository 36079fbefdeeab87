"""`ColumnEncoder`: a table of numbers, categories, dates and texts as one matrix of numbers."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict
from fnmatch import fnmatchcase
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted, validate_data

from ltpll.candidates.arrow import pandas_frame
from ltpll.columns.categories import CategoryColumn
from ltpll.columns.kinds import KINDS, Kind, recognise
from ltpll.columns.numbers import DateColumn, NumberColumn
from ltpll.columns.texts import PretrainedText, TextColumn
from ltpll.errors import InputError, InputWarning, shown
from ltpll.formatting import are, counted, format_names
from ltpll.settings import by_full_name, with_settings

Column = NumberColumn | CategoryColumn | DateColumn | TextColumn
COLUMNS: dict[str, Any] = {
    "number": NumberColumn,
    "category": CategoryColumn,
    "date": DateColumn,
    "text": TextColumn,
}
PLURALS = {"number": "numbers", "category": "categories", "date": "dates", "text": "texts"}
BESIDE = "beside"  # the name of an array in the record
# Of 1, 4, 16 and 256, on crops of VOC with the size of their box, with three columns of noise, and
# with three that tell classes apart: the one whose accuracy was nowhere far below the best.
BESIDE_SHARE = 16
SMALLEST = 1e-6  # deviation of a feature that is not constant, beside its size
Numbers = npt.NDArray[Any]
Arrays = dict[str, Numbers]


class NoColumnsError(InputError):
    """No column of a table tells its rows apart."""


class ColumnEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Turns columns of every kind into numbers of about size one.

    What each column holds is recognised from its cells:

    - Numbers are centred and scaled. Where few values lie far beyond all others, ranks replace
      them. Gaps are filled with the median, and marked in a column of their own.
    - Categories have a column for each frequent level. Rare levels, and levels unseen in training,
      share one.
    - Dates become the time, and where in the year, the week and the day it was.
    - Texts, of several words that differ from row to row, become the components of their words and
      letters, or what a pretrained network says about them.
    - Columns that are the same in all rows, or name the rows, are left out with a warning.

    The outputs of every column vary about as much together as one number does, so that no column
    drowns the others; a classifier keeps that with `views="scaled"`. The encoder never sees labels
    or candidate sets.

    Args:
        kinds: The kind of columns that are not recognised well: a dict from a name, or a pattern
            such as `zip*`, to "number", "category", "date", "text" or "ignore".
        numbers: "scaled", or "bins" to append the piecewise linear encoding of each column of
            numbers and dates (`PiecewiseLinear`).
        text: The encoder of texts: None for words and letters (`TfidfText`), or an object with
            `transform` and `n_outputs`; what has `fit` is fitted.

    Attributes:
        columns_: The column of each name that is used, in order.
        left_out_: Why each of the others is not.
        n_cut: How many texts of the last call were longer than what is read of them.
        feature_names_in_: The names of the columns, if `X` was a DataFrame.

    Examples:
        >>> import pandas as pd
        >>> X = pd.DataFrame({"size": [1.5, None, 2.5, 4.0], "colour": ["red", "blue"] * 2})
        >>> encoder = ColumnEncoder().fit(X)
        >>> encoder.describe()
        '2 columns: 1 category, 1 number'
        >>> encoder.get_feature_names_out().tolist()
        ['size', 'size (missing)', 'colour=red']
        >>> encoder.transform(X)[:, 2]
        array([1., 0., 1., 0.], dtype=float32)
    """

    def __init__(
        self,
        kinds: Mapping[str, Kind] | None = None,
        *,
        numbers: str = "scaled",
        text: Any = None,
    ) -> None:
        self.kinds = kinds
        self.numbers = numbers
        self.text = text

    def fit(self, X: Any, y: Any = None) -> Self:
        """Learn the kinds, scales and levels of the columns.

        Args:
            X: A table of pandas, polars or pyarrow, or an array; gaps are allowed.
            y: Ignored.

        Raises:
            InputError: A column holds mixed types, or no column is left.
        """
        if self.numbers not in ("scaled", "bins"):
            raise InputError(f"numbers is {shown(self.numbers)}: choose scaled or bins.")
        frame = self._frame(X, reset=True)
        self.columns_: dict[str, Column] = {}
        self.left_out_: dict[str, str] = {}
        named = self._named_kinds([str(name) for name in frame.columns])
        for name, values in frame.items():
            kind, why = named.get(str(name)), "named in the settings"
            if kind is None:
                kind, why = recognise(str(name), values)
            if kind == "ignore":
                self.left_out_[str(name)] = why
                continue
            how = self.text if kind == "text" else self.numbers
            self.columns_[str(name)] = COLUMNS[kind].fit(str(name), values, how)
        own = [name for name, why in self.left_out_.items() if not why.startswith("named")]
        if own:
            reasons = [f"{shown(name)} ({self.left_out_[name]})" for name in own]
            warnings.warn(
                f"{counted(len(own), 'column')} {are(len(own))} left out: {format_names(reasons)}.",
                InputWarning,
                stacklevel=2,
            )
        if not self.columns_:
            raise NoColumnsError("No column tells the rows apart: add columns of features.")
        return self

    def transform(self, X: Any) -> npt.NDArray[np.float32]:
        """The columns as numbers, (rows, outputs).

        Raises:
            InputError: A column is missing, or holds something else than in training.
        """
        check_is_fitted(self)
        frame = self._frame(X, reset=False)
        parts = [column.encode(name, frame[name]) for name, column in self.columns_.items()]
        return np.concatenate(parts, axis=1)

    @property
    def has_texts(self) -> bool:
        """Whether a column holds prose."""
        return any(isinstance(one, TextColumn) for one in self.columns_.values())

    @property
    def n_cut(self) -> int:
        texts = [one for one in self.columns_.values() if isinstance(one, TextColumn)]
        return sum(getattr(one.encoder, "n_cut", 0) for one in texts)

    def report_texts(self, on_progress: Callable[[int, int], object] | None) -> None:
        """Have a pretrained encoder of texts call this with the texts that are done, and all."""
        columns = getattr(self, "columns_", {}).values()
        found = [self.text, *(one.encoder for one in columns if isinstance(one, TextColumn))]
        for one in found:
            if isinstance(one, PretrainedText):
                one.on_progress = on_progress

    @property
    def n_beside(self) -> int:
        """The number of features that are joined with the encoded columns."""
        return len(self.beside_[0]) if hasattr(self, "beside_") else 0

    def fit_beside(self, features: Numbers, encoded: Numbers) -> Self:
        """Learn how features of pictures, or of a file, are joined with the encoded columns.

        However many features there are, together they vary `BESIDE_SHARE` times as much.
        """
        deviation = features.std(0, dtype=np.float64)
        deviation[deviation <= SMALLEST * np.abs(features).max(0)] = np.inf
        total = BESIDE_SHARE * encoded.var(0, dtype=np.float64).sum()
        share = np.sqrt(total / max(np.isfinite(deviation).sum(), 1))
        self.beside_ = np.stack([features.mean(0, dtype=np.float64), share / deviation])
        return self

    def join(self, features: Numbers, encoded: Numbers) -> npt.NDArray[np.float32]:
        """Features, scaled as `fit_beside` has learned, before the encoded columns of their rows.

        Raises:
            InputError: There are more or fewer features than in training.
        """
        center, scale = self.beside_
        if features.shape[1] != len(center):
            raise InputError(
                f"There are {counted(features.shape[1], 'feature')} beside the columns, but the "
                f"run was trained on {len(center):,}: give features of the same kind."
            )
        return np.concatenate([(features - center) * scale, encoded], axis=1, dtype=np.float32)

    def get_feature_names_out(self, input_features: Any = None) -> npt.NDArray[np.object_]:
        """The name of each output, such as `colour=red`."""
        check_is_fitted(self)
        found = [f"{name}{own}" for name, one in self.columns_.items() for own in one.names]
        return np.asarray(found, dtype=object)

    def describe(self) -> str:
        """What the columns were taken for, such as "6 columns: 3 categories, 3 numbers"."""
        check_is_fitted(self)
        kinds = Counter(kind_of(column) for column in self.columns_.values())
        found = [counted(n, kind, PLURALS[kind]) for kind, n in sorted(kinds.items())]
        return f"{counted(len(self.columns_), 'column')}: {', '.join(found)}"

    # ---- saving ----------------------------------------------------------------------------------

    def record(self) -> tuple[dict[str, Any], Arrays]:
        """What was learned, as values that JSON has, and arrays."""
        check_is_fitted(self)
        columns: list[dict[str, Any]] = []
        arrays: Arrays = {}
        for place, (name, column) in enumerate(self.columns_.items()):
            values: dict[str, Any]
            if isinstance(column, TextColumn):
                values, own = column.record()
                arrays |= {f"{place}.{key}": array for key, array in own.items()}
            else:
                values = asdict(column)
            columns.append({"name": name, "kind": kind_of(column), "values": values})
        if hasattr(self, "beside_"):
            arrays[BESIDE] = self.beside_
        return {"columns": columns, "left_out": self.left_out_, "numbers": self.numbers}, arrays

    @classmethod
    def from_record(cls, record: Mapping[str, Any], arrays: Mapping[str, Any]) -> Self:
        """The fitted encoder that `record` describes.

        Raises:
            InputError: The record is damaged.
        """
        try:
            made = cls(numbers=record["numbers"])
            made.left_out_ = dict(record["left_out"])
            made.columns_ = {}
            for place, column in enumerate(record["columns"]):
                kind, values = COLUMNS[column["kind"]], column["values"]
                own = {
                    key.partition(".")[2]: array
                    for key, array in arrays.items()
                    if key.partition(".")[0] == str(place)
                }
                if kind is TextColumn:
                    made.columns_[column["name"]] = TextColumn.from_record(values, own)
                else:
                    made.columns_[column["name"]] = with_settings(kind, by_full_name(kind, values))
            if BESIDE in arrays:
                made.beside_ = np.asarray(arrays[BESIDE], dtype=np.float64).reshape(2, -1)
        except InputError:
            raise
        except (KeyError, TypeError, AttributeError, ValueError):
            raise InputError("The description of the columns is damaged: train again.") from None
        made.feature_names_in_ = np.asarray(list(made.columns_), dtype=object)
        made.n_features_in_ = len(made.columns_)
        return made

    # ---- details ---------------------------------------------------------------------------------

    def _frame(self, X: Any, *, reset: bool) -> Any:
        """The columns as a DataFrame, checked as scikit-learn does."""
        import pandas as pd

        frame = pandas_frame(X)
        if frame is not None:
            missing = [] if reset else [name for name in self.columns_ if name not in frame]
            if missing:
                raise InputError(f"The table has no column {format_names(missing)}.")
            if reset:
                if len(set(map(str, frame.columns))) < len(frame.columns):
                    raise InputError("Two columns have the same name: rename one.")
                self.n_features_in_ = frame.shape[1]
                self.feature_names_in_ = np.asarray([*map(str, frame.columns)], dtype=object)
            if not len(frame) or not len(frame.columns):
                raise InputError("The table has no rows, or no columns.")
            return frame.rename(columns=str)
        how: dict[str, Any] = {"dtype": None, "ensure_all_finite": False, "estimator": self}
        how["ensure_min_samples"] = 2 if reset else 1
        array = check_array(X, **how)
        if array.dtype.kind in "fc":
            check_array(array, ensure_all_finite="allow-nan", estimator=self)
        validate_data(self, array, reset=reset, skip_check_array=True)
        names = [f"x{place}" for place in range(array.shape[1])]
        return pd.DataFrame(array, columns=names).infer_objects()

    def _named_kinds(self, names: list[str]) -> dict[str, Kind]:
        found: dict[str, Kind] = {}
        for pattern, kind in (self.kinds or {}).items():
            if kind not in KINDS:
                raise InputError(
                    f"The kind of {shown(pattern)} is {shown(kind)}: choose {', '.join(KINDS)}."
                )
            fitting = [name for name in names if fnmatchcase(name, pattern) or name == pattern]
            if not fitting:
                raise InputError(
                    f"There is no column {shown(pattern)}: the table has {format_names(names)}."
                )
            found |= dict.fromkeys(fitting, kind)
        return found

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []  # it is always float32
        tags.input_tags.allow_nan = tags.input_tags.string = tags.input_tags.categorical = True
        return tags


def needs_encoding(X: Any) -> bool:
    """Whether a table or an array holds anything but numbers, or has gaps."""
    import pandas as pd

    frame = pandas_frame(X)
    if frame is not None:
        plain = all(pd.api.types.is_numeric_dtype(kind) for kind in frame.dtypes)
        return not plain or bool(frame.isna().to_numpy().any())
    array = np.asarray(X)
    if array.ndim != 2:
        return False
    gaps = array.dtype.kind == "f" and bool(np.isnan(array).any())
    return gaps or array.dtype.kind in "OUSM"


def kind_of(column: Column) -> str:
    """The kind of a fitted column."""
    return next(kind for kind, cls in COLUMNS.items() if isinstance(column, cls))
