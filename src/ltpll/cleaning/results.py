"""Cleaning: the label believed in every example, how sure that is and what speaks against it; tables of classes and of annotators."""

from __future__ import annotations

import io
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ltpll.cleaning.table_schema import check_tables, problem_of_record
from ltpll.data.readers.memory_limits import check_expansion
from ltpll.data.readers.parquet_footer import expanded_size
from ltpll.data.writers import write_table
from ltpll.errors import InputError, first_line
from ltpll.runs.checksums import MARKER, checksums, read_checked
from ltpll.runs.run import Record, record_of

if TYPE_CHECKING:
    from ltpll.candidates import Candidates
    from ltpll.data.readers.tables import LabelTable

EXAMPLES, VOTES, PICTURES = "examples.parquet", "votes.parquet", "pictures.parquet"
NOTED = 150  # examples of each kind that a report shows
PICTURE_SIDE = 160
Numbers = npt.NDArray[np.int64]
Shares = npt.NDArray[np.float32]
Columns = dict[str, Any]


@dataclass(frozen=True)
class Cleaning:
    """One entry for each example; labels are class numbers, and `outside` is −1 where a set holds every class."""

    label: Numbers
    confidence: Shares
    runner_up: Numbers  # the label itself where it is the only candidate
    margin: Shares
    inside_probability: Shares  # of the likeliest candidate, according to whoever is named in judged_by
    outside: Numbers  # the likeliest label that is no candidate
    outside_probability: Shares
    judged_by: npt.NDArray[np.object_]  # "folds" or "held out": a classifier that never saw the row's set; "own": one that learned it

    @property
    def suspicion(self) -> Shares:
        """By how much a label outside the set is preferred."""
        return self.outside_probability - self.inside_probability

    @property
    def issue(self) -> npt.NDArray[np.bool_]:
        """Whether the set seems to lack the true label."""
        return self.suspicion > 0


def noteworthy(cleaning: Cleaning) -> dict[str, Numbers]:
    """The examples whose label is least certain, and those whose set is most suspicious, worst first."""
    uncertain = np.argsort(cleaning.margin, kind="stable")
    suspicious = np.argsort(-cleaning.suspicion, kind="stable")
    return {
        "uncertain": uncertain[cleaning.label[uncertain] != cleaning.runner_up[uncertain]][:NOTED],
        "suspicious": suspicious[cleaning.issue[suspicious]][:NOTED],
    }


# ---- keeping ----------------------------------------------------------------------------------------------------------


def keep_tables(folder: Path, table: LabelTable, cleaning: Cleaning) -> None:
    """Everything that cleaning and reports need, so that neither the table nor the network has to be read again."""
    import pyarrow as pa  # type: ignore[import-untyped]

    assert table.candidates is not None
    n = len(table)
    offsets, labels = (pa.array(part.numpy().astype(np.int32)) for part in (table.candidates.offsets, table.candidates.labels))
    columns: Columns = {
        "id": table.ids,
        "path": [None] * n if table.paths is None else table.paths,
        "split": [None] * n if table.splits is None else table.splits,
        "candidates": pa.ListArray.from_arrays(offsets, labels),
        "true": [None] * n if table.labels is None else [None if label < 0 else int(label) for label in table.labels.tolist()],
        **{name: getattr(cleaning, name) for name in Cleaning.__dataclass_fields__},
    }
    write_table(folder / EXAMPLES, columns)
    if table.votes is not None:
        votes = table.votes
        names = np.asarray(votes.names, dtype=object)
        write_table(folder / VOTES, {"row": votes.rows, "annotator": names[votes.annotators], "label": votes.labels})


def keep_pictures(folder: Path, images: Path, table: LabelTable, noted: dict[str, Numbers]) -> None:
    """Small copies of the pictures that a report shows; the originals may be elsewhere by then."""
    from PIL import Image

    from ltpll.data.readers.pictures import read_pictures

    rows = np.unique(np.concatenate(list(noted.values())))
    paths = table.ids if table.paths is None else table.paths
    if not len(rows):
        return
    found = read_pictures(images, paths[rows].tolist(), PICTURE_SIDE, on_error="skip")
    content = []
    for picture in found.images:
        stream = io.BytesIO()
        Image.fromarray(picture).save(stream, "JPEG", quality=80)
        content.append(stream.getvalue())
    write_table(folder / PICTURES, {"row": rows[found.kept], "jpeg": content})


# ---- reading back -----------------------------------------------------------------------------------------------------


class Votes(NamedTuple):
    """Entry k is one annotator's label for one example."""

    rows: Numbers
    annotators: npt.NDArray[np.object_]
    labels: Numbers


@dataclass(frozen=True)
class Cleaned:
    """A finished run on own data: its record, its examples, what was made of them, and the votes that sets came from, if any."""

    record: Record
    ids: npt.NDArray[np.object_]
    paths: npt.NDArray[np.object_] | None
    splits: npt.NDArray[np.object_] | None
    offsets: Numbers
    candidates: Numbers  # those of row i at offsets[i]:offsets[i + 1]
    true: npt.NDArray[np.object_]
    cleaning: Cleaning
    votes: Votes | None
    pictures: dict[int, bytes]

    @property
    def classes(self) -> npt.NDArray[np.object_]:
        return np.asarray(self.record["classes"], dtype=object)

    @property
    def sizes(self) -> Numbers:
        return np.diff(self.offsets)

    @property
    def owners(self) -> Numbers:
        """The row of each candidate."""
        return np.repeat(np.arange(len(self.ids)), self.sizes)

    def sets(self, separator: str = "|") -> list[str]:
        names = self.classes[self.candidates].tolist()
        offsets = self.offsets.tolist()
        return [separator.join(names[a:b]) for a, b in pairwise(offsets)]


def own_record(folder: Path) -> Record:
    """The record of a finished run on own data; anything else is refused."""
    if not folder.is_dir():
        raise InputError(f"There is no run {folder}.")
    if not (folder / MARKER).exists():
        unfinished = (folder / "config.json").exists()
        raise InputError(
            f"The run {folder} is not finished: rerun the command that started it." if unfinished else f"{folder} is not a run folder."
        )
    record = record_of(folder)
    if record["config"].get("experiment") != "own":
        raise InputError(
            f"{folder} is a run of a benchmark, not of a table of your own: give the folder that `ltpll train TABLE --out` made."
        )
    problem = problem_of_record(record)
    if problem is not None:
        raise InputError(f"The record of the run {folder} is damaged (it has {problem}): train it again with --fresh.")
    return record


def read_cleaned(folder: Path) -> Cleaned:
    """The kept tables of a run.

    Raises:
        InputError: The run is unfinished, damaged, or not one on own data.
    """
    record = own_record(folder)
    try:
        kept = checksums(folder)
        found = _kept_table(folder / EXAMPLES).combine_chunks()
        votes = _kept_table(folder / VOTES) if VOTES in kept else None
        pictures = _kept_table(folder / PICTURES).to_pydict() if PICTURES in kept else {"row": [], "jpeg": []}

        def column(name: str) -> Any:
            return found.column(name).to_numpy()

        lists = found.column("candidates").combine_chunks()
        texts = {name: found.column(name) for name in ("path", "split")}
        cleaned = Cleaned(
            record=record,
            ids=column("id"),
            paths=None if texts["path"].null_count == len(found) else column("path"),
            splits=None if texts["split"].null_count == len(found) else column("split"),
            offsets=np.asarray(lists.offsets).astype(np.int64),
            candidates=lists.values.to_numpy().astype(np.int64),
            true=np.asarray(found.column("true").to_pylist(), dtype=object),
            cleaning=Cleaning(**{name: column(name) for name in Cleaning.__dataclass_fields__}),
            votes=None if votes is None else Votes(*(votes.column(name).to_numpy() for name in ("row", "annotator", "label"))),
            pictures=dict(zip(pictures["row"], pictures["jpeg"], strict=True)),
        )
        check_tables(cleaned)
    except InputError:
        raise
    except Exception as error:  # of pyarrow about a damaged file, and of what is done with columns of the wrong kind
        raise InputError(f"The run {folder} is damaged ({first_line(error)}): train it again with --fresh.") from None
    return cleaned


def sets_of(run: Cleaned) -> tuple[Candidates, list[int] | None]:
    """The candidate sets of a run, and the true labels if all of them are known."""
    from ltpll.candidates import Candidates

    sets = Candidates.from_flat(run.offsets, run.candidates, len(run.classes), tuple(run.classes.tolist()))
    labels = run.true.tolist()
    return sets, None if any(label is None for label in labels) else labels


def _kept_table(path: Path) -> Any:
    import pyarrow as pa
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    content = read_checked(path)
    check_expansion(path, len(content), expanded_size(path))
    return pq.read_table(pa.BufferReader(content))


# ---- tables -----------------------------------------------------------------------------------------------------------


def cleaned_columns(run: Cleaned, separator: str = "|") -> Columns:
    """One row an example, in the table's order."""
    names, cleaning = run.classes, run.cleaning
    issue = cleaning.issue
    alone = cleaning.runner_up == cleaning.label
    columns: Columns = {"id": run.ids}
    if run.paths is not None and not np.array_equal(run.paths, run.ids):
        columns["path"] = run.paths
    if run.splits is not None:
        columns["split"] = run.splits
    columns |= {
        "candidates": run.sets(separator),
        "label": names[cleaning.label],
        "confidence": rounded(cleaning.confidence),
        "runner_up": _where(~alone, names[cleaning.runner_up]),
        "margin": rounded(cleaning.margin),
        "set_size": run.sizes,
        "issue": issue,
        "suggestion": _where(issue, names[cleaning.outside]),
        "suspicion": rounded(cleaning.suspicion),
        "judged_by": cleaning.judged_by,
    }
    if any(label is not None for label in run.true.tolist()):
        columns["true_label"] = [None if label is None else names[label] for label in run.true.tolist()]
    return columns


def class_columns(run: Cleaned) -> Columns:
    """One row a class: how often it is a candidate, how often it is believed, and what it is mistaken for."""
    n, cleaning = len(run.classes), run.cleaning
    candidate = np.bincount(run.candidates, minlength=n)
    label = np.bincount(cleaning.label, minlength=n)
    sure = np.bincount(cleaning.label, weights=cleaning.confidence, minlength=n)
    suggested = np.bincount(cleaning.outside[cleaning.issue], minlength=n)
    often, times = believed_instead(run)
    with np.errstate(invalid="ignore", divide="ignore"):
        return {
            "class": run.classes,
            "estimated_prior": rounded(np.asarray(run.record["class_prior"])),
            "candidate_in": candidate,
            "label_of": label,
            "distractor_rate": rounded(1 - label / candidate),  # NaN, an empty cell, for a class that is never a candidate
            "mean_confidence": rounded(sure / label),
            "suggested_for": suggested,
            "most_often_instead": [None if other < 0 else run.classes[other] for other in often.tolist()],
            "times_instead": times,
        }


def believed_instead(run: Cleaned) -> tuple[Numbers, Numbers]:
    """For each class the label most often believed where it was a mere candidate (−1: never was), and how often."""
    n = len(run.classes)
    pairs, counts = confusion_pairs(run)
    best, times = np.full(n, -1, dtype=np.int64), np.zeros(n, dtype=np.int64)
    order = np.argsort(counts, kind="stable")
    best[pairs[order, 1]], times[pairs[order, 1]] = pairs[order, 0], counts[order]  # later ones, the larger, stay
    return best, times


def confusion_pairs(run: Cleaned) -> tuple[npt.NDArray[np.int64], Numbers]:
    """Pairs of a believed label and another candidate of the same set, (pairs, 2), and how many sets have them."""
    n = len(run.classes)
    believed = run.cleaning.label[run.owners]
    other = believed != run.candidates
    keys, counts = np.unique(believed[other] * n + run.candidates[other], return_counts=True)
    return np.stack([keys // n, keys % n], axis=1), counts


def annotator_columns(run: Cleaned) -> Columns:
    """One row an annotator: how many labels for how many examples, and how often the cleaned label, or another annotator, agrees."""
    assert run.votes is not None
    rows, labels = run.votes.rows, run.votes.labels
    names, who = np.unique(run.votes.annotators, return_inverse=True)
    n_classes, n_examples = len(run.classes), len(run.ids)
    # Each pair of annotator and example once, however many labels were given.
    pairs, at = np.unique(who * n_examples + rows, return_inverse=True)
    annotator, example = pairs // n_examples, pairs % n_examples
    right = np.zeros(len(pairs), dtype=bool)
    np.logical_or.at(right, at, labels == run.cleaning.label[rows])
    _, same, votes = np.unique(rows * n_classes + labels, return_inverse=True, return_counts=True)
    shared = np.zeros(len(pairs), dtype=bool)
    np.logical_or.at(shared, at, votes[same] > 1)
    together = np.bincount(example, minlength=n_examples)[example] > 1  # examples that others have labelled too

    def mean(values: npt.NDArray[np.bool_], where: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
        with np.errstate(invalid="ignore"):
            counted = np.bincount(annotator[where], minlength=len(names))
            return np.asarray(np.bincount(annotator[where], weights=values[where], minlength=len(names)) / counted)

    everything = np.ones(len(pairs), dtype=bool)
    return {
        "annotator": names,
        "examples": np.bincount(annotator, minlength=len(names)),
        "labels": np.bincount(who, minlength=len(names)),
        "agreement": rounded(mean(right, everything)),
        "shared_with_others": rounded(mean(shared, together)),
    }


def _where(chosen: npt.NDArray[np.bool_], values: npt.NDArray[np.object_]) -> npt.NDArray[np.object_]:
    """The values in the chosen rows, nothing in the others."""
    kept = np.full(len(values), None, dtype=object)
    kept[chosen] = values[chosen]
    return kept


def rounded(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return values.astype(np.float64).round(4)
