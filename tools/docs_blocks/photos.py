"""The blocks of docs/photos.md and docs/pruning.md."""

from __future__ import annotations

import statistics

from docs_blocks.common import (
    block,
    grouped,
    measured_on,
    over_folds,
    percent,
    record_of,
    records_in,
    table_head,
)
from ltpll.formatting import format_duration
from ltpll.runs.run import Record
from ltpll_research.summary import Figure


def photos_table() -> str:
    """Trainings with a pretrained network, from `benchmarks/photos.py`."""
    records = records_in("photos")
    groups: dict[tuple[str, str, str], list[Record]] = {}
    order = ("auto", "none", "records", "supervised", "everything")
    for record in sorted(
        records,
        key=lambda one: (one["data"], one["finetune"] != "none", order.index(one["trained_with"])),
    ):
        groups.setdefault((record["data"], record["finetune"], record["trained_with"]), []).append(
            record
        )
    lines = [
        (
            "| photos | backbone | rebalancer | n | balanced accuracy (%), goal balanced | goal "
            "accuracy | labels recovered (%) | time |"
        )
    ]
    lines += ["|---|---|---|---:|---:|---:|---:|---:|"]
    for (data, layers, what), found in groups.items():
        if what == "everything":
            continue
        by_goal = [
            [
                one["by_goal"].get(goal, next(iter(one["by_goal"].values())))["balanced_accuracy"]
                for one in found
            ]
            for goal in ("balanced", "accuracy")
        ]
        figures = [percent(Figure.of(values)) for values in by_goal]
        figures.append(
            "–"
            if what == "supervised"
            else percent(Figure.of(one["target_recovery"] for one in found))
        )
        seconds = format_duration(statistics.median(one["seconds"] for one in found))
        name = {"auto": "auto (default)", "supervised": "– (supervised)"}.get(what, what)
        frozen = "frozen" if layers == "none" else layers
        lines.append(
            f"| {data} | {frozen} | {name} | {len(found)} | {' | '.join(figures)} | {seconds} |"
        )
    for (data, _, what), found in groups.items():
        if what == "everything":
            everything = found[0]
            rows = everything["rows"]["all"]
            lines += [
                "",
                (
                    f"Everything for {data}, {rows:,} photos with five folds and an empty cache: "
                    f"{format_duration(everything['seconds'])}."
                ),
            ]
    made = sorted(
        {
            f"{one['environment']['hardware']}, commit {one['environment']['commit']}"
            for one in records
        }
    )
    return block(
        lines, f"*Time of one training without folds, features from the cache. {'; '.join(made)}.*"
    )


def embedding_table() -> str:
    """How fast pictures are embedded and how much memory that takes, from
    `benchmarks/embedding.py`.
    """
    record: Record = record_of("bench/embedding-cpu.json")
    speed, memory = record["speed"], record["memory"]
    sizes = list(dict.fromkeys((row["width"], row["height"]) for row in speed["rows"]))
    by_way: dict[str, dict[tuple[int, int], Record]] = {}
    for row in speed["rows"]:
        by_way.setdefault(row["how"], {})[row["width"], row["height"]] = row
    lines = table_head(
        "pictures per second (CPU time of one, in ms)", *(f"{w} × {h}" for w, h in sizes)
    )
    for how, by_size in by_way.items():
        cells = [
            f"{by_size[size]['per_second']:.0f} ({by_size[size]['cpu_ms']:.0f})" for size in sizes
        ]
        lines.append(f"| {how} | {' | '.join(cells)} |")
    peaks = "; ".join(
        f"{row['pictures']:,} pictures {row['main_mib'] + row.get('workers_mib', 0):.0f} MiB"
        for row in memory["rows"]
        if not row.get("cache")
    )
    made = speed["environment"]
    repeats = len(speed["rows"][0]["all"])
    gpu: Record = record_of("bench/embedding-h200.json")
    made_on, loop = gpu["environment"], gpu["plain_loop"]
    on_gpu = (
        f"On an {made_on['hardware']} with {made_on['threads']} cores, `ltpll embed` takes "
        f"{gpu['per_second']:,} pictures of "
        f"{gpu['width']} × {gpu['height']} per second in {gpu['precision']}, and a plain loop "
        f"in {loop['precision']}, which decodes "
        f"them in the same process, {loop['per_second']:.0f} (n = {gpu['n']}, commit "
        f"{made_on['commit']})."
    )
    return block(
        lines,
        on_gpu,
        f"*{made['hardware']}, median of {repeats} turns, commit {made['commit']}. Peak "
        "memory, with a network that takes "
        f"none: {peaks} (n = 1, commit {memory['environment']['commit']}).*",
    )


def pruning_records() -> dict[tuple[str, str], list[Record]]:
    """Pruning by neighbours, from `benchmarks/pruning.py`, by data set and kind of sets."""
    records = records_in("pruning")
    groups = grouped(records, "data", "origin")
    return groups


def pruning_votes_table() -> str:
    """Which labels are removed, by plain votes and by votes divided by the square root of the
    frequency.
    """
    shares = ("wrong_removed", "true_lost", "rare_lost")
    heads = [
        f"{way}: {what}"
        for way in ("plain votes", "divided by √frequency")
        for what in ("wrong removed", "true lost", "rare lost")
    ]
    lines = table_head("in %", "rows", "n", "candidates per set", *heads)
    groups = pruning_records()
    for (data, origin), found in groups.items():
        sizes = " → ".join(
            f"{statistics.mean(one['set_size'][i] for one in found):.1f}" for i in (0, 1)
        )
        cells = [
            over_folds([one["votes"][way][name] for one in found])
            for way in ("plain", "sqrt")
            for name in shares
        ]
        lines.append(
            f"| {data}, {origin} | {found[0]['n']:,} | {len(found)} | {sizes} | "
            f"{' | '.join(cells)} |"
        )
    note = (
        "*Mean and standard deviation over n draws of rows. Rare: the true labels of the "
        "rarest third of the classes.*"
    )
    return block(lines, note)


def pruning_choices_table() -> str:
    """How rows are compared and whether equal sets vote, from `benchmarks/pruning_choices.py`; and
    the grid of thresholds.
    """
    found: Record = record_of("bench/pruning-cpu.json")
    data, made = found["data"], found["environment"]
    ways = list(next(iter(data.values()))["compared"])
    lines = table_head("wrong labels removed (%)", *data)
    for way in ways:
        name = (
            f"**{way}** (default)"
            if way == "angle, standardised"
            else f"default, {way}"
            if way.startswith("without")
            else way
        )
        cells = [f"{100 * one['compared'][way]:.0f}" for one in data.values()]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += [
        "",
        (
            f"*At the threshold at which {found['lost']:.0%} of the true labels are lost; "
            f"{found['neighbours']} neighbours; n = 1.*"
        ),
        "",
        (
            "| neighbours, threshold: wrong labels removed / true labels lost (%) | "
            f"{' | '.join(data)} |"
        ),
        "|---|" + "---:|" * len(data),
    ]
    for i, setting in enumerate(next(iter(data.values()))["grid"]):
        cells = [
            f"{100 * one['grid'][i]['wrong_removed']:.0f} / {100 * one['grid'][i]['true_lost']:.1f}"
            for one in data.values()
        ]
        lines.append(f"| {setting['neighbours']}, {setting['threshold']:g} | {' | '.join(cells)} |")
    return block(
        lines,
        f"*All training rows, n = 1. {made['hardware']}, torch {made['torch']}, commit "
        f"{made['commit']}.*",
    )


def pruning_training_table() -> str:
    """What pruning does to the default training."""
    figures = {
        "accuracy": "accuracy",
        "balanced_accuracy": "balanced accuracy",
        "recovery": "labels recovered",
    }
    ways = {
        "given": "as given",
        "pruned": "pruned",
        "pruned, shares before": "pruned, shares before",
    }
    heads = [f"{name}: {way}" for name in figures.values() for way in ways.values()]
    lines = table_head("in %", "n", *heads)
    groups = pruning_records()
    for (data, origin), found in groups.items():
        cells = [
            over_folds([one["trained"][way][figure] for one in found])
            for figure in figures
            for way in ways
        ]
        lines.append(f"| {data}, {origin} | {len(found)} | {' | '.join(cells)} |")
    records = [one for found in groups.values() for one in found]
    means = [
        f"{100 * statistics.mean(one['trained'][way][figure] for one in records):.1f}"
        for figure in figures
        for way in ways
    ]
    note = (
        "*Mean and standard deviation over n draws, on rows that were held out; recovered: "
        "of the training rows.*"
    )
    return block(
        [*lines, f"| mean | {len(records)} | {' | '.join(means)} |"], note, measured_on(records)
    )


def neighbours_table() -> str:
    """The time of the exact search for neighbours, from `benchmarks/neighbours.py`."""
    found: Record = record_of("bench/neighbours-cpu.json")
    lines = [
        (
            "| | rows | seconds, median (all) | CPU seconds, median | memory beside the features, "
            "MiB |"
        ),
        "|---|---:|---:|---:|---:|",
    ]
    for row in found["rows"]:
        clock, processor, memory = (
            sorted(turn[name] for turn in row["turns"])
            for name in ("seconds", "cpu_seconds", "mib")
        )
        every = ", ".join(f"{value:.1f}" for value in clock)
        lines.append(
            f"| {row['how']} | {row['rows']:,} | {statistics.median(clock):.1f} ({every}) | "
            f"{statistics.median(processor):.1f} "
            f"| {statistics.median(memory):,.0f} |"
        )
    made, loads = (
        found["environment"],
        [turn["load"] for row in found["rows"] for turn in row["turns"]],
    )
    note = (
        f"*{found['neighbours']} neighbours of every row, {found['features']} features; "
        f"{made['hardware']}, {made['threads']} threads, "
        f"torch {made['torch']}, scikit-learn {made['scikit-learn']}, commit {made['commit']}. "
        "Load "
        f"{min(loads):.1f}–{max(loads):.1f} before the turns.*"
    )
    return block(lines, note)


BLOCKS = {
    "photos": photos_table,
    "embedding": embedding_table,
    "pruning-votes": pruning_votes_table,
    "pruning-choices": pruning_choices_table,
    "pruning-training": pruning_training_table,
    "neighbours": neighbours_table,
}
