"""The grid of runs behind a table or figure: which experiments it needs, and which are finished."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from ltpll.errors import InputError
from ltpll.extras import EXTRAS
from ltpll.methods import METHODS
from ltpll.rebalancers import REBALANCERS
from ltpll.registry import unknown_name_error
from ltpll.runs.run import Record
from ltpll.settings import as_toml, settings_of
from ltpll_research.benchmark import EDITION, FIRST_EDITION, Experiment
from ltpll_research.paper.catalog import Item, Setting
from ltpll_research.records import finished_runs

MOST_SEEDS = 1000
ALIASES = {"dataset": "data", "rho": "imbalance", "q": "ambiguity"}


def missing_parts(setting: Setting) -> list[str]:
    """The parts of a setting that ltpll does not implement."""
    missing = [name for name in setting["extras"] if name not in EXTRAS]
    missing += [setting["rebalancer"]] if setting["rebalancer"] not in REBALANCERS else []
    return [setting["method"], *missing] if setting["method"] not in METHODS else missing


def experiment_of(setting: Setting, changes: Mapping[str, Any], seed: int) -> Experiment:
    """The experiment of one of the paper's settings, with `changes` to its protocol.

    Another number of epochs shortens the whole protocol, see `shortened`.
    """
    return Experiment.from_mapping({**with_protocol(setting, changes), "seed": seed})


def with_protocol(setting: Setting, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a protocol with these changes."""
    if "epochs" in changes:
        setting = shortened(setting, changes["epochs"])
    if changes.get("schedule", "step") != "step":
        setting = {name: value for name, value in setting.items() if name != "milestones"}
    return {**setting, **changes}


def shortened(setting: Setting, epochs: int) -> Setting:
    """The setting with another number of epochs; milestones and stated stages keep their shares.

    A stage whose length is left to the method has the length that the method chooses for so many
    epochs, such as SoLar's first one on CIFAR-10: a quarter of them, at most 100.
    """
    total = setting.get("epochs", Experiment.epochs)
    changed: dict[str, Any] = {**setting, "epochs": epochs}
    for part, chosen in setting.get("options", {}).items():
        scaled = {
            name: value * epochs // total if name.endswith("_epochs") else value
            for name, value in chosen.items()
        }
        changed["options"] = {**changed["options"], part: scaled}
    if "milestones" in setting:
        before, after = _last_stage(setting, total), _last_stage(changed, epochs)
        milestones = {milestone * after // before for milestone in setting["milestones"]} - {0}
        changed["milestones"] = sorted(milestones)
        if not milestones:  # too short for a step
            del changed["milestones"], changed["schedule"]
    return changed


def _last_stage(setting: Setting, epochs: int) -> int:
    """The number of epochs after the method's restart, from which milestones count."""
    options = setting.get("options", {}).get(setting["method"], {})
    return epochs - METHODS[setting["method"]](**options).restart(epochs)


def experiments(
    item: Item, seeds: int, changes: Mapping[str, Any], only: Mapping[str, Any]
) -> list[Experiment]:
    """The experiments of an item that can be run and fit `only`, seed by seed."""
    made = []
    for seed in range(seeds):
        for setting in item.settings:
            if not missing_parts(setting):
                experiment = experiment_of(setting, changes, seed)
                if all(getattr(experiment, name) == value for name, value in only.items()):
                    made.append(experiment)
    return made


def parse_settings(text: str) -> dict[str, Any]:
    """Parse text such as 'dataset=cifar10 imbalance=100' into entries of an experiment."""
    known = settings_of(Experiment)
    return {name: known[name].from_text(value) for name, value in _assigned(text)}


def parse_grid(text: str) -> list[dict[str, Any]]:
    """All combinations of the values in text such as 'method=corr,proden seed=0-4', by seed.

    Extras and milestones are lists, of which there can be only one.

    Examples:
        >>> parse_grid("lr=0.1,0.2 seed=0-1")[1:3]
        [{'seed': 0, 'lr': 0.2}, {'seed': 1, 'lr': 0.1}]
    """
    known, values = settings_of(Experiment), dict[str, list[Any]]()
    for name, value in sorted(_assigned(text), key=lambda pair: pair[0] != "seed"):
        words = [value] if value.startswith(("[", "{")) else value.split(",")
        if name == "seed":
            words = numbers_of(words)
        values[name] = [known[name].from_text(word) for word in words]
    return [dict(zip(values, chosen, strict=True)) for chosen in product(*values.values())]


def _assigned(text: str) -> Iterator[tuple[str, str]]:
    known = settings_of(Experiment)
    for word in text.split():
        name, separator, value = word.partition("=")
        name = ALIASES.get(name, name)
        if not separator:
            raise InputError(
                f"{word!r} is not a setting: write name=value, such as dataset=cifar10."
            )
        if name not in known:
            raise unknown_name_error("setting", name, [*known, *ALIASES])
        if name == "milestones":
            value = f"[{value}]"
        if name == "extras":
            value = as_toml([one for one in value.split(",") if one])
        yield name, value


def numbers_of(words: Sequence[str]) -> list[str]:
    """The numbers in words such as 7 and 0-4."""
    found: list[str] = []
    for word in words:
        ends = re.fullmatch(r"(\d{1,9})-(\d{1,9})", word)
        first, last = (int(ends[1]), int(ends[2])) if ends else (0, -1)
        several = 0 <= last - first < MOST_SEEDS
        found += map(str, range(first, last + 1)) if several else [word]
    return found


# ---- finished runs ---------------------------------------------------------------------------


def identity(config: Mapping[str, Any]) -> str:
    """A key that equal experiments of all editions share, whatever the precision, which depends on
    the device.
    """
    left_out = ("precision", "experiment", "edition")
    kept = {key: value for key, value in config.items() if key not in left_out}
    return json.dumps(kept, sort_keys=True)


class Finished:
    """The records of finished runs; `experiment in finished` asks for its own edition.

    Of several records of one experiment, the first one counts.
    """

    def __init__(self, records: Iterable[Record]) -> None:
        self._records: dict[str, dict[int, Record]] = {}  # by edition
        for record in records:
            same = self._records.setdefault(identity(record["config"]), {})
            same.setdefault(record["config"].get("edition", FIRST_EDITION), record)

    @classmethod
    def under(cls, *folders: Path) -> Finished:
        """Read the finished runs in folders of runs or results; earlier folders count first."""
        found = [one for folder in folders for one in finished_runs(folder, skip_damaged=True)]
        return cls(one for one in found if one["config"].get("experiment") == "images")

    def __contains__(self, experiment: Experiment) -> bool:
        return self.get(experiment) is not None

    def get(self, experiment: Experiment) -> Record | None:
        return self._editions(experiment).get(experiment.edition)

    def _editions(self, experiment: Experiment) -> Mapping[int, Record]:
        return self._records.get(identity(experiment.config()), {})

    def newest(self, experiments: Sequence[Experiment]) -> list[Record]:
        """The records of those experiments that are finished, of the newest edition that has any.

        Editions are never averaged.
        """
        found = [self._editions(experiment) for experiment in experiments]
        newest = max((edition for editions in found for edition in editions), default=EDITION)
        return [editions[newest] for editions in found if newest in editions]

    def all(self) -> list[Record]:
        return [record for editions in self._records.values() for record in editions.values()]
