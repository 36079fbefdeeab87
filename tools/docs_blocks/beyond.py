"""The blocks of docs/beyond.md on images, from results/beyond."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Callable, Sequence

from docs_blocks.common import ROOT, at_epochs, block, percent, signed, table_head, table_row
from ltpll.runs.run import Record
from ltpll_research.benchmark import RECIPES
from ltpll_research.records import results_under
from ltpll_research.summary import Figure

MEAN_TARGET = "mean-target"


HEAD = "balanced-head"


DRIFT_EPOCHS = range(20, RECIPES["best"]["epochs"] + 1, 20)  # which the curves of all runs have


CELL, HUNDRED = (
    ("cifar10", 100.0, 0.5),
    ("cifar100", 100.0, 0.05),
)  # image set, imbalance and ambiguity


def beyond_runs(cell: tuple[str, float, float] | None = None) -> list[Record]:
    """The runs behind docs/beyond.md, or the long ones of one setting; those of variants that were
    given up have an entry `tried`.
    """
    found = [
        record
        for record in results_under(ROOT / "results" / "beyond")
        if cell is None
        or (setting_of(record) == cell and record["config"]["epochs"] == RECIPES["best"]["epochs"])
    ]
    return sorted(found, key=lambda record: record["config"]["seed"])


def setting_of(record: Record) -> tuple[str, float, float]:
    config = record["config"]
    return config["data"] + "-nu" * config["superclass"], config["imbalance"], config["ambiguity"]


def last_figures(record: Record) -> dict[str, Record | None]:
    """The figures of the last epoch by prediction rule: the balanced head, RECORDS' own rule, z −
    log m, and z.
    """
    last, extras, rebalancer = (
        record["last"],
        record["config"]["extras"],
        record["config"]["rebalancer"],
    )
    anchored = (
        rebalancer == "anchor" and HEAD not in extras
    )  # then z − log m is the prediction itself
    return {
        "head": last["test"] if HEAD in extras else None,
        "own": last["test"] if rebalancer == "records" and HEAD not in extras else None,
        "adjusted": last.get(MEAN_TARGET) or (last["test"] if anchored else None),
        "plain": last.get("uncorrected") or last["test"],
    }


def accuracy(figures: Record | None) -> float | None:
    return None if figures is None else figures["balanced_accuracy"]


def lowest(figures: Record | None) -> float | None:
    return None if figures is None else min(figures["per_class"])


def shown_percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f}"


def anchor_options(record: Record) -> Record:
    """The options of the run's parts; runs that do not name the anchor's `lift` were made when it
    was "records" by default.
    """
    return {
        name: {"lift": "records", **given} if name == "anchor" else given
        for name, given in record["config"]["options"].items()
    }


def under_recipe(cell: tuple[str, float, float] = CELL) -> dict[str, list[Record]]:
    """The runs of the recipe `best` and those that only differ in the rebalancer, the bounds or a
    balanced head, by their name.
    """
    groups: dict[str, list[Record]] = {}
    recipe, runs = (
        RECIPES["best"],
        [record for record in beyond_runs(cell) if "tried" not in record],
    )
    bare = [extra for extra in recipe["extras"] if extra != HEAD]
    for rebalancer in ("anchor", "records", "none"):
        given = {name: options for name, options in recipe["options"].items() if name == rebalancer}
        variants = {"": given} | (
            {", interval": {"anchor": {**given["anchor"], "bounds": "interval"}}} if given else {}
        )
        for extras in (bare, [*bare, HEAD]):
            for word, options in variants.items():
                if word and HEAD in extras:
                    continue  # with those of the ablation
                found = [
                    record
                    for record in runs
                    if (record["config"]["rebalancer"], record["config"]["extras"])
                    == (rebalancer, extras)
                ]
                found = [record for record in found if anchor_options(record) == options]
                if found:
                    groups[rebalancer + word + (" + " + HEAD if HEAD in extras else "")] = found
    return groups


def beyond_images_table(cell: tuple[str, float, float] = CELL) -> str:
    """The anchor, RECORDS and no rebalancing under one recipe, run by run."""
    columns: dict[str, Callable[[Record], float | None]] = {
        "balanced head": lambda record: accuracy(last_figures(record)["head"]),
        "z − log π̂": lambda record: accuracy(last_figures(record)["own"]),
        "z − log m": lambda record: accuracy(last_figures(record)["adjusted"]),
        "z": lambda record: accuracy(last_figures(record)["plain"]),
        "target recovery": lambda record: record["last"]["target_recovery"],
        "least accurate class, z − log m": lambda record: lowest(last_figures(record)["adjusted"]),
    }
    groups = under_recipe(cell)
    columns = {
        name: of
        for name, of in columns.items()
        if any(of(record) is not None for found in groups.values() for record in found)
    }
    lines = table_head("trained with", "seed", *columns)
    for name, records in groups.items():
        for record in records:
            cells = " | ".join(shown_percent(column(record)) for column in columns.values())
            lines.append(f"| {name} | {record['config']['seed']} | {cells} |")
        if len(records) > 1:
            figures = [[column(record) for record in records] for column in columns.values()]
            cells = " | ".join(
                "–" if None in values else percent(Figure.of(values)) for values in figures
            )
            lines.append(f"| **{name}, mean ± std. deviation** | n = {len(records)} | {cells} |")
    config = next(iter(groups.values()))[0]["config"]
    setting = (
        f"{config['data']}, ρ={config['imbalance']:g}, q={config['ambiguity']:g}, "
        f"{config['method']} + mixup"
    )
    return block(
        lines,
        f"*Balanced accuracy in % at the last of {config['epochs']} epochs; {setting}, "
        f"{config['views']} views, lr {config['lr']:g}.*",
    )


def beyond_hundred_table() -> str:
    """The same on CIFAR-100-LT."""
    return beyond_images_table(HUNDRED)


def beyond_short_table() -> str:
    """The anchor, RECORDS and no rebalancing in further settings, each trained for fewer epochs."""
    groups: dict[tuple[str, float, float], dict[str, list[Record]]] = {}
    for record in beyond_runs():
        config = record["config"]
        if config["epochs"] != RECIPES["best"]["epochs"] and setting_of(record) != CELL:
            groups.setdefault(setting_of(record), {}).setdefault(config["rebalancer"], []).append(
                record
            )
    lines = [
        "| setting | epochs | trained with | n | z − log π̂ | z − log m | z | target recovery |",
        "|---|---:|---|---:|---:|---:|---:|---:|",
    ]
    for (data, imbalance, ambiguity), by_rebalancer in sorted(groups.items()):
        drawn = "" if data.startswith("voc") else f", ρ={imbalance:g}, q={ambiguity:g}"
        for rebalancer in sorted(by_rebalancer):
            records = by_rebalancer[rebalancer]
            figures = [
                [accuracy(last_figures(record)[rule]) for record in records]
                for rule in ("own", "adjusted", "plain")
            ]
            figures.append([record["last"]["target_recovery"] for record in records])
            cells = ["–" if None in values else percent(Figure.of(values)) for values in figures]
            lines.append(
                f"| {data}{drawn} | {records[0]['config']['epochs']} | {rebalancer} | "
                f"{len(records)} | {' | '.join(cells)} |"
            )
    return block(
        lines,
        "*Balanced accuracy in % at the last epoch; recipe `best` without the balanced "
        "head; VOC also without mixup.*",
    )


def recovery_curve(record: Record) -> list[float]:
    """Target recovery at `DRIFT_EPOCHS`."""
    return at_epochs(record["curves"], record["curves"]["target_recovery"], DRIFT_EPOCHS)


def beyond_drift_table() -> str:
    """Target recovery over the course of training, on the seeds that all rebalancers share."""
    groups = {name: records for name, records in under_recipe().items() if HEAD not in name}
    shared = set.intersection(
        *({record["config"]["seed"] for record in records} for records in groups.values())
    )
    chosen = {
        name: [record for record in records if record["config"]["seed"] in shared]
        for name, records in groups.items()
    }
    lines = table_head("target recovery (%) after epoch", *DRIFT_EPOCHS)
    for name, records in chosen.items():
        means = [
            statistics.fmean(values) for values in zip(*map(recovery_curve, records), strict=True)
        ]
        lines.append(table_row(name, *(f"{100 * mean:.1f}" for mean in means)))
    return block(lines, f"*Means over {len(shared)} seeds.*")


def variant(record: Record) -> tuple[str, ...]:
    """The columns that tell the variants of the anchor apart."""
    options = record["config"]["options"].get("anchor", {})
    bounds = options.get("bounds", "interval") + (
        f", ± {options['width']:g} sd" if "width" in options else ""
    )
    lift = options.get("lift", "records")
    head = "yes" if HEAD in record["config"]["extras"] else "no"
    return bounds, f"{options['warmup']:g}", lift, head, record.get("tried", "–")


def beyond_ablation_table() -> str:
    """Variants of the anchor by seed."""
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in beyond_runs(CELL):
        if record["config"]["rebalancer"] == "anchor":
            groups.setdefault(variant(record), []).append(record)
    # The final rule first, then by the bounds; later warm-ups first.
    ordered = sorted(
        groups, key=lambda key: (key[4] != "–", key[0] != "point", -float(key[1]), key)
    )
    seeds = sorted({record["config"]["seed"] for records in groups.values() for record in records})
    lines = [
        "| bounds | warm-up | lift | balanced head | earlier code | n | "
        + " | ".join(f"seed {seed}" for seed in seeds)
        + " | target recovery |"
    ]
    lines += ["|---|---:|---|---|---|---:|" + "---:|" * (len(seeds) + 1)]
    for key in ordered:
        by_seed = {
            record["config"]["seed"]: last_figures(record)["head"]
            or last_figures(record)["adjusted"]
            for record in groups[key]
        }
        cells = [
            f"{shown_percent(accuracy(by_seed[s]))} ({shown_percent(lowest(by_seed[s]))})"
            if s in by_seed
            else "–"
            for s in seeds
        ]
        recovery = Figure.of(record["last"]["target_recovery"] for record in groups[key])
        lines.append(
            f"| {' | '.join(key)} | {len(by_seed)} | {' | '.join(cells)} | {percent(recovery)} |"
        )
    return block(
        lines,
        "*Balanced accuracy of the balanced head, or else of z − log m, in % at the last "
        "epoch; in brackets the least accurate class.*",
    )


def beyond_head() -> str:
    """What predicting with the balanced head gains over z − log m in the same training."""
    parts = []
    for name, records in under_recipe().items():
        pairs = [
            (accuracy(found["head"]), accuracy(found["adjusted"]))
            for found in map(last_figures, records)
        ]
        gains = [
            100 * (head - adjusted)
            for head, adjusted in pairs
            if head is not None and adjusted is not None
        ]
        if gains:
            each = ", ".join(map(signed, gains))
            parts.append(f"{name.partition(' + ')[0]} {each} (n = {len(gains)})")
    return (
        "Predicting with the balanced head instead of z − log m, in the same training, "
        "changes balanced accuracy by, in points: "
        f"{'; '.join(parts)}."
    )


def beyond_cost() -> str:
    """The speed of the anchor compared with RECORDS and no rebalancing."""
    compared = {
        name: records for name, records in under_recipe().items() if HEAD in name
    }  # always two at a time; others ended alone
    speeds = {
        name: [record["views_per_second"] for record in records]
        for name, records in compared.items()
    }
    medians = {name: statistics.median(found) for name, found in speeds.items()}
    lines = [
        "| trained with | n | views per second, median run | relative to none |",
        "|---|---:|---:|---:|",
    ]
    for name, median in medians.items():
        reference = medians.get(name.replace(name.partition(" + ")[0], "none", 1))
        relative = (
            "–"
            if reference is None or name.startswith("none")
            else f"{median / reference - 1:+.1%}".replace("-", "−")
        )
        lines.append(f"| {name} | {len(speeds[name])} | {median:,.0f} | {relative} |")
    every = [speed for found in speeds.values() for speed in found]
    records = [record for found in compared.values() for record in found]
    spread = (max(every) - min(every)) / statistics.median(every)
    hardware = " / ".join(sorted({record["environment"]["hardware"] for record in records}))
    return block(
        lines,
        f"*{hardware}; two runs shared the GPU. The speeds of all runs lie within {spread:.1%}.*",
    )


def beyond_origin() -> str:
    """Where the runs come from."""
    records = beyond_runs()
    final, tried = (
        [record for record in records if ("tried" in record) == given] for given in (False, True)
    )

    def commits(found: Sequence[Record]) -> str:
        return ", ".join(
            f"{commit} ({n})"
            for commit, n in sorted(Counter(record["commit"] for record in found).items())
        )

    made = records[0]["environment"]
    return (
        f"*{len(records)} runs on {made['hardware']}, torch {made['torch']}, made from working "
        f"trees at the commits {commits(final)}; "
        f"runs of earlier code: {commits(tried)}. `+changes`: the code of the run was not "
        "committed at the time. "
        f"{sum('continued' in record for record in records)} runs of the anchor continue a run "
        "of RECORDS from the epoch before the bounds "
        "first hold, until which both are the same.*"
    )


BLOCKS = {
    "beyond-drift": beyond_drift_table,
    "beyond-images": beyond_images_table,
    "beyond-hundred": beyond_hundred_table,
    "beyond-short": beyond_short_table,
    "beyond-ablation": beyond_ablation_table,
    "beyond-head": beyond_head,
    "beyond-cost": beyond_cost,
    "beyond-origin": beyond_origin,
}
