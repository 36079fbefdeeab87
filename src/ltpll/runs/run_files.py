"""Run files: every file that a run writes into its folder, declared once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path


class RunFile(StrEnum):
    """The name of a file or folder in a run folder; `*` stands for a number or a word.

    From this list follow the names that are written, the files that are deleted, in this order,
    when a run is trained from the start, those that no command may overwrite, and those whose
    checksums are in the marker.

    Args:
        checked: Whether the file is read again once the run is finished; checkpoints and folds
            carry their own checksums.
        part: Whether it comes from a training run of its own, which another attempt at the same run
            need not repeat.
    """

    checked: bool
    part: bool

    def __new__(cls, pattern: str, checked: bool = False, part: bool = False) -> RunFile:
        file = str.__new__(cls, pattern)
        file._value_, file.checked, file.part = pattern, checked, part
        return file

    MARKER = "done"  # first, since what is left of an interrupted deletion must not look finished
    CONFIG = "config.json", True  # replaced atomically, and so never missing
    RESULT = "result.json", True
    CHECKPOINT = "checkpoint.safetensors"
    OTHER_CHECKPOINTS = "checkpoint.*.safetensors"  # the previous one, and one that was refused
    LOG = "metrics.jsonl", True  # after the checkpoints, which cannot be resumed without it
    PART_CHECKPOINTS = "checkpoint-*.safetensors", False, True
    MISSING = "missing.json", False, True  # of earlier versions, as comparison.json
    MISSING_FOLDS = "missing-*.safetensors", False, True
    COMPARISON = "comparison.json", False, True
    COMPARISON_FOLDS = "comparison-*.safetensors", False, True
    FOLDS = "fold-*.safetensors", False, True
    MEMBERS = "member-*.safetensors", False, True
    PROGRESS = ".progress-of-*"  # of version 0.2.0
    CLASSIFIER = "classifier.safetensors", True
    BACKBONE = "backbone.safetensors", True
    COLUMNS = "columns.safetensors", True
    EXAMPLES = "examples.parquet", True
    VOTES = "votes.parquet", True
    PICTURES = "pictures.parquet", True
    PROBABILITIES = "probabilities.npy", True
    ANSWERS = "answers.csv"  # of people, which are never deleted
    TENSORBOARD = "tensorboard"  # of benchmarks
    FAILED = "failed.txt"

    def found_in(self, folder: Path) -> list[Path]:
        """The paths of such files in a folder, with temporary ones of killed processes."""
        return [path for pattern in (self.value, f".{self}.*.tmp") for path in folder.glob(pattern)]

    def matches(self, name: str) -> bool:
        """Whether a file of this name is such a file."""
        return Path(name).match(self.value)
