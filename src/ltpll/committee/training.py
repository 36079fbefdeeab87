"""Training of a committee: one cross-validation for all members, and weights from held-out sets."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from sklearn.base import clone

from ltpll.candidates import Candidates
from ltpll.columns import PiecewiseLinear
from ltpll.columns.bins import BINS
from ltpll.committee.members import (
    Member,
    NetworkMember,
    SoftLabelMember,
    all_classes,
    classifier_of,
    content_of,
)
from ltpll.committee.mixture import floored_shares, inside_sets, mixture_weights, with_shares
from ltpll.committee.shared_sets import SharedSets
from ltpll.errors import InputError
from ltpll.estimator import Schedule
from ltpll.evaluation.set_information import SetInformation, set_information
from ltpll.folds import Rows, check_folds, fold_splits
from ltpll.formatting import counted
from ltpll.training.callbacks import Progress
from ltpll.training.checkpoint import Tensors
from ltpll.training.compatibility import check_features_differ
from ltpll.training.fold_training import (
    FROM_THE_START,
    FoldRun,
    KeptFolds,
    LockstepRuns,
    in_lockstep,
    parallel_runs,
    train_in_processes,
)
from ltpll.training.job import Part, Stage

Shares = npt.NDArray[np.float32]
Numbers = npt.NDArray[np.float64]
LEAST_WEIGHT = 0.02  # members with less are left out
TRIAL_ROWS, TRIAL_FOLDS = 20_000, 3  # with more rows, members are first tried on a sample
MOST_KEPT, WORTHWHILE = 3, 0.1  # members after the trial, and the least weight of each
ROUNDS = 3  # in which weights and class shares follow from each other
MOST_VALUES = 2**28  # rows × classes × members, of two bytes each
ROWS_AT_ONCE = 20_000  # that are read in bins for a prediction
MOST_BYTES = 2**28  # of all rows in bins that are kept in memory
CHECKPOINT_SECONDS = 20.0  # between two checkpoints of a run
LEAST_SOFT = 1e-4  # that a candidate weighs for a network that learns from soft labels
SOFT_EPOCHS = 30  # what a run of another member takes, in epochs of a network
KEPT = "member-*.safetensors"
PROBABILITIES, HELD_OUT = "probabilities", "held_out"
AGAIN = 0.125  # of the epochs, for networks that start from earlier ones
AUTO = "auto"


class EarlierCommittee(NamedTuple):
    """A committee that was trained on the same rows before, perhaps with other sets."""

    folder: Path
    """Where its networks are kept, with the rows that each of them has not seen."""
    weights: Mapping[str, float]


class FittedMember(NamedTuple):
    """A member that was trained on all rows."""

    name: str
    weight: float
    classifier: Any
    bins: PiecewiseLinear | None
    mean: Numbers
    """Its mean prediction of rows that it was not trained on, (classes,)."""

    def probabilities(self, x: npt.NDArray[Any], shared: Numbers) -> Shares:
        """What it predicts where classes have the shares that all members agree on."""
        n_classes = len(shared)
        if self.bins is None:
            found = all_classes(self.classifier, x, n_classes)
        else:
            found = np.empty((len(x), n_classes), dtype=np.float32)
            for first in range(0, len(x), ROWS_AT_ONCE):
                rows = slice(first, first + ROWS_AT_ONCE)
                found[rows] = all_classes(self.classifier, self.bins.transform(x[rows]), n_classes)
        return with_shares(found, self.mean, shared)


class TrainedCommittee(NamedTuple):
    """What the training of a committee has found."""

    members: list[FittedMember]
    prior: Numbers
    """The class shares that all members agree on, (classes,)."""
    out_of_fold: Shares
    """The mixture of members that were not trained on the row, (rows, classes)."""
    own: Shares
    """The mixture of the members that were trained on all rows, (rows, classes)."""
    information: SetInformation
    weights: dict[str, float]
    """The weight of every member that was tried."""


@dataclass(frozen=True)
class _Tried:
    """What a member says about rows that it was not trained on, (rows, classes)."""

    member: Member
    out_of_fold: npt.NDArray[np.float16]

    @property
    def lifts(self) -> bool:
        return isinstance(self.member, NetworkMember) and self.member.lifts

    @property
    def mean(self) -> Numbers:
        return floored_shares(self.out_of_fold.mean(0, dtype=np.float64), len(self.out_of_fold))


@dataclass(frozen=True, eq=False)
class _RowsInBins:
    """Features that are put into bins when some rows are read."""

    x: npt.NDArray[Any]
    bins: PiecewiseLinear

    def __getitem__(self, rows: Any) -> npt.NDArray[Any]:
        found: npt.NDArray[Any] = self.bins.transform(self.x[rows])
        return found


class CommitteeTraining:
    """The training runs of a committee: of each member, one per fold, and one on all rows.

    Networks that can be trained in lockstep are trained on the folds and on all rows at once. Others
    are trained on all rows only if they weigh anything. With many rows, all members are tried on a
    sample first, and only the best of them are trained on more.

    Args:
        members: The members, of which at least one is a network.
        x: The features, (rows, features).
        candidates: The candidate sets.
        folds: The number of folds.
        seed: Which rows are in which fold, and in the sample.
        shared_sets: The groups of rows that share a set, if there are any.

    Attributes:
        splits: The rows to train on and to predict of each run of a member; those of the last are
            all rows.
        trial: The training on a sample; None if rows are few.
        parts: All runs, those of the trial first and those on all rows last, as parts of a job.

    Raises:
        InputError: The table is too large, or too small for the folds.
    """

    def __init__(
        self,
        members: Sequence[Member],
        x: npt.NDArray[Any],
        candidates: Candidates,
        folds: int,
        seed: int,
        shared_sets: SharedSets | None = None,
        earlier: EarlierCommittee | None = None,
    ) -> None:
        names = [member.name for member in members]
        if len(set(names)) < len(names):
            raise InputError("Two members of the committee have the same name: rename one.")
        if not any(_teaches(one) for one in members):
            raise InputError("A committee needs a network, from whose labels others learn.")
        if not fits_memory(candidates, len(members)):
            size = f"{counted(len(x), 'row')} × {candidates.n_classes:,} classes"
            raise InputError(f"{size} are too many for a committee: use PartialLabelClassifier.")
        self.trains_all_rows = True
        # In the order of their training, in which progress is counted.
        self.members = sorted(members, key=_turn)
        self.x, self.candidates, self.shared_sets = x, candidates, shared_sets
        every = np.arange(len(x))
        candidates.check_learnable()
        check_features_differ(torch.from_numpy(x))
        self.trial: CommitteeTraining | None = None
        if len(x) > TRIAL_ROWS:
            rows = np.random.default_rng(seed).choice(len(x), TRIAL_ROWS, replace=False)
            rows.sort()
            sample = x[rows], candidates.select(rows)
            self.trial = CommitteeTraining(members, *sample, TRIAL_FOLDS, seed)
            self.trial.trains_all_rows = False
        self.parts: list[Part] = [] if self.trial is None else list(self.trial.parts)
        self.splits: list[tuple[Rows, Rows]] = fold_splits(candidates, folds, seed)
        last = len(self.splits)  # groups may be fewer than folds
        runs = [(member, k) for member in self.members for k in range(last)]
        runs += [(member, last) for member in self.members]
        self._numbers = {run: number for number, run in enumerate(runs, len(self.parts))}
        self.earlier = earlier
        if earlier is not None:
            self.splits = self._earlier_splits(last)
        check_folds(x, candidates, self.splits)
        self.splits.append((every, every))
        self.parts += [self._part(*run) for run in runs]

    def _earlier_splits(self, folds: int) -> list[tuple[Rows, Rows]]:
        """The folds of the earlier committee: a network must not start from one that has seen the
        rows on which it is judged.
        """
        assert self.earlier is not None
        kept, every = KeptFolds(self.earlier.folder, KEPT), np.arange(len(self.x))
        networks = [one for one in self.members if isinstance(one, NetworkMember)]
        found = []
        for k in range(folds):
            of_fold = (kept.read(self._number(one, k)) for one in networks)
            tensors = next((one for one in of_fold if one is not None), None)
            if tensors is None:
                lost = f"The run {self.earlier.folder} has lost or damaged files of its networks"
                raise InputError(f"{lost}: {FROM_THE_START}.")
            held_out = tensors[HELD_OUT].numpy()
            found.append((np.setdiff1d(every, held_out), held_out))
        return found

    def _part(self, member: Member, k: int) -> Part:
        n, epochs, batch_size = len(self.splits[k][0]), SOFT_EPOCHS, len(self.splits[k][0])
        if isinstance(member, NetworkMember):
            epochs, batch_size = self._schedule(member, k)
        return Part.of_rows(f"{member.name}, {k + 1} of {len(self.splits)}", n, epochs, batch_size)

    def _schedule(self, member: NetworkMember, k: int) -> Schedule:
        """How long a run takes: all runs take as many steps, unless `epochs` are given.

        So they can be trained in lockstep. The batches are those of the run on all rows.
        """
        sizes, classifier = [len(rows) for rows, _ in self.splits], member.classifier
        n = sizes[k]
        if classifier.epochs == AUTO:
            n, batch_size = min(sizes), classifier.schedule(max(sizes)).batch_size
            classifier = clone(classifier).set_params(batch_size=batch_size)
        schedule: Schedule = classifier.schedule(n)
        if self.earlier is not None:
            schedule = schedule._replace(epochs=math.ceil(AGAIN * schedule.epochs))
        return schedule

    def set_network_params(self, **params: Any) -> None:
        """Set parameters of all networks that the runs train."""
        for member in self.members:  # those of the trial are the same objects
            if isinstance(member, NetworkMember):
                member.classifier.set_params(**params)

    def stage(self, workers: int | None = 1) -> Stage:
        """All runs as a stage of a job, of which `workers` networks are trained at once on a CPU.

        None decides by the amount of work and the machine.
        """
        networks = [one.classifier for one in self.members if isinstance(one, NetworkMember)]
        rows = sum(part.epochs * part.cost for part in self.parts)
        binned = any(isinstance(one, NetworkMember) and one.bins for one in self.members)
        width = self.x.shape[1] * (1 + BINS * binned)
        widest = np.broadcast_to(np.float32(0), (len(self.x), width))  # takes no memory
        workers = parallel_runs(workers, networks, widest, rows, len(self.parts))
        return Stage(self.parts, workers, "members")

    def run(
        self,
        folder: Path | None = None,
        stage: Stage | None = None,
        progress: Progress | None = None,
    ) -> TrainedCommittee:
        """Train all members, and weigh them.

        Args:
            folder: Where runs of networks are kept, so that an interrupted call can be resumed.
            stage: What `stage` returned. By default, the runs follow one another.
            progress: Reports the progress; its plan contains the stage.
        """
        stage = stage or self.stage()
        if progress is None:
            progress = Progress(write=lambda line: None)
            progress.plan_stages([stage])
        with nullcontext(folder) if folder else TemporaryDirectory(prefix="ltpll-") as place:
            kept = KeptFolds(Path(place), KEPT, CHECKPOINT_SECONDS)
            self._kept, self._stage, self._progress = kept, stage, progress
            if self.trial is not None:
                self.trial._kept, self.trial._stage, self.trial._progress = kept, stage, progress
            if self.earlier is not None:
                if self.trial is not None:
                    for member in self.trial.members:
                        self.trial._skip(member, range(len(self.trial.splits)))
                weights = np.asarray(
                    [self.earlier.weights.get(one.name, 0) for one in self.members]
                )
                self._keep_the_best(self.members, weights, int((weights > 0).sum()))
            elif self.trial is not None:
                tried, weights = self.trial._weighed()[:2]
                most = min(MOST_KEPT, max(1, int((weights >= WORTHWHILE).sum())))
                self._keep_the_best([one.member for one in tried], weights, most)
            found = self._trained(*self._weighed())
        # The last runs may be those of an interrupted call.
        progress.start_part(stage.parts[-1]).report_epochs(stage.parts[-1].epochs)
        return found

    def _keep_the_best(self, members: Sequence[Member], weights: Numbers, most: int) -> None:
        """Keep the members that weigh most, with a network among them."""
        order = [members[k] for k in np.argsort(-weights, kind="stable")]
        best = order[:most]
        if not any(_teaches(one) for one in best):
            usual = [one for one in self.members if _teaches(one)]
            best.append(next((one for one in order if one in usual), usual[0]))
        for member in self.members:
            if member not in best:
                self._skip(member, range(len(self.splits)))
        self.members = [one for one in self.members if one in best]

    def _skip(self, member: Member, runs: Iterable[int]) -> None:
        """Count runs that are not needed as finished."""
        for k in runs:
            part = self._stage.parts[self._number(member, k)]
            part.done = part.epochs

    def _weighed(self) -> tuple[list[_Tried], Numbers, Shares, Numbers]:
        """Members that count, their weights, the soft labels of networks, and the class shares."""
        networks = [one for one in self.members if isinstance(one, NetworkMember)]
        first = [one for one in networks if not one.told]
        tried = self._tried(first, self.candidates)
        usual = [one.out_of_fold for one in tried if not one.lifts]
        mean = _sum([1 / len(usual)] * len(usual), usual)
        shared = self._shares_of(mean)
        weights, shared = self._agreed(tried, shared)
        soft = self._soft_labels(_mixture(tried, weights, shared))
        if told := [one for one in networks if one.told]:
            tried += self._tried(told, weighted_by(soft, self.candidates))
        others = [one for one in self.members if isinstance(one, SoftLabelMember)]
        tried += [self._out_of_fold_by_soft(one, soft) for one in others]
        weights, shared = self._agreed(tried, shared)
        enough = weights >= min(LEAST_WEIGHT, weights.max())
        tried = [one for one, is_enough in zip(tried, enough, strict=True) if is_enough]
        return tried, weights[enough] / weights[enough].sum(), soft, shared

    def _trained(
        self, tried: list[_Tried], weights: Numbers, soft: Shares, shared: Numbers
    ) -> TrainedCommittee:
        trained = self._on_all_rows(tried, weights.tolist(), soft)
        own = _sum(weights, (one.probabilities(self.x, shared) for one in trained))
        mixture = _mixture(tried, weights, shared)
        if self.shared_sets is not None:
            own, mixture = map(self.shared_sets.informed, (own, mixture))
        by_name = dict.fromkeys((member.name for member, _ in self._numbers), 0.0)
        return TrainedCommittee(
            trained,
            shared,
            mixture,
            own,
            set_information(mixture, self.candidates),
            by_name | {one.name: one.weight for one in trained},
        )

    # ---- networks --------------------------------------------------------------------------------

    @cached_property
    def _bins(self) -> PiecewiseLinear:
        return PiecewiseLinear().fit(self.x)

    @cached_property
    def _in_bins(self) -> npt.NDArray[Any] | _RowsInBins:
        """The features in bins, of which there are many, and perhaps no member needs them."""
        found = _RowsInBins(self.x, self._bins)
        return found if found[:1].nbytes * len(self.x) > MOST_BYTES else found[:]

    def _input_of(self, member: NetworkMember) -> npt.NDArray[Any] | _RowsInBins:
        return self._in_bins if member.bins else self.x

    def _number(self, member: Member, k: int) -> int:
        return self._numbers[member, k]

    def _fold_run(self, member: NetworkMember, k: int) -> FoldRun:
        x, split, number = self._input_of(member), self.splits[k], self._number(member, k)
        classifier = clone(member.classifier).set_params(**self._schedule(member, k)._asdict())
        predict, start = partial(predicted, rows=split[1], n=len(self.x)), None
        if self.earlier is not None:
            file = KeptFolds(self.earlier.folder, KEPT).predictions(number)
            start = file if file.exists() else None
        return FoldRun(number, classifier, x, split, predict, earlier=start)

    def _tried(self, networks: Sequence[NetworkMember], sets: Candidates) -> list[_Tried]:
        """What networks that learn from these sets say about rows of other folds."""
        last = len(self.splits) - 1
        runs = [self._fold_run(one, k) for one in networks for k in range(last)]
        if self.trains_all_rows:
            free = [one for one in networks if one.classifier.epochs == AUTO]
            runs += [self._fold_run(one, last) for one in free]
        on_all = {self._number(one, last) for one in networks}
        joined = in_lockstep(runs)
        self._train([one for one in joined if not {*one.numbers} <= on_all], sets)
        return [self._out_of_fold(one) for one in networks]

    def _train(self, runs: Sequence[FoldRun | LockstepRuns], sets: Candidates) -> None:
        """Train those of the runs that are not kept yet."""
        stage, progress, kept = self._stage, self._progress, self._kept
        train_in_processes(runs, sets, kept, stage, progress)
        for one in runs:
            if all(kept.read(number) is not None for number in one.numbers):
                kept.tidy(*one.numbers)
            else:
                progress.start_part(*(stage.parts[number] for number in one.numbers))
                one.train(sets, kept, [progress])

    def _run_of(self, member: NetworkMember, k: int) -> Tensors:
        """What a run has found."""
        found = self._kept.read(self._number(member, k))
        assert found is not None
        return found

    def _out_of_fold(self, member: NetworkMember) -> _Tried:
        found = np.zeros((len(self.x), self.candidates.n_classes), dtype=np.float16)
        for k, (_, rows) in enumerate(self.splits[:-1]):
            found[rows] = self._run_of(member, k)[PROBABILITIES].numpy()
        return _Tried(member, found)

    # ---- members that learn from soft labels -----------------------------------------------------

    def _fitted_to_soft(self, member: SoftLabelMember, k: int, soft: Shares) -> Any:
        part = self._stage.parts[self._number(member, k)]
        self._progress.start_part(part)
        rows, _ = self.splits[k]
        classifier = member.fitted(self.x[rows], soft[rows], of_fold=k < len(self.splits) - 1)
        self._progress.report_epochs(part.epochs)
        return classifier

    def _out_of_fold_by_soft(self, member: SoftLabelMember, soft: Shares) -> _Tried:
        found = np.zeros(soft.shape, dtype=np.float16)
        for k, (_, rows) in enumerate(self.splits[:-1]):
            classifier = self._fitted_to_soft(member, k, soft)
            found[rows] = all_classes(classifier, self.x[rows], soft.shape[1])
        return _Tried(member, found)

    # ---- mixtures --------------------------------------------------------------------------------

    def _on_all_rows(
        self, tried: Sequence[_Tried], weights: Sequence[float], soft: Shares
    ) -> list[FittedMember]:
        last = len(self.splits) - 1
        counting = [one.member for one in tried]
        for member in self.members:
            if member not in counting:
                self._skip(member, [last])
        networks = [one for one in counting if isinstance(one, NetworkMember)]
        self._train(
            [self._fold_run(one, last) for one in networks if not one.told], self.candidates
        )
        if told := [self._fold_run(one, last) for one in networks if one.told]:
            self._train(told, weighted_by(soft, self.candidates))
        found = []
        for one, weight in zip(tried, weights, strict=True):
            member, bins = one.member, None
            if isinstance(member, NetworkMember):
                tensors = self._run_of(member, last)
                classifier: Any = classifier_of(tensors, member.classifier.device)
                bins = self._bins if member.bins else None
            else:
                classifier = self._fitted_to_soft(member, last, soft)
            found.append(FittedMember(member.name, weight, classifier, bins, one.mean))
        return found

    def _agreed(self, tried: Sequence[_Tried], shared: Numbers) -> tuple[Numbers, Numbers]:
        """The weights of members that agree on class shares, and the shares that these imply.

        Members that lift rare classes have no say in the shares.
        """
        lifts = [one.lifts for one in tried]
        for turn in range(ROUNDS):
            agreed = [with_shares(one.out_of_fold, one.mean, shared) for one in tried]
            weights = mixture_weights(agreed, self.candidates)
            if turn < ROUNDS - 1:
                usual = np.where(lifts, 0, weights)
                shared = self._shares_of(_sum(usual / usual.sum(), agreed))
        return weights, shared

    def _shares_of(self, probabilities: Shares) -> Numbers:
        return floored_shares(self._soft_labels(probabilities).mean(0), len(self.x))

    def _soft_labels(self, probabilities: Shares) -> Shares:
        soft = inside_sets(probabilities, self.candidates)
        return soft if self.shared_sets is None else self.shared_sets.informed(soft)


def _teaches(member: Member) -> bool:
    """Whether others learn from the soft labels of this member."""
    return isinstance(member, NetworkMember) and not (member.lifts or member.told)


def _turn(member: Member) -> int:
    """Networks are trained first, and after them members that depend on their predictions."""
    return 0 if _teaches(member) else 1 if isinstance(member, NetworkMember) else 2


def weighted_by(soft: Shares, candidates: Candidates) -> Candidates:
    """The same sets, whose candidates weigh as much as soft labels say."""
    rows = np.repeat(np.arange(len(soft)), candidates.sizes.cpu().numpy())
    return candidates.with_weights(soft[rows, candidates.labels.cpu().numpy()] + LEAST_SOFT)


def fits_memory(candidates: Candidates, n_members: int = 8) -> bool:
    """Whether the predictions of all members fit into memory."""
    if len(candidates) > TRIAL_ROWS:
        n_members = MOST_KEPT + 1
    return len(candidates) * candidates.n_classes * n_members <= MOST_VALUES


def predicted(
    classifier: Any, x: npt.NDArray[Any], sets: Candidates, *, rows: Rows, n: int
) -> Tensors:
    """What is kept of a run: the classifier and, unless it saw all n rows, what it says of others."""
    found = content_of(classifier)
    if len(x) < n:
        shares = classifier.set_params(goal="accuracy").predict_proba(x)
        found |= {PROBABILITIES: torch.from_numpy(shares).half(), HELD_OUT: torch.from_numpy(rows)}
    return found


def _mixture(tried: Sequence[_Tried], weights: Numbers, shared: Numbers) -> Shares:
    """The mixture of members that agree on the class shares."""
    return _sum(weights, (with_shares(one.out_of_fold, one.mean, shared) for one in tried))


def _sum(weights: Iterable[float], members: Iterable[npt.NDArray[Any]]) -> Shares:
    total: Any = 0.0
    for weight, one in zip(weights, members, strict=True):
        total = total + np.float32(weight) * np.asarray(one, dtype=np.float32)
    found: Shares = total
    return found
