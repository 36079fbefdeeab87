"""The blocks of docs/performance.md, mostly from results/bench."""

from __future__ import annotations

from docs_blocks.common import RELABELLED, ROOT, bench_records, table_head
from ltpll.runs.run import Record
from ltpll_research.records import results_under


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
            *table_head(
                "threads",
                "waiting threads",
                *(f"{k} other job{'s' * (k != 1)}" for k in jobs),
                texts=2,
            ),
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
        lines += table_head("runs at once", *counts)
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
        lines += table_head("rows per process", *heads, texts=0)
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


BLOCKS = {
    "performance": performance_table,
    "steps": steps_table,
    "precision": precision_table,
    "views": views_table,
    "sharing": sharing_table,
    "shares": shares_table,
    "threads": threads_table,
    "systems": systems_table,
    "targets": targets_table,
    "image-runs": image_runs_table,
}
