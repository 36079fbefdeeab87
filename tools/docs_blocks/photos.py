"""The blocks of docs/photos.md."""

from __future__ import annotations

import statistics

from docs_blocks.common import (
    block,
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


BLOCKS = {
    "photos": photos_table,
    "embedding": embedding_table,
}
