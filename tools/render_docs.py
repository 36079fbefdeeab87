"""Fills the generated blocks of the README and the docs from the registries and from the records in
results/.

A block stands between `<!-- begin NAME -->` and `<!-- end NAME -->`; nothing in it is typed by
hand. `--check` only compares.
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from ltpll.cleaning.settings import FRONT, TrainJob
from ltpll.errors import InputError
from ltpll.formatting import format_duration
from ltpll.parts import describe_parts
from ltpll.runs.run import Record
from ltpll.settings import as_toml, expected, option_name, settings_of
from ltpll_research.benchmark import FIRST_EDITION, RECIPES
from ltpll_research.paper.catalog import ITEMS, with_equal_lengths
from ltpll_research.paper.compare import compare, compare_other_lengths
from ltpll_research.paper.grid import Finished
from ltpll_research.paper.layout import identities_with_runs, lay_out, markdown
from ltpll_research.paper.protocols import PROTOCOLS
from ltpll_research.paper.verdicts import verdicts_markdown
from ltpll_research.records import results_under
from ltpll_research.summary import Figure, Row, difference, rows
from module_map import module_map

ROOT = Path(__file__).resolve().parents[1]
# How the rebalancer auto says so, in records of any version.
FIXED_SHARES = ("Class shares are fixed", "Class shares are kept", "Class shares are held")
PAGES = [
    "README.md",
    *sorted(path.relative_to(ROOT).as_posix() for path in (ROOT / "docs").glob("*.md")),
]


def part_names() -> str:
    """The names of all parts, each with a link to its page."""
    kinds: dict[str, list[str]] = {}
    for part in describe_parts():
        kinds.setdefault(part.kind, []).append(f"[`{part.name}`](docs/methods/{part.name}.md)")
    return "\n".join(f"- {kind}s: {', '.join(names)}" for kind, names in kinds.items())


def settings_table(section: str) -> str:
    """The settings of one section, as `ltpll train` declares them."""
    lines = ["| setting | value | default | meaning | option |", "|---|---|---|---|---|"]
    for name, one in settings_of(TrainJob).items():
        if name.partition(".")[0] == section:
            option = f"`{option_name(name)}`" if name in FRONT else "–"
            cells = (
                f"`{name}`",
                _cell(expected(one.kind)),
                "–" if one.default is None else _code(as_toml(one.default)),
                _cell(one.help),
                "the argument `TABLE`" if name == "data.table" else option,
            )
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _cell(text: str) -> str:
    """Plain text in a cell of a Markdown table."""
    return re.sub(r"[|*_<\[]", lambda found: f"&#{ord(found[0])};", text.replace("`", ""))


def _code(text: str) -> str:
    """Code in a cell of a Markdown table, in which a backslash would not protect `|`."""
    return f"<code>{_cell(text)}</code>" if "|" in text else f"`{text}`"


def measured_on(records: Sequence[Record]) -> str:
    """Hardware, versions and commit, from the records."""

    def distinct(name: str) -> str:
        return " / ".join(sorted({str(record["environment"][name]) for record in records}))

    return (
        f"*{len(records)} runs on {distinct('hardware')} ({distinct('threads')} thread per "
        f"run), Python {distinct('python')}, "
        f"torch {distinct('torch')}, commit {distinct('commit')}.*"
    )


def percent(figure: Figure | None) -> str:
    return "–" if figure is None else figure.percent()


def table(records: Sequence[Record], columns: dict[str, Callable[[Row], str]]) -> str:
    found = rows(records)
    lines = [
        "| " + " | ".join(["", "seeds", *columns]) + " |",
        "|---|" + "---:|" * (len(columns) + 1),
    ]
    lines += [
        f"| {row.label} | {row.n} | "
        + " | ".join(column(row) for column in columns.values())
        + " |"
        for row in found
    ]
    return "\n".join([*lines, "", measured_on(records)])


def demo_table() -> str:
    records = sorted(
        results_under(ROOT / "results" / "digits"),
        key=lambda record: (order(record), record["config"]["seed"]),
    )
    found = rows(records)

    def gain(row: Row) -> str:
        compared = difference(row, found)
        return (
            "–" if compared is None else f"{100 * compared[0].mean:+.1f} ± {100 * compared[1]:.1f}"
        )

    return table(
        records,
        {
            "balanced accuracy, last epoch (%)": lambda row: percent(row.last("balanced_accuracy")),
            "best epoch (%)": lambda row: percent(row.best()),
            "many": lambda row: percent(row.last("many")),
            "medium": lambda row: percent(row.last("medium")),
            "few": lambda row: percent(row.last("few")),
            "target recovery (%)": lambda row: percent(row.target_recovery),
            "gain ± std. error": gain,
        },
    )


def toy_table(*, cosine: bool) -> str:
    records = [
        record
        for record in results_under(ROOT / "results" / "toy")
        if (record["config"]["final_lr"] != 1.0) == cosine
    ]
    records.sort(key=lambda record: (order(record), record["config"]["seed"]))

    def every(row: Row) -> str:
        return " ".join(
            f"{100 * record['last']['test']['balanced_accuracy']:.0f}" for record in row.records
        )

    return table(
        records,
        {
            "test accuracy, last epoch (%)": lambda row: percent(row.last("balanced_accuracy")),
            "best epoch (%)": lambda row: percent(row.best()),
            "target recovery (%)": lambda row: percent(row.target_recovery),
            "last epoch, seed by seed": every,
        },
    )


def order(record: Record) -> tuple[int, int]:
    methods, rebalancers = ["proden", "corr"], ["none", "oracle-la", "records", "anchor"]
    return methods.index(record["config"]["method"]), rebalancers.index(
        record["config"]["rebalancer"]
    )


def bench_records(name: str) -> list[Record]:
    return [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / "results" / "bench").glob(f"{name}-*.json"))
    ]


def performance_table() -> str:
    """Speed of training, from `ltpll-research bench engine`."""
    lines = []
    for found in bench_records("engine"):
        made = found["environment"]
        lines += [
            f"**{made['hardware']}** ({found['engine']} steps, "
            f"{found['experiment']['precision']}, torch {made['torch']}, "
            f"commit {made['commit']}; median of 3 passes of {found['epochs_timed']} epochs, "
            "evaluated every "
            f"{found['measure_every']}):",
            "",
            "| | |",
            "|---|---:|",
            f"| views per second, end to end | {found['views_per_second']:,.0f} |",
            *(
                [
                    (
                        "| views per second, without evaluation | "
                        f"{found['training_views_per_second']:,.0f} |"
                    )
                ]
                if "training_views_per_second" in found
                else []
            ),
            (
                f"| share of the {found['matrix_peak_tflops']:.0f} TFLOP/s that bf16 products "
                f"reach | {found['share_of_matrix_peak']:.1%} |"
            ),
            f"| cost of RECORDS over `none` | {found['rebalancer_cost']:+.1%} |",
            f"| start-up | {found['start_seconds']:.0f} s |",
            f"| peak memory | {found['peak_memory_gib']:.2f} GiB |",
            *(
                f"| {name}, ms | {value:.2f} |"
                for name, value in found["milliseconds_per_step"].items()
            ),
            "",
        ]
    return "\n".join(lines).rstrip()


RELABELLED = {  # rows whose name in the record has been improved since
    (
        "targets worked out beside the backward pass"
    ): "targets refined in parallel with the backward pass",
    (
        "also: weights' gradients on a stream of their own"
    ): "also: weight gradients on a separate stream",
    "the network alone, on one batch again and again": "the network alone, on a single batch",
}


def steps_table() -> str:
    """The effect of each optimisation, from `benchmarks/steps.py`."""
    lines = []
    for found in bench_records("steps"):
        made = found["environment"]
        lines += [
            f"**{made['hardware']}** (torch {made['torch']}, commit {made['commit']}; median "
            f"of {found['passes']} passes of "
            f"{found['epochs_timed']} epochs and an evaluation; start-up compiles what earlier "
            "lines have not compiled):",
            "",
            "| | views/s | replayed step, ms | start-up, s |",
            "|---|---:|---:|---:|",
        ]
        for row in found["variants"]:
            step = "–" if row["step_milliseconds"] is None else f"{row['step_milliseconds']:.2f}"
            lines.append(
                f"| {RELABELLED.get(row['what'], row['what'])} | "
                f"{row['views_per_second']:,.0f} | {step} | {row['start_seconds']:.1f} |"
            )
        lines.append("")
    return "\n".join(lines).rstrip() or "*Not measured yet.*"


def precision_table() -> str:
    """bfloat16 compared with float32, from `benchmarks/precision.py`."""
    lines = []
    for found in bench_records("precision"):
        made, config = found["environment"], found["experiment"]
        lines += [
            f"**{config['data']}**, ρ={config['imbalance']:g}, q={config['ambiguity']:g}, "
            f"{config['method']} + {config['rebalancer']}, "
            f"{config['epochs']} epochs, {found['n']} seeds ({made['hardware']}, torch "
            f"{made['torch']}, commit {made['commit']}):",
            "",
            (
                "| | float32, eager (%) | its std. deviation over seeds | bfloat16, captured (%) | "
                "difference, 95 % interval |"
            ),
            "|---|---:|---:|---:|---:|",
        ]
        for name in ("accuracy", "target recovery"):
            row = found[name]
            lines.append(
                f"| {name} | {row['exact']:.2f} | {row['exact_deviation']:.2f} | {row['fast']:.2f} "
                f"| {row['difference']:+.2f} ± {row['interval']:.2f} |"
            )
        lines.append("")
    return "\n".join(lines).rstrip()


def views_table() -> str:
    """Batched views compared with a loop over Pillow images, from `benchmarks/views.py`."""
    lines = []
    for found in bench_records("views"):
        made = found["environment"]
        lines += [
            f"**{made['hardware']}** ({made['threads']} threads, torch {made['torch']}, commit "
            f"{made['commit']}; "
            f"images of {found['side']} × {found['side']}; fastest of many calls):",
            "",
            (
                "| policy | view | batch | batched, µs per view | Pillow loop, 1 thread, µs per "
                "view | speed-up |"
            ),
            "|---|---|---:|---:|---:|---:|",
        ]
        for row in found["rows"]:
            ours, theirs = row["microseconds"]["batched"], row["microseconds"]["pillow"]
            compared = "– | –" if theirs is None else f"{theirs:.0f} | {theirs / ours:.1f}"
            lines.append(
                f"| {row['policy']} | {row['kind']} | {row['batch']:,} | {ours:.1f} | {compared} |"
            )
        lines.append("")
    return "\n".join(lines).rstrip()


def by_setting(record: Record) -> tuple[object, ...]:
    config = record["config"]
    return tuple(
        config[name]
        for name in (
            "data",
            "imbalance",
            "ambiguity",
            "epochs",
            "method",
            "extras",
            "rebalancer",
            "seed",
        )
    )


def image_runs_table() -> str:
    """Finished benchmark runs."""
    lines = [
        "| run | epochs | last epoch (%) | best epoch (%) | target recovery (%) | time | views/s |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for record in sorted(results_under(ROOT / "results" / "images"), key=by_setting):
        config, last, best = record["config"], record["last"], record["best"]["test"]
        setting = f"{config['data']} ρ={config['imbalance']:g} q={config['ambiguity']:g}"
        name = (
            f"{setting} "
            f"{' + '.join([config['method'], *config['extras'], config['rebalancer']])}, seed "
            f"{config['seed']}"
        )
        lines.append(
            f"| {name} ({record['environment']['hardware']}, commit "
            f"{record['environment']['commit']}) | {config['epochs']} "
            f"| {100 * last['test']['balanced_accuracy']:.2f} | "
            f"{100 * best['test']['balanced_accuracy']:.2f} (epoch {best['epoch']}) "
            f"| {100 * last['target_recovery']:.1f} | {record['seconds'] / 60:.1f} min | "
            f"{record['views_per_second']:,} |"
        )
    return "\n".join(lines)


TABULAR_ROWS = {
    "neighbours": "neighbours",
    "logistic": "logistic",
    "corr+none": "corr",
    "corr+mean-target": "corr + mean-target",
    "corr+records": "corr + records",
    "corr+set-evidence": "corr + set-evidence",
    "corr+auto": "**corr + auto** (default)",
    "corr+average": "corr + auto, told that rows share sets",
    "committee": "**committee** (default)",
}
COMPARED = {"corr+auto": "network", "committee": "**committee**"}
FIGURES_OF_TABLES = {
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
    "recovery": "labels recovered",
}


def tabular_records() -> dict[tuple[str, str], Record]:
    """Ten-fold cross-validation on small real tables, from `benchmarks/tabular.py`, by table and
    row.
    """
    records = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / "results" / "tabular").glob("*.json"))
    ]
    return {(record["table"], record["row"]): record for record in records}


def over_folds(values: list[float]) -> str:
    return f"{100 * statistics.mean(values):.1f}" + (
        f" ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else ""
    )


def tabular_table() -> str:
    """Every row and figure of the real tables."""
    found = tabular_records()
    tables = sorted({table for table, _ in found})
    lines = []
    for figure, title in (
        ("accuracy", "Accuracy (%)"),
        ("balanced_accuracy", "Balanced accuracy (%)"),
        ("recovery", "Recovered labels (%)"),
    ):
        lines += [f"| {title} | " + " | ".join(tables) + " |", "|---|" + "---:|" * len(tables)]
        lines += [
            f"| {label} | " + " | ".join(over_folds(found[t, row][figure]) for t in tables) + " |"
            for row, label in TABULAR_ROWS.items()
        ]
        lines.append("")
    first = [found[table, "neighbours"] for table in tables]
    sizes = [
        (
            f"{r['table']}: {r['n']:,} × {r['features']}, {r['classes']} classes, "
            f"{r['set_size']:.1f} candidates"
        )
        for r in first
    ]
    folds = first[0]["folds"]
    note = f"*{'; '.join(sizes)}. Mean and standard deviation over {folds} folds.*"
    return "\n".join([*lines, note, "", measured_on(list(found.values()))])


def committee_table() -> str:
    """The committee beside the single network that was the default before, on the real tables."""
    found = tabular_records()
    tables = sorted({table for table, _ in found})
    lines = ["| % | | " + " | ".join(tables) + " |", "|---|---|" + "---:|" * len(tables)]
    for figure, title in FIGURES_OF_TABLES.items():
        for row, label in COMPARED.items():
            cells = [over_folds(found[table, row][figure]) for table in tables]
            lines.append(f"| {title} | {label} | " + " | ".join(cells) + " |")
    seconds = {row: [found[table, row] for table in tables] for row in COMPARED}
    for row, records in seconds.items():
        # Of one thread, so that wall time is CPU time; newer records have both.
        cells = [f"{one.get('cpu_seconds', one['seconds']) / one['folds']:.0f}" for one in records]
        lines.append(f"| seconds of one fit | {COMPARED[row]} | " + " | ".join(cells) + " |")
    used = [found[table, row] for table in tables for row in COMPARED]
    return "\n".join([*lines, "", measured_on(used)])


def set_information_table() -> str:
    """How often set information ranks two models wrongly, from `benchmarks/set_information.py`."""
    records = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / "results" / "set-information").glob("*.json"))
    ]
    lines = [
        "| sets arise | " + " | ".join(record["problem"] for record in records) + " |",
        "|---|" + "---:|" * len(records),
    ]
    for origin in records[0]["origins"]:
        cells = []
        for record in records:
            shares = [
                f"{100 * wrong / total:.0f}"
                for wrong, total in (
                    record["origins"][origin][name]
                    for name in ("accuracy", "likelihood", "balanced")
                )
            ]
            cells.append(" / ".join(shares))
        lines.append(f"| {origin} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", measured_on(records)])


def stopping_table() -> str:
    """The test accuracy of the last, chosen and best epoch, from `benchmarks/stopping.py`."""
    groups: dict[tuple[str, str, float], list[Record]] = {}
    records = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / "results" / "stopping").glob("*.json"))
    ]
    for record in records:
        key = record["kind"], record["rebalancer"], record["ambiguity"]
        groups.setdefault(key, []).append(record)
    lines = [
        "| network, rebalancer | q | n | last | **chosen** | best |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for (kind, rebalancer, ambiguity), own in sorted(groups.items()):
        cells = [over_folds([one[name] for one in own]) for name in ("last", "chosen", "best")]
        lines.append(f"| {kind}, {rebalancer} | {ambiguity} | {len(own)} | {' | '.join(cells)} |")
    return "\n".join([*lines, "", measured_on(records)])


def raw_tables_table() -> str:
    """Raw tables, our default beside what people use instead, from `benchmarks/raw_tables.py`."""
    sys.path.append(str(ROOT))  # benchmarks are no package that is installed
    from benchmarks.raw_tables import TABLES, read_records, results_table

    found = read_records()
    records = [one for some in found.values() for one in some]
    first = {record["table"]: record for record in reversed(records)}
    sizes = [
        (
            f"{name}: {one['n']:,} × {one['columns']}, {one['classes']} classes, "
            f"{one['sets']}, {one['set_size']:.1f} candidates"
            + f", {one['lacking']:.1%} without the true one"
            * (one["lacking"] > 0)
        )
        for name in TABLES
        if (one := first.get(name))
    ]
    seeds = len({record["seed"] for record in records})
    note = f"*{'; '.join(sizes)}. Mean (and standard deviation) over at most {seeds} splits.*"
    return "\n".join([results_table(found), note, "", measured_on(records)])


def headline_table() -> str:
    """The default beside plain training and RECORDS on the real tables."""
    found = tabular_records()
    tables = sorted({table for table, _ in found})
    lines = [
        f"| accuracy / balanced accuracy / recovered labels (%) | {' | '.join(tables)} |",
        "|---|" + "---:|" * len(tables),
    ]
    for row in ("corr+none", "corr+mean-target", "corr+records", "corr+auto", "committee"):
        cells = [
            " / ".join(
                f"{100 * statistics.mean(found[t, row][name]):.1f}"
                for name in ("accuracy", "balanced_accuracy", "recovery")
            )
            for t in tables
        ]
        lines.append(f"| {TABULAR_ROWS[row]} | {' | '.join(cells)} |")
    return "\n".join(lines)


REVIEW_ROWS = {
    ("none", 0.0): "no answers",
    ("random", 0.0): "random rows",
    ("rare", 0.0): "queue, rare classes first",
    ("least confident", 0.0): "least confident rows",
    ("queue", 0.0): "**queue**",
    ("none", 0.5): "no answers, `--start-from`",
    ("queue", 0.5): "queue, `--start-from`",
}


def review_table() -> str:
    """What answers for 5 % of the rows achieve, by how the rows were chosen, from
    `benchmarks/review.py`.
    """
    records = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / "results" / "review").glob("*.json"))
    ]
    by_table: dict[str, list[Record]] = {}
    for record in records:
        by_table.setdefault(record["table"], []).append(record)

    def cell(table: str, key: tuple[str, float], figure: str) -> str:
        rows = [
            (r, row)
            for r in by_table[table]
            for row in r["rows"]
            if (row["queue"], row["trust"]) == key
        ]
        return over_folds(
            [row[figure] / r["answers"] if figure == "wrong" else row[figure] for r, row in rows]
        )

    lines = []
    for figure, title in (
        ("accuracy", "Accuracy (%)"),
        ("balanced_accuracy", "Balanced accuracy (%)"),
        ("recovery", "Recovered labels (%)"),
        ("wrong", "Answered labels that were wrong (%)"),
    ):
        keys = [
            key for key in REVIEW_ROWS if figure != "wrong" or (key[0] != "none" and key[1] == 0)
        ]
        lines += [f"| {title} | {' | '.join(by_table)} |", "|---|" + "---:|" * len(by_table)]
        lines += [
            f"| {REVIEW_ROWS[key]} | {' | '.join(cell(table, key, figure) for table in by_table)} |"
            for key in keys
        ]
        lines.append("")
    sizes = [
        f"{table}: {mine[0]['answers']} of about {mine[0]['n']:,} rows"
        for table, mine in by_table.items()
    ]
    note = (
        f"*Answers: {'; '.join(sizes)}. Mean and standard deviation over "
        f"{min(map(len, by_table.values()))} draws.*"
    )
    return "\n".join([*lines, note, "", measured_on(records)])


def origins_table() -> str:
    """Rebalancers on real features with sets of many origins, from `benchmarks/origins.py`."""
    records = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / "results" / "origins").glob("*.json"))
    ]
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record["data"], record["origin"]), []).append(record)
    names = ("mean-target", "records", "average", "set-evidence", "auto")
    lines = [
        f"| features, sets | n | regime | {' | '.join(names)} | auto held shares |",
        "|---|---:|---|" + "---:|" * len(names) + "---:|",
    ]
    for (data, origin), group in groups.items():
        cells = []
        for name in names:
            rows = [record["figures"][name] for record in group]
            means = [
                100 * statistics.mean(row[figure] for row in rows)
                for figure in ("accuracy", "balanced_accuracy", "recovery")
            ]
            cells.append(" / ".join(f"{mean:.1f}" for mean in means))
        regimes = sorted({record["regime"] for record in group})
        held = sum(record["choice"].startswith(FIXED_SHARES) for record in group)
        lines.append(
            f"| {data}, {origin} | {len(group)} | {', '.join(regimes)} | {' | '.join(cells)} | "
            f"{held} of {len(group)} |"
        )
    note = (
        "*Accuracy / balanced accuracy / recovered labels in %, means over n draws of sets "
        "and of held-out rows.*"
    )
    return "\n".join(
        [
            *lines,
            "",
            note,
            "",
            evidence_sentence(records),
            "",
            score_sentence(records),
            "",
            measured_on(records),
        ]
    )


def evidence_sentence(records: list[Record]) -> str:
    """What set evidence changes where a test rejects that wrong labels join independently, compared
    with plain training.
    """
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record["regime"] == "unclear":
            groups.setdefault((record["data"], record["origin"]), []).append(record)
    changes = []
    for figure in ("accuracy", "balanced_accuracy", "recovery"):
        gains = [
            100
            * statistics.mean(
                record["figures"]["set-evidence"][figure] - record["figures"]["mean-target"][figure]
                for record in group
            )
            for group in groups.values()
        ]
        changes.append(
            f"{signed(statistics.mean(gains))} ({signed(min(gains))} to {signed(max(gains))})"
        )
    return (
        f"In the {len(groups)} rows with an unclear origin, `set-evidence` changes plain "
        f"training (mean-target) by {changes[0]} points of "
        f"accuracy, {changes[1]} of balanced accuracy and {changes[2]} of recovered labels: "
        "the mean of the rows, and the range."
    )


def signed(value: float) -> str:
    return f"{value:+.1f}".replace("-", "−")


def columns_table() -> str:
    """Every column of Table 1 on features of a pretrained network, from `benchmarks/columns.py`."""
    records = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / "results" / "columns").glob("*.json"))
    ]
    groups: dict[tuple[str, bool, float, float], list[Record]] = {}
    for record in records:
        setting = (
            record["data"],
            record.get("superclass", False),
            record.get("imbalance", 0.0),
            record.get("ambiguity", 0.0),
        )
        groups.setdefault(setting, []).append(record)
    names = ("mean-target", "records", "set-evidence", "auto")
    lines = [
        f"| setting | n | none | {' | '.join(names)} | regime that auto found |",
        "|---|---:|" + "---:|" * (len(names) + 1) + "---|",
    ]
    for (data, similar, imbalance, ambiguity), group in sorted(
        groups.items(), key=lambda item: item[0]
    ):
        by = {name: [record for record in group if record["rebalancer"] == name] for name in names}
        cells = [mean_and_deviation(by["mean-target"], "uncorrected")]
        for name in names:
            recovered = 100 * statistics.mean(record["recovery"] for record in by[name])
            cells.append(f"{mean_and_deviation(by[name], 'balanced_accuracy')}, {recovered:.1f}")
        row = (
            data
            if not imbalance
            else f"{data}{'-nu' if similar else ''}, ρ={imbalance:g}, q={ambiguity:g}"
        )
        chosen = sorted({regime_of(record["choice"]) for record in by["auto"]})
        lines.append(f"| {row} | {len(by['auto'])} | {' | '.join(cells)} | {', '.join(chosen)} |")
    note = (
        "*Balanced accuracy, mean ± standard deviation, and recovered labels, in %. none: "
        "the training of mean-target, predicted with z.*"
    )
    return "\n".join([*lines, "", note, "", measured_on(records)])


def regime_of(choice: str) -> str:
    """What "auto" says about the origin of sets, in a word or two."""
    if "unclear" in choice or "held-out rows" in choice:
        return "unclear"
    if "join independently" in choice:
        return "independent, held" + (
            " between bounds" if "between bounds" in choice else " exactly"
        )
    return "single labels, left alone" if "single label" in choice else "co-occurrence"


def mean_and_deviation(records: list[Record], figure: str) -> str:
    return over_folds([record[figure] for record in records])


def score_sentence(records: list[Record]) -> str:
    """How often the held-out score preferred the way that predicts held-out rows better."""
    pairs = []
    for record in records:
        if record["scores"] is not None:
            # Both ways as `auto` trains them; sets whose labels join independently are never
            # undecided.
            rows = [record["figures"][name] for name in ("average", "set-evidence")]
            true = [(row["accuracy"] + row["balanced_accuracy"]) / 2 for row in rows]
            pairs.append(
                (record["scores"]["average"] - record["scores"]["plain"], true[0] - true[1])
            )
    clear = [(score, true) for score, true in pairs if abs(true) >= 0.02]

    def right(chosen: list[tuple[float, float]]) -> int:
        return sum((score > 0) == (true > 0) for score, true in chosen)

    return (
        f"In {len(pairs)} draws the sets left `auto` undecided. Its score preferred the way "
        "that did better on other rows (mean of "
        f"accuracy and balanced accuracy) in {right(pairs)} of them, and in {right(clear)} of "
        f"the {len(clear)} in which both differed "
        "by at least 2 points."
    )


def cleaning_groups(found: Record) -> dict[tuple[str, float], list[Record]]:
    """The rows of `benchmarks/cleaning.py` by problem and share of missing labels."""
    groups: dict[tuple[str, float], list[Record]] = {}
    for row in found["rows"]:
        groups.setdefault((row["problem"], row["missing"]), []).append(row)
    return groups


def ratio(rows: Sequence[Record], numerator: str, denominator: str) -> str:
    """A share in percent, over the rows of all seeds together."""
    total = sum(row[denominator] for row in rows)
    return f"{100 * sum(row[numerator] for row in rows) / total:.1f}" if total else "–"


def cleaning_table() -> str:
    """How well candidate sets without the true label are found, from `benchmarks/cleaning.py`."""
    lines = []
    for found in bench_records("cleaning"):
        made, seeds = found["environment"], len({row["seed"] for row in found["rows"]})
        names = ["lack it", "estimated", "flagged", "precision", "recall", "suggestion right"]
        names += [
            "flagged by mistake, largest / rarest third of the classes",
            "before: flagged, precision",
            "before: by mistake, largest / rarest",
        ]
        lines += ["| in % | " + " | ".join(names) + " |"]
        lines += ["|---" + "|---:" * len(names) + "|"]
        for (problem, _), mine in cleaning_groups(found).items():
            cells = [
                ratio(mine, "lack", "rows"),
                f"{100 * statistics.mean(row['estimated'] for row in mine):.1f}",
                ratio(mine, "flagged", "rows"),
                ratio(mine, "flagged_right", "flagged"),
                ratio(mine, "flagged_right", "lack"),
                ratio(mine, "suggested_right", "flagged_right"),
                (
                    f"{ratio(mine, 'largest_flagged', 'largest_fine')} / "
                    f"{ratio(mine, 'rarest_flagged', 'rarest_fine')}"
                ),
                (
                    f"{ratio(mine, 'contradicted', 'rows')}, "
                    f"{ratio(mine, 'contradicted_right', 'contradicted')}"
                ),
                (
                    f"{ratio(mine, 'largest_contradicted', 'largest_fine')} / "
                    f"{ratio(mine, 'rarest_contradicted', 'rarest_fine')}"
                ),
            ]
            lines.append(f"| {problem} | {' | '.join(cells)} |")
        lines += [
            "",
            (
                f"*{seeds} seeds together; {made['hardware']}, torch {made['torch']}, commit "
                f"{made['commit']}.*"
            ),
        ]
    return "\n".join(lines)


def confidence_table() -> str:
    """How well confidences tell right labels from wrong ones, from `benchmarks/cleaning.py`."""
    lines = []
    for found in bench_records("cleaning"):
        lines += [
            (
                "| in % | labels right | trained on the rows: mean confidence, error, ranking | "
                "`confidence`: mean, error, ranking |"
            )
        ]
        lines += ["|---|---:|---:|---:|"]
        for (problem, missing), mine in cleaning_groups(found).items():
            cells = [f"{100 * statistics.mean(row['targets']['accuracy'] for row in mine):.1f}"]
            for name in ("targets", "calibrated"):
                figures = [
                    statistics.mean(row[name][key] for row in mine)
                    for key in ("mean_confidence", "calibration_error")
                ]
                known = [row[name]["ranking"] for row in mine if row[name]["ranking"] is not None]
                ranking = f"{statistics.mean(known):.2f}" if known else "–"
                cells.append(f"{100 * figures[0]:.1f}, {100 * figures[1]:.1f}, {ranking}")
            lines.append(f"| {problem}, {100 * missing:g} % lack it | {' | '.join(cells)} |")
        words = (
            "Error: expected calibration error. Ranking: area under the ROC curve of "
            "confidence against being right."
        )
        lines += ["", f"*Means over the seeds. {words}*"]
    return "\n".join(lines)


CROWD_COLUMNS = {
    "majority alone": "majority vote",
    "dawid-skene alone": "Dawid–Skene",
    "reliability alone": "our reliabilities",
    "classifier, none": "`none`",
    "classifier, counts": "`counts`",
    "classifier, reliability": "`reliability` (default)",
}


def crowds_table() -> str:
    """Labels recovered from the votes of simulated annotators, from `benchmarks/crowds.py`."""
    records = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / "results" / "crowds").glob("*.json"))
    ]
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record["data"], record["crowd"]), []).append(record)
    columns = [*CROWD_COLUMNS.values(), "some annotator right"]
    lines = [
        f"| Right labels where annotators disagree (%) | rows | {' | '.join(columns)} |",
        "|---|---:|" + "---:|" * len(columns),
    ]
    for (data, crowd), group in groups.items():
        rows = statistics.mean(record["n"] * record["ambiguous"] for record in group)
        cells = [
            spread([record["figures"][name]["ambiguous"] for record in group])
            for name in CROWD_COLUMNS
        ]
        bound = statistics.mean(record["covered"]["ambiguous"] for record in group)
        lines.append(f"| {data}, {crowd} | {rows:.0f} | {' | '.join(cells)} | {100 * bound:.1f} |")
    for figure, title in (
        ("all", "all rows, mean"),
        ("balanced", "all rows, mean over the classes"),
    ):
        means = [
            statistics.mean(record["figures"][name][figure] for record in records)
            for name in CROWD_COLUMNS
        ]
        bound = (
            f"{100 * statistics.mean(record['covered']['all'] for record in records):.1f}"
            if figure == "all"
            else ""
        )
        lines.append(
            f"| {title} | | {' | '.join(f'{100 * mean:.1f}' for mean in means)} | {bound} |"
        )
    seeds = len({record["seed"] for record in records})
    return "\n".join(
        [*lines, "", f"*Mean and standard deviation over {seeds} seeds.*", "", measured_on(records)]
    )


SCORE_COLUMNS = {
    "scores alone": "highest score",
    "none": "`none`",
    "power 1": "scores",
    "power 1/2": "square root",
    "power 1/4": "fourth root (default)",
}


def scores_table() -> str:
    """Labels recovered from sets that weak models made, with powers of their scores as weights,
    from `benchmarks/scores.py`.
    """
    records = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / "results" / "scores").glob("*.json"))
    ]
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record["data"], record["model"]), []).append(record)
    columns = [*SCORE_COLUMNS.values(), "set holds the label"]
    lines = [
        f"| Right labels (%) | rows | {' | '.join(columns)} |",
        "|---|---:|" + "---:|" * len(columns),
    ]
    for (data, model), group in groups.items():
        cells = [
            spread([record["figures"][name]["all"] for record in group]) for name in SCORE_COLUMNS
        ]
        rows, bound = (
            statistics.mean(record[name] for record in group) for name in ("n", "covered")
        )
        lines.append(f"| {data}, {model} | {rows:.0f} | {' | '.join(cells)} | {100 * bound:.1f} |")
    for figure, title in (("all", "mean"), ("balanced", "mean over the classes")):
        means = [
            statistics.mean(record["figures"][name][figure] for record in records)
            for name in SCORE_COLUMNS
        ]
        lines.append(f"| {title} | | {' | '.join(f'{100 * mean:.1f}' for mean in means)} | |")
    seeds = len({record["seed"] for record in records})
    return "\n".join(
        [*lines, "", f"*Mean and standard deviation over {seeds} seeds.*", "", measured_on(records)]
    )


def spread(values: Sequence[float]) -> str:
    return f"{100 * statistics.mean(values):.1f}" + (
        f" ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else ""
    )


def fit_table() -> str:
    """`fit` compared with a DataLoader of single rows, from `benchmarks/fit.py`."""
    lines = []
    for found in bench_records("fit"):
        made = found["environment"]
        lines += [
            f"**{made['hardware']}** ({made['threads']} threads, torch {made['torch']}, commit "
            f"{made['commit']}): {found['n']:,} × "
            f"{found['features']} features, {found['classes']} classes, {found['set_size']} "
            "candidates on average, "
            f"batches of {found['batch']}:",
            "",
            "| | method | seconds per epoch, median | memory relative to the features |",
            "|---|---|---:|---:|",
        ]
        for row in found["rows"]:
            memory = f"{row['memory_over_features']:.2f}" if "memory_over_features" in row else "–"
            lines.append(
                f"| {RELABELLED.get(row['how'], row['how'])} | {row['method']} | "
                f"{statistics.median(row['seconds']):.2f} | {memory} |"
            )
        lines.append("")
    return "\n".join(lines).rstrip()


def systems_table() -> str:
    """The cost of a step of every system relative to CORR with RECORDS, from
    `benchmarks/systems.py`.
    """
    lines = []
    for found in bench_records("systems"):
        made, rows = found["environment"], found["rows"]
        reference = next(
            row
            for row in rows
            if (row["method"], row["rebalancer"], row["extras"]) == ("corr", "records", [])
        )
        lines += [
            (
                f"**{made['hardware']}** (torch {made['torch']}, commit {made['commit']}), batches "
                f"of {found['batch']}, bfloat16, replayed:"
            ),
            "",
            "| system | step, ms | relative to CORR with RECORDS | peak memory, GiB |",
            "|---|---:|---:|---:|",
        ]
        for row in rows:
            parts = [
                row["method"],
                *row["extras"],
                *([] if row["rebalancer"] == "none" else [row["rebalancer"]]),
            ]
            took = row["milliseconds"]
            cells = (
                "– | – | –"
                if took is None
                else f"{took:.2f} | {took / reference['milliseconds']:.2f} | {row['gib']:.2f}"
            )
            lines.append(f"| {' + '.join(parts)} | {cells} |")
        lines.append("")
    return "\n".join(lines).rstrip()


def threads_table() -> str:
    """Training a small network while other jobs run, from `benchmarks/threads.py`."""
    lines = []
    names = {"all": "all threads", "one": "one thread", "chosen": "chosen by `fit`"}
    for found in bench_records("threads"):
        made, rows = found["environment"], found["rows"]
        loads = [min(row["load"] for row in rows), max(row["load"] for row in rows)]
        n, features, classes = found["shape"]
        jobs = sorted({row["jobs"] for row in rows})
        lines += [
            f"**{made['hardware']}** ({made['threads']} threads, torch {made['torch']}, commit "
            f"{made['commit']}; {n:,} × {features} "
            f"features, {classes} classes, CORR; medians of {found['repeats']} runs of four "
            "epochs, with minimum and maximum; "
            f"on a shared machine, whose load before each part was {loads[0]:.1f} to "
            f"{loads[1]:.1f}), views per second:",
            "",
            "| threads | waiting threads | "
            + " | ".join(f"{k} other job{'s' * (k != 1)}" for k in jobs)
            + " |",
            "|---|---|" + "---:|" * len(jobs),
        ]
        for how, waiting in dict.fromkeys((row["threads"], row["waiting"]) for row in rows):
            cells = {
                row["jobs"]: row
                for row in rows
                if (row["threads"], row["waiting"]) == (how, waiting)
            }
            shown = [
                (
                    f"{cells[k]['views_per_second']:,} "
                    f"({min(cells[k]['all']):,}–{max(cells[k]['all']):,})"
                )
                for k in jobs
            ]
            lines.append(
                f"| {names[how]} | {'spin' if waiting == 'spinning' else 'sleep'} | "
                + " | ".join(shown)
                + " |"
            )
        lines.append("")
    return "\n".join(lines).rstrip()


def sharing_table() -> str:
    """Several runs on one GPU, from `benchmarks/sharing.py`."""
    lines = []
    for found in bench_records("sharing"):
        made = found["environment"]
        lines += [
            (
                f"**{made['hardware']}** (torch {made['torch']}, commit {made['commit']}), views "
                "per second of all runs together:"
            ),
            "",
        ]
        counts = sorted({row["runs"] for row in found["rows"]})
        lines += [
            "| runs at once | " + " | ".join(map(str, counts)) + " |",
            "|---|" + "---:|" * len(counts),
        ]
        for how in dict.fromkeys(row["how"] for row in found["rows"]):
            cells = {
                row["runs"]: row["views_per_second"] for row in found["rows"] if row["how"] == how
            }
            lines.append(
                f"| {how} | "
                + " | ".join(f"{cells[n]:,.0f}" if cells.get(n) else "–" for n in counts)
                + " |"
            )
        lines.append("")
    return "\n".join(lines).rstrip()


def shares_table() -> str:
    """The time of a step on a share of a batch, from `benchmarks/shares.py`."""
    lines = []
    ways = [(engine, messages) for engine in ("captured", "eager") for messages in (False, True)]
    for found in bench_records("shares"):
        made = found["environment"]
        lines += [
            (
                f"**{made['hardware']}** (torch {made['torch']}, commit {made['commit']}; 1 to 2 "
                "epochs), milliseconds per step:"
            ),
            "",
        ]
        heads = [f"{engine}, {'with messages' if each else 'alone'}" for engine, each in ways]
        lines += [
            "| rows per process | " + " | ".join(heads) + " |",
            "|---:|" + "---:|" * len(heads),
        ]
        for size in dict.fromkeys(row["rows"] for row in found["rows"]):
            cells = {
                (row["engine"], row["messages"]): row["step_milliseconds"]
                for row in found["rows"]
                if row["rows"] == size
            }
            lines.append(
                f"| {size} | "
                + " | ".join(f"{cells[way]:.2f}" if way in cells else "–" for way in ways)
                + " |"
            )
        lines.append("")
    return "\n".join(lines).rstrip()


def targets_table() -> str:
    """Candidates and targets as examples and classes grow, from `python benchmarks/targets.py`."""
    lines = []
    for found in bench_records("targets"):
        made, large = found["environment"], found["inaturalist"]
        lines += [
            f"**{made['hardware']}** (threads: {made['threads']}, torch {made['torch']}, "
            f"commit {made['commit']}; batches of "
            f"{found['batch']}, the median batch):",
            "",
            (
                "| examples | classes | candidates | MB | dense, MB | read, ms | write, ms | time "
                "/ dense | time / dense, `index_select` |"
            ),
            "|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
        ]
        for row in [*found["grid"], *found["uneven"], *([large] if large else [])]:
            ours, sizes = row["milliseconds"], "–".join(map(str, sorted(set(row["set_sizes"]))))
            dense = [row["dense_milliseconds"], row["selected_milliseconds"]]
            times = [
                f"{sum(ours.values()) / sum(one.values()):.2f}" if one else "–" for one in dense
            ]
            lines.append(
                f"| {row['examples']:,} | {row['classes']:,} | {sizes} | "
                f"{row['bytes'] / 1e6:,.1f} | {row['dense_bytes'] / 1e6:,.0f} "
                f"| {ours['read']:.3f} | {ours['write']:.3f} | {' | '.join(times)} |"
            )

        def power(value: float) -> str:
            return f"{round(value, 2) + 0.0:.2f}"  # never −0.00

        grows = [
            f"{name} as N^{power(one['examples'])} · C^{power(one['classes'])}"
            for name, one in found["exponents"].items()
        ]
        lines += [
            "",
            (
                f"Growth, fitted to the rows with {found['candidates']} candidates each: "
                f"{'; '.join(grows)}."
            ),
            "",
        ]
        if large and large["resident_bytes"] is not None:
            lines += [
                (
                    "At the size of iNaturalist 2018 (last row), the process grew by "
                    f"{large['resident_bytes'] / 1e6:.0f} MB."
                ),
                "",
            ]
    return "\n".join(lines).rstrip()


def at_epochs(curves: Record, values: Sequence[float], epochs: Iterable[int]) -> list[float]:
    """The values of a curve at these epochs; runs of different versions keep different ones."""
    by_epoch = dict(zip(curves["epoch"], values, strict=True))
    return [by_epoch[epoch] for epoch in epochs]


def drift_table() -> str:
    """Accuracy and target recovery over the course of training."""
    records = [
        record
        for record in results_under(ROOT / "results" / "images")
        if (one := record["config"])["data"] == "cifar10"
        and (one["imbalance"], one["ambiguity"], one["method"]) == (100, 0.5, "corr")
        if one["rebalancer"] in ("none", "records")
        and (one["seed"], one["epochs"], one["extras"], one["options"]) == (0, 800, [], {})
    ]
    records.sort(
        key=lambda record: (
            record["config"]["rebalancer"],
            record["config"].get("edition", FIRST_EDITION),
        )
    )
    records = list(
        {record["config"]["rebalancer"]: record for record in records}.values()
    )  # of the newest edition
    epochs = range(100, 801, 100)
    lines = [
        "| epoch | | " + " | ".join(map(str, epochs)) + " |",
        "|---|---|" + "---:|" * len(epochs),
    ]
    for record in records:
        curves, name = record["curves"], record["config"]["rebalancer"]
        for what, values in (
            ("accuracy (%)", curves["accuracy"]["test"]),
            ("target recovery (%)", curves["target_recovery"]),
        ):
            cells = [f"{100 * value:.1f}" for value in at_epochs(curves, values, epochs)]
            lines.append(f"| corr + {name} | {what} | " + " | ".join(cells) + " |")
    for record in records:
        best, last = (
            100 * max(zip(record["class_counts"], one["test"]["per_class"], strict=True))[1]
            for one in (record["best"]["test"], record["last"])
        )
        lines += [
            "",
            (
                f"The largest class under corr + {record['config']['rebalancer']}: {best:.0f}% at "
                f"the best epoch, {last:.0f}% at the last."
            ),
        ]
    return "\n".join(lines)


# ---- docs/beyond.md ------------------------------------------------------------------------------

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
    lines = [
        "| trained with | seed | " + " | ".join(columns) + " |",
        "|---|---:|" + "---:|" * len(columns),
    ]
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
    return "\n".join(
        [
            *lines,
            "",
            (
                f"*Balanced accuracy in % at the last of {config['epochs']} epochs; {setting}, "
                f"{config['views']} views, lr {config['lr']:g}.*"
            ),
        ]
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
    return "\n".join(
        [
            *lines,
            "",
            (
                "*Balanced accuracy in % at the last epoch; recipe `best` without the balanced "
                "head; VOC also without mixup.*"
            ),
        ]
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
    lines = [
        "| target recovery (%) after epoch | " + " | ".join(map(str, DRIFT_EPOCHS)) + " |",
        "|---|" + "---:|" * len(DRIFT_EPOCHS),
    ]
    for name, records in chosen.items():
        means = [
            statistics.fmean(values) for values in zip(*map(recovery_curve, records), strict=True)
        ]
        lines.append(f"| {name} | " + " | ".join(f"{100 * mean:.1f}" for mean in means) + " |")
    return "\n".join([*lines, "", f"*Means over {len(shared)} seeds.*"])


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
    return "\n".join(
        [
            *lines,
            "",
            (
                "*Balanced accuracy of the balanced head, or else of z − log m, in % at the last "
                "epoch; in brackets the least accurate class.*"
            ),
        ]
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
    return "\n".join(
        [
            *lines,
            "",
            (
                f"*{hardware}; two runs shared the GPU. The speeds of all runs lie within "
                f"{spread:.1%}.*"
            ),
        ]
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


FAMILIES = {  # how the sets of results/priors/origins.json arose, by the first words of a setting
    "uniform": "wrong labels join independently",
    "rates by label": "each wrong label joins at a rate of its own",
    "superclass": "similar classes join more often",
    "crowd": "union of annotators",
    "neighbours": "neighbours of ordered classes",
    "top": "top k of a model",
    "grouped, exchangeable": "objects of a picture",
    "grouped, multiplicities": "objects of a picture, some classes with more",
}


def family(setting: str) -> str:
    first = (
        setting.partition(",")[0].split(" ")[0]
        if setting.startswith("top")
        else setting.partition(",")[0]
    )
    return FAMILIES[
        f"grouped, {'exchangeable' if 'exchangeable' in setting else 'multiplicities'}"
        if first == "grouped"
        else first
    ]


def priors_table() -> str:
    """What `estimate_prior` finds in sets of many origins, from `tools/measure_priors.py`."""
    found: Record = json.loads(
        (ROOT / "results" / "priors" / "origins.json").read_text(encoding="utf-8")
    )
    groups: dict[str, list[Record]] = {}
    for row in found["synthetic"]:
        if row["order"] == "as drawn":
            groups.setdefault(f"simulated: {family(row['setting'])}", []).append(row)
    for row in found["real"]:
        if row["order"] == "as drawn":
            groups.setdefault(row["setting"], []).append(row)

    def spread(group: Sequence[Record], name: str, *, whole: bool = False) -> str:
        values = [row[name] for row in group]
        texts = [
            f"{100 * value:.0f}" if whole else f"{value:.2f}"
            for value in (min(values), max(values))
        ]
        return texts[0] if texts[0] == texts[1] else "–".join(texts)

    lines = [
        "| sets | decided | L1, EM | L1, average | L1, chosen | within bounds (%) |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for name, group in groups.items():
        regimes: Counter[str] = Counter()
        for row in group:
            regimes.update(row["regimes"])
        decided = ", ".join(
            regime if len(regimes) == 1 else f"{regime} {n}" for regime, n in regimes.most_common()
        )
        cells = [spread(group, figure) for figure in ("em", "average", "estimate")] + [
            spread(group, "within_bounds", whole=True)
        ]
        lines.append(f"| {name} | {decided} | {' | '.join(cells)} |")
    made = found["environment"]
    return "\n".join(
        [
            *lines,
            "",
            f"*Simulated sets: the range over settings, each a mean of {found['seeds']} draws; "
            "the regimes count draws. Other sets: n = 1, "
            "rows in the order of the file. L1: the summed distance to the true shares. "
            f"{made['hardware']}, commit {made['commit']}.*",
        ]
    )


def fuzz_record(name: str) -> Record:
    found: Record = json.loads(
        (ROOT / "results" / "fuzz" / f"{name}.json").read_text(encoding="utf-8")
    )
    return found


def fuzz_table() -> str:
    """The number of cases per reader and their outcomes, for both engines."""
    runs = [
        fuzz_record(path.stem)
        for path in sorted((ROOT / "results" / "fuzz").glob("*.json"))
        if path.stem != "findings"
    ]
    lines = [
        "| reader | cases | read | rejected with a message | findings |",
        "|---|---:|---:|---:|---:|",
    ]

    def row(name: str, results: Sequence[Record]) -> str:
        sums = [sum(result[key] for result in results) for key in ("cases", "read", "refused")]
        return (
            f"| {name} | {sums[0]:,} | {sums[1]:,} | {sums[2]:,} | "
            f"{sum(len(result['findings']) for result in results)} |"
        )

    lines += [
        row(f"`{name}`", [run["targets"][name] for run in runs if name in run["targets"]])
        for name in dict.fromkeys(n for run in runs for n in run["targets"])
    ]
    lines.append(row("all", [result for run in runs for result in run["targets"].values()]))
    engines = " ".join(
        f"{run['engine'].capitalize()} engine: {run['cases']:,} cases in "
        f"{run['seconds'] / 60:.0f} minutes, "
        f"commit {run['environment']['commit']}."
        for run in runs
    )
    made = runs[0]["environment"]
    versions = ", ".join(
        f"{name} {made[name]}"
        for name in ("numpy", "pyarrow", "pillow", "safetensors", "PyYAML", "torch")
    )
    return "\n".join(
        [
            *lines,
            "",
            f"*{engines} {made['hardware']}, one process, Python {made['python']}; {versions}.*",
        ]
    )


def fuzz_findings() -> str:
    lines = ["| reader | finding | fix | test |", "|---|---|---|---|"]
    lines += [
        f"| {finding['target']} | {finding['what']} | {finding['fix']} | `{finding['test']}` |"
        for finding in fuzz_record("findings")["findings"]
    ]
    return "\n".join(lines)


def image_runs() -> tuple[Finished, int]:
    """The recorded benchmark runs, and their number of seeds."""
    finished = Finished.under(ROOT / "results" / "images")
    return finished, 1 + max((record["config"]["seed"] for record in finished.all()), default=0)


def reproduction_tables() -> str:
    """Every table of the paper that has recorded runs, with the published numbers; those that only
    repeat others are named.
    """
    finished, seeds = image_runs()
    parts, repeated, shown = [], [], set[str]()
    for item in ITEMS.values():
        compared = compare(item, finished, seeds, {})
        numbers, comparison = identities_with_runs(item, compared), lay_out(item, compared)
        if comparison is not None and numbers <= shown:
            repeated.append(
                f"- {comparison.title} ({len(numbers)} of {sum(map(len, compared))} cells)"
            )
        elif comparison is not None:
            parts.append(f"### {comparison.title}\n\n{markdown(comparison)}")
        shown |= numbers
    parts += ["### Tables whose runs are all above\n\n" + "\n".join(repeated)] if repeated else []
    return "\n\n".join([*parts, measured_on(finished.all())])


def shortened_tables() -> str:
    """Runs with fewer epochs than the paper's, with its numbers where there are any."""
    finished, seeds = image_runs()
    parts, shown = [], set[str]()
    for item in ITEMS.values():
        for epochs, compared in compare_other_lengths(item, finished, seeds).items():
            numbers, comparison = (
                identities_with_runs(item, compared),
                lay_out(with_equal_lengths(item), compared),
            )
            if comparison is not None and not numbers <= shown:
                parts.append(f"### {item.title}, {epochs} epochs\n\n{markdown(comparison)}")
            shown |= numbers
    return "\n\n".join(parts)


def verdicts_table() -> str:
    """Which published numbers are reproduced."""
    return verdicts_markdown(*image_runs())


def protocols_table() -> str:
    """How the rows of the paper's tables and of other systems are trained."""
    lines = ["| rows labelled | training |", "|---|---|"]
    return "\n".join(
        lines
        + [
            f"| {protocol.mark or 'without a protocol named'} | {protocol.summary} |"
            for protocol in PROTOCOLS.values()
        ]
    )


def audit_summary() -> str:
    """Security advisories of the pinned versions, from `tools/audit.py`."""
    record: Record = json.loads((ROOT / "results" / "audit.json").read_text(encoding="utf-8"))
    packages = record["packages"]
    vulnerable = [
        f"{name} {entry['version']} ({', '.join(entry['advisories'])})"
        for name, entry in packages.items()
        if entry["advisories"]
    ]
    unknown = [
        f"{name} {entry['version']}" for name, entry in packages.items() if not entry["known"]
    ]
    known = len(packages) - len(unknown)
    return (
        f"*{record['date']}, {len(packages)} packages: {known} looked up, "
        f"{len(vulnerable) or 'none'} with an "
        f"advisory{': ' + ', '.join(vulnerable) if vulnerable else ''}. "
        f"Not looked up, since not the newest version: {', '.join(unknown) or 'none'}.*"
    )


def photos_table() -> str:
    """Trainings with a pretrained network, from `benchmarks/photos.py`."""
    records = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / "results" / "photos").glob("*.json"))
    ]
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
    return "\n".join(
        [
            *lines,
            "",
            f"*Time of one training without folds, features from the cache. {'; '.join(made)}.*",
        ]
    )


def missing_table() -> str:
    """Trainings on sets some of which lack the true label, from `benchmarks/missing.py`."""
    records = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / "results" / "missing").glob("*.json"))
    ]
    groups: dict[tuple[str, float], dict[str, list[Record]]] = {}
    for record in sorted(records, key=lambda one: (one["data"], one["removed"], one["seed"])):
        groups.setdefault((record["data"], record["removed"]), {}).setdefault(
            record["how"], []
        ).append(record)

    def figure(found: Sequence[Record], name: str) -> str:
        return (
            percent(Figure.of(one[name] for one in found))
            if all(one[name] is not None for one in found)
            else "–"
        )

    names = ("accuracy", "balanced_accuracy", "recovery")
    lines = [
        "| sets (all figures in %) | n | lack it | estimated | accuracy: `never` | `auto` | "
        "balanced: `never` | `auto` "
        "| labels recovered: `never` | `auto` | … of sets that lack it: `auto` |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for (data, removed), ways in groups.items():
        never, auto = ways["never"], ways["auto"]
        what = data if data == "digits-top-k" else f"{data}, {removed:.0%} removed"
        cells = [str(len(auto)), figure(auto, "lacking"), figure(auto, "estimated_share")]
        cells += [figure(way, name) for name in names for way in (never, auto)]
        lines.append(f"| {what} | {' | '.join(cells)} | {figure(auto, 'recovery_of_lacking')} |")
    made = records[0]["environment"]
    commits = " / ".join(sorted({one["environment"]["commit"] for one in records}))
    note = (
        f"*Mean and standard deviation over n draws. {made['hardware']}, one thread per "
        f"training, torch {made['torch']}, commit {commits}.*"
    )
    return "\n".join([*lines, "", note])


def embedding_table() -> str:
    """How fast pictures are embedded and how much memory that takes, from
    `benchmarks/embedding.py`.
    """
    record: Record = json.loads(
        (ROOT / "results" / "bench" / "embedding-cpu.json").read_text(encoding="utf-8")
    )
    speed, memory = record["speed"], record["memory"]
    sizes = list(dict.fromkeys((row["width"], row["height"]) for row in speed["rows"]))
    by_way: dict[str, dict[tuple[int, int], Record]] = {}
    for row in speed["rows"]:
        by_way.setdefault(row["how"], {})[row["width"], row["height"]] = row
    lines = [
        "| pictures per second (CPU time of one, in ms) | "
        + " | ".join(f"{w} × {h}" for w, h in sizes)
        + " |",
        "|---|" + "---:|" * len(sizes),
    ]
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
    gpu: Record = json.loads(
        (ROOT / "results" / "bench" / "embedding-h200.json").read_text(encoding="utf-8")
    )
    made_on, loop = gpu["environment"], gpu["plain_loop"]
    on_gpu = (
        f"On an {made_on['hardware']} with {made_on['threads']} cores, `ltpll embed` takes "
        f"{gpu['per_second']:,} pictures of "
        f"{gpu['width']} × {gpu['height']} per second in {gpu['precision']}, and a plain loop "
        f"in {loop['precision']}, which decodes "
        f"them in the same process, {loop['per_second']:.0f} (n = {gpu['n']}, commit "
        f"{made_on['commit']})."
    )
    return "\n".join(
        [
            *lines,
            "",
            on_gpu,
            "",
            f"*{made['hardware']}, median of {repeats} turns, commit {made['commit']}. Peak "
            "memory, with a network that takes "
            f"none: {peaks} (n = 1, commit {memory['environment']['commit']}).*",
        ]
    )


def pruning_records() -> dict[tuple[str, str], list[Record]]:
    """Pruning by neighbours, from `benchmarks/pruning.py`, by data set and kind of sets."""
    records = [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / "results" / "pruning").glob("*.json"))
    ]
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        groups.setdefault((record["data"], record["origin"]), []).append(record)
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
    lines = [
        f"| in % | rows | n | candidates per set | {' | '.join(heads)} |",
        "|---|---:|---:|---:|" + "---:|" * len(heads),
    ]
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
    return "\n".join([*lines, "", note])


def pruning_choices_table() -> str:
    """How rows are compared and whether equal sets vote, from `benchmarks/pruning_choices.py`; and
    the grid of thresholds.
    """
    found: Record = json.loads(
        (ROOT / "results" / "bench" / "pruning-cpu.json").read_text(encoding="utf-8")
    )
    data, made = found["data"], found["environment"]
    ways = list(next(iter(data.values()))["compared"])
    lines = [f"| wrong labels removed (%) | {' | '.join(data)} |", "|---|" + "---:|" * len(data)]
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
    return "\n".join(
        [
            *lines,
            "",
            (
                f"*All training rows, n = 1. {made['hardware']}, torch {made['torch']}, commit "
                f"{made['commit']}.*"
            ),
        ]
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
    lines = [f"| in % | n | {' | '.join(heads)} |", "|---|---:|" + "---:|" * len(heads)]
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
    return "\n".join(
        [
            *lines,
            f"| mean | {len(records)} | {' | '.join(means)} |",
            "",
            note,
            "",
            measured_on(records),
        ]
    )


def neighbours_table() -> str:
    """The time of the exact search for neighbours, from `benchmarks/neighbours.py`."""
    found: Record = json.loads(
        (ROOT / "results" / "bench" / "neighbours-cpu.json").read_text(encoding="utf-8")
    )
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
    return "\n".join([*lines, "", note])


BLOCKS: dict[str, Callable[[], str]] = {
    "module-map": module_map,
    "part-names": part_names,
    "settings-data": lambda: settings_table("data"),
    "settings-table": lambda: settings_table("table"),
    "settings-columns": lambda: settings_table("columns"),
    "settings-training": lambda: settings_table("training"),
    "settings-run": lambda: settings_table("run"),
    "demo": demo_table,
    "toy": lambda: toy_table(cosine=False),
    "performance": performance_table,
    "steps": steps_table,
    "precision": precision_table,
    "views": views_table,
    "sharing": sharing_table,
    "shares": shares_table,
    "threads": threads_table,
    "systems": systems_table,
    "targets": targets_table,
    "shortened": shortened_tables,
    "protocols": protocols_table,
    "tabular": tabular_table,
    "raw-tables": raw_tables_table,
    "fit": fit_table,
    "cleaning": cleaning_table,
    "confidence": confidence_table,
    "crowds": crowds_table,
    "scores": scores_table,
    "missing": missing_table,
    "review": review_table,
    "image-runs": image_runs_table,
    "drift": drift_table,
    "audit": audit_summary,
    "fuzz": fuzz_table,
    "fuzz-findings": fuzz_findings,
    "reproduction": reproduction_tables,
    "verdicts": verdicts_table,
    "verdicts-summary": lambda: verdicts_table().partition("\n")[0],
    "beyond-priors": priors_table,
    "beyond-drift": beyond_drift_table,
    "beyond-images": beyond_images_table,
    "beyond-hundred": beyond_hundred_table,
    "beyond-short": beyond_short_table,
    "beyond-ablation": beyond_ablation_table,
    "beyond-head": beyond_head,
    "beyond-cost": beyond_cost,
    "beyond-origin": beyond_origin,
    "beyond-tables": origins_table,
    "beyond-columns": columns_table,
    "photos": photos_table,
    "embedding": embedding_table,
    "pruning-votes": pruning_votes_table,
    "pruning-choices": pruning_choices_table,
    "pruning-training": pruning_training_table,
    "neighbours": neighbours_table,
    "headline": headline_table,
    "committee": committee_table,
    "stopping": stopping_table,
    "set-information": set_information_table,
    "toy-cosine": lambda: toy_table(cosine=True),
}


def rendered(text: str) -> str:
    def fill(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in BLOCKS:
            raise InputError(f"There is no block {name!r}; available: {', '.join(BLOCKS)}.")
        return f"<!-- begin {name} -->\n{BLOCKS[name]()}\n<!-- end {name} -->"

    return re.sub(
        r"<!-- begin (?P<name>[\w-]+) -->.*?<!-- end (?P=name) -->", fill, text, flags=re.S
    )


def update(pages: Mapping[Path, str | None], *, check: bool) -> int:
    """Write the pages that are out of date and delete those whose text is None; with `check`, only
    name them and return 1.
    """
    stale = {
        path: text
        for path, text in pages.items()
        if text != (path.read_text(encoding="utf-8") if path.exists() else None)
    }
    if stale:
        print(
            ("out of date: " if check else "rendered: ")
            + ", ".join(str(path.relative_to(ROOT)) for path in stale)
        )
    if check:
        return int(bool(stale))
    for path, text in stale.items():
        if text is None:
            path.unlink()
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return 0


def main(arguments: Sequence[str]) -> int:
    paths = [ROOT / name for name in PAGES]
    return update(
        {path: rendered(path.read_text(encoding="utf-8")) for path in paths},
        check="--check" in arguments,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
