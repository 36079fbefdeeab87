"""Writes docs/methods: one page for every built-in part, from its docstring, its attributes and the
records in results/.

Nothing there is typed by hand. `--check` only compares.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from docs_blocks.beyond import anchor_options, setting_of
from docs_blocks.common import ROOT, percent
from ltpll import PartialLabelClassifier, synthetic
from ltpll.extras import EXTRAS
from ltpll.formatting import format_names
from ltpll.interfaces import Extra, Method, Rebalancer
from ltpll.methods import METHODS
from ltpll.part_info import PartInfo
from ltpll.parts import describe_parts
from ltpll.rebalancers import REBALANCERS
from ltpll.registry import Registry, named_parameters
from ltpll.runs.run import Record
from ltpll.settings import as_toml, checked_arguments, expected
from ltpll_research.records import results_under
from ltpll_research.summary import Figure, Row, rows
from render_docs import update

FOLDER = ROOT / "docs" / "methods"
SETTINGS = ROOT / "mkdocs.yml"
NOTE = (
    "<!-- Written by tools/render_methods.py (`make docs`) from the class's docstring and "
    "the records in results/. -->"
)
REGISTRIES: dict[str, Registry[Any]] = {
    registry.kind: registry for registry in (METHODS, REBALANCERS, EXTRAS)
}
SECTIONS = ("Formula", "References", "Args", "Examples")
REQUIRED = inspect.Parameter.empty
DEFAULT_METHOD: str = named_parameters(PartialLabelClassifier)["method"].default

# ---- docstrings ----------------------------------------------------------------------------------


class Documented(NamedTuple):
    """A built-in part and what its docstring says."""

    info: PartInfo
    cls: type[Any]
    prose: str
    sections: dict[str, str]  # by heading, without indentation
    arguments: dict[str, str]  # the meaning of each option

    @property
    def title(self) -> str:
        """The name as it is written in the module's first line."""
        first = (sys.modules[self.cls.__module__].__doc__ or "").partition("\n")[0]
        return re.split(r" \(|:", first, maxsplit=1)[0]

    @property
    def example(self) -> tuple[list[str], list[str]]:
        """The lines of the example's code, and of the result that it shows."""
        lines = self.sections["Examples"].splitlines()
        return [line.removeprefix(">>> ") for line in lines if line.startswith(">>> ")], [
            x for x in lines if not x.startswith(">>> ")
        ]

    @property
    def example_options(self) -> dict[str, Any]:
        """The options that the example gives the part."""
        calls = [
            node
            for node in ast.walk(ast.parse("\n".join(self.example[0])))
            if isinstance(node, ast.Call)
        ]
        own = next(
            call
            for call in calls
            if isinstance(call.func, ast.Name) and call.func.id == self.cls.__name__
        )
        return {
            keyword.arg: ast.literal_eval(keyword.value) for keyword in own.keywords if keyword.arg
        }


def documented() -> list[Documented]:
    """Every built-in part; those of plug-ins have no page."""
    return [document(info) for info in describe_parts() if info.file.startswith("ltpll/")]


def document(info: PartInfo) -> Documented:
    """Read the docstring of a part's class."""
    cls = REGISTRIES[info.kind][info.name]
    prose, *parts = re.split(
        rf"^({'|'.join(SECTIONS)}):\n", inspect.cleandoc(cls.__doc__ or ""), flags=re.M
    )
    sections = {
        name: inspect.cleandoc(text) for name, text in zip(parts[::2], parts[1::2], strict=True)
    }
    found = re.findall(r"^(\w+): (.*(?:\n .*)*)", sections.get("Args", ""), flags=re.M)
    return Documented(
        info, cls, prose.strip(), sections, {name: one_line(text) for name, text in found}
    )


def one_line(text: str) -> str:
    return " ".join(text.split())


# ---- what a page says ----------------------------------------------------------------------------


def options_table(part: Documented) -> str:
    """Name, type, default and meaning of every option."""
    parameters, checked = named_parameters(part.cls), checked_arguments(part.cls.__init__)
    if not parameters:
        return "None."
    lines = ["| option | type | default | meaning |", "|---|---|---|---|"]
    for name, parameter in parameters.items():
        default = "required" if parameter.default is REQUIRED else f"`{parameter.default!r}`"
        kind = str(parameter.annotation)
        if name in checked and "Literal" not in kind:
            shown = expected(checked[name].kind)
        else:
            shown = shown_type(kind)
        lines.append(f"| `{name}` | {shown} | {default} | {part.arguments[name]} |")
    return "\n".join(lines)


def shown_type(annotation: str) -> str:
    """An annotation in words, without the character that separates the cells of a table."""
    if annotation == "Any":
        return "any"
    choices = re.fullmatch(r"Literal\[(.*)\]", annotation)
    return " or ".join(
        f"`{one}`" for one in (choices[1].split(", ") if choices else annotation.split(" | "))
    )


def combinations(part: Documented) -> list[str]:
    """What the part needs and what it can be combined with, from the attributes of its class."""
    needed = required(part)
    made = part.cls(**{name: part.example_options[name] for name in needed})
    if isinstance(made, Method):
        return list(of_method(made))
    return list(of_rebalancer(made, needed) if isinstance(made, Rebalancer) else of_extra(made))


def required(part: Documented) -> list[str]:
    """The options without a default."""
    return [
        name
        for name, parameter in named_parameters(part.cls).items()
        if parameter.default is REQUIRED
    ]


def of_method(method: Method) -> Iterator[str]:
    seen = (
        ""
        if method.n_forward_views == method.n_views
        else f"; {method.n_forward_views} of them with gradients"
    )
    yield f"Views per example: {', '.join(method.views)}{seen}."
    yield (
        f"A step costs about {method.cost:.2g} times a forward and backward pass of one view "
        "per example."
    )
    where = (
        "the candidates only"
        if method.targets_on == "candidates"
        else "all classes, candidates or not"
    )
    yield f"Targets are kept for {where}."
    if method.why_no_rebalancer:
        yield f"It cannot be combined with a rebalancer (use `none`): {method.why_no_rebalancer}"
    else:
        yield "It can be combined with every rebalancer."
    yield "Any extras can be added."
    if method.variants:
        yield (
            "Benchmark runs also evaluate the same network with other predictions: "
            f"{names(method.variants)}."
        )
    yield (
        f"With `truth_missing`, targets may leave their sets after {method.open_after:.0%} "
        "of the epochs."
    )


def of_rebalancer(rebalancer: Rebalancer, needed: Sequence[str]) -> Iterator[str]:
    places = {
        "targets": "the logits that refine targets",
        "prediction": 'the logits that predict with `goal="balanced"`',
    }
    used = [text for place, text in places.items() if place in rebalancer.places]
    weighs = type(rebalancer).evidence is not Rebalancer.evidence
    same = (
        "" if weighs or "targets" in rebalancer.places else "; training is the same as with `none`"
    )
    yield f"It corrects {' and '.join(used)}{same}." if used else "It corrects nothing."
    if weighs:
        yield "It may add the evidence of the sets to the logits that refine targets."
    if rebalancer.estimates_prior:
        yield "It estimates the class prior (`class_prior_`)."
    for name in needed:
        yield (
            f"It needs `{name}`, which `ltpll-research benchmark` and `ltpll-research "
            "reproduce` know; elsewhere you have to give it."
        )
    refusing = [
        f"[`{name}`]({name}.md)"
        for name, method in METHODS.items()
        if method.why_no_rebalancer and rebalancer.name != "none"
    ]
    yield "It can be combined with every method" + (
        f" except {' and '.join(refusing)}, whose pages say why." if refusing else "."
    )
    yield "Any extras can be added."


def of_extra(extra: Extra) -> Iterator[str]:
    views = "It uses the views of the method"
    if extra.n_views > 1:
        forward = (
            ""
            if extra.n_forward_views == extra.n_views
            else f", {extra.n_forward_views} of them with gradients"
        )
        views = (
            f"It needs {extra.n_views} views per example{forward}; a strong view is added "
            "to methods that draw fewer"
        )
    yield f"{views}."
    yield "It can be added to every method, with every rebalancer and with other extras."
    first = next(epoch for epoch in range(100) if extra.active(epoch))
    yield (
        "It is used from the first epoch on."
        if first == 0
        else f"By default it is used from epoch {first} on, counted from 0."
    )
    if type(extra).balanced_logits is not Extra.balanced_logits:
        yield 'For `goal="balanced"`, its logits replace the correction of the rebalancer.'


def names(values: Iterable[str]) -> str:
    return format_names([f"`{value}`" for value in values])


def python_example(part: Documented) -> str:
    """The example with its imports."""
    code, shown = part.example
    package = part.cls.__module__.rpartition(".")[0]
    imports = [
        "from ltpll import PartialLabelClassifier",
        f"from {package} import {part.cls.__name__}",
    ]
    if drawn := [name for name in synthetic.__all__ if f"{name}(" in " ".join(code)]:
        imports.insert(1, f"from ltpll.synthetic import {', '.join(drawn)}")
    return "\n".join([*imports, "", *code, *(f"# {line}" for line in shown)])


def commands(part: Documented) -> list[str]:
    """Commands that use the part; options are given in a config file."""
    kind, name = part.info.kind, part.info.name
    own = f"--{kind} {name}"
    of_train = f"--set training.extras={name}" if kind == "extra" else own
    if kind == "method":
        parts = f"{own} --rebalancer {'none' if METHODS[name].why_no_rebalancer else 'records'}"
    else:
        parts = f"--method {DEFAULT_METHOD} {own}"
    config = " --config ltpll.toml" if required(part) else ""
    return [
        f"ltpll train table.csv {of_train}{config}",
        f"ltpll-research benchmark cifar10 --ambiguity 0.5 {parts}",
    ]


def config_file(part: Documented) -> str:
    """The options of the example, as a config file."""
    lines = [f"{name} = {as_toml(value)}" for name, value in part.example_options.items()]
    return "\n".join([f"[training.options.{part.info.name}]", *lines, ""]) if lines else ""


# ---- where parts were measured -------------------------------------------------------------------


class Measured(NamedTuple):
    """The figures of one way of training in one setting."""

    parts: tuple[str, ...]
    label: str
    setting: str
    n: str
    balanced_accuracy: Figure | None
    target_recovery: Figure | None
    block: str  # the generated block of the docs that shows them in full


def measured() -> list[Measured]:
    """All figures that records hold, in the order of the folders below."""
    found: list[Measured] = []
    for folder, block in (
        ("images", "reproduction"),
        ("beyond", "beyond-images"),
        ("digits", "demo"),
        ("toy", "toy"),
    ):
        records = [
            record for record in results_under(ROOT / "results" / folder) if "tried" not in record
        ]
        found += sorted(
            (of_row(row, folder, block) for row in rows(records) if attributed(row)),
            key=lambda one: (one.setting, one.label),
        )
    return [*found, *of_tables(), *of_photos()]


def attributed(row: Row) -> bool:
    """Whether a row says something about its parts: not another rebalancer's prediction after
    training with a rebalancer.
    """
    return row.posthoc not in REBALANCERS or row.rebalancer == "none"


def of_row(row: Row, folder: str, block: str) -> Measured:
    record = row.records[0]
    of_parts = anchor_options(record) if "options" in record["config"] else {}
    given = [
        own for name, own in of_parts.items() if name in (row.method, row.rebalancer, *row.extras)
    ]
    shown = [", ".join(f"{key} {value}" for key, value in sorted(own.items())) for own in given]
    label = " ".join([row.label, *(f"({options})" for options in shown)])
    # A correction after training belongs to the rebalancer that makes it; other rows are about
    # everything that they were trained with.
    parts = (
        (row.posthoc,) if row.posthoc in REBALANCERS else (row.method, row.rebalancer, *row.extras)
    )
    figures = (row.last("balanced_accuracy"), row.target_recovery)
    return Measured(parts, label, setting(record, folder), str(row.n), *figures, block)


def setting(record: Record, folder: str) -> str:
    config = record["config"]
    if folder == "toy":
        schedule = "constant" if config["final_lr"] == 1 else "cosine"
        return (
            f"four squares, q={config['ambiguity']:g}, {config['epochs']} epochs, "
            f"{schedule} learning rate"
        )
    if folder == "digits":
        return (
            f"handwritten digits, ρ={config['data']['imbalance']:g}, "
            f"q={config['data']['ambiguity']:g}, {config['epochs']} epochs"
        )
    data, imbalance, ambiguity = setting_of(record)
    drawn = "" if data.startswith("voc") else f", ρ={imbalance:g}, q={ambiguity:g}"
    return f"{data}{drawn}, {config['epochs']} epochs, {config['views']} views, lr {config['lr']:g}"


def of_tables() -> Iterator[Measured]:
    """Cross-validation on real tables, from `benchmarks/tabular.py`."""
    for record in stored("tabular"):
        method, plus, rebalancer = record["row"].partition("+")
        if plus:
            by_average = rebalancer == "average"
            parts = (method, "auto" if by_average else rebalancer)
            label = (
                f"{method} + auto (prior average)"
                if by_average
                else method + (f" + {rebalancer}" if rebalancer != "none" else "")
            )
            figures = [Figure.of(record[name]) for name in ("balanced_accuracy", "recovery")]
            what = f"table {record['table']}, {record['n']:,} rows, {record['classes']} classes"
            yield Measured(parts, label, what, f"{record['folds']} folds", *figures, "tabular")


def of_photos() -> Iterator[Measured]:
    """Trainings with a pretrained network and the default method, from `benchmarks/photos.py`."""
    groups: dict[tuple[str, str, str], list[Record]] = {}
    for record in stored("photos"):
        if record["trained_with"] in REBALANCERS:
            groups.setdefault(
                (record["data"], record["finetune"], record["trained_with"]), []
            ).append(record)
    for (data, layers, rebalancer), found in groups.items():
        goals = [
            record["by_goal"].get("balanced", next(iter(record["by_goal"].values())))
            for record in found
        ]
        figures = [
            Figure.of(goal["balanced_accuracy"] for goal in goals),
            Figure.of(record["target_recovery"] for record in found),
        ]
        what = (
            f"{data}, {found[0]['backbone']} "
            f"{'frozen' if layers == 'none' else f'fine-tuned ({layers})'}"
        )
        label = DEFAULT_METHOD + (f" + {rebalancer}" if rebalancer != "none" else "")
        yield Measured(
            (DEFAULT_METHOD, rebalancer), label, what, str(len(found)), *figures, "photos"
        )


def of_origins(name: str) -> str:
    """A sentence about sets of many origins, from `benchmarks/origins.py`, whose table has too many
    rows for this page.
    """
    records = [
        record for record in stored("origins") if name in (DEFAULT_METHOD, *record["figures"])
    ]
    if not records:
        return ""
    kinds, data = (
        {(record["data"], record["origin"]) for record in records},
        sorted({record["data"] for record in records}),
    )
    page = page_with("beyond-tables")
    return (
        f"Also with {len(kinds)} kinds of candidate sets for the features of "
        f"{', '.join(data)}: [{page.removesuffix('.md')}](../{page})."
    )


def stored(folder: str) -> list[Record]:
    return [
        json.loads(path.read_text(encoding="utf-8"))
        for path in sorted((ROOT / "results" / folder).glob("*.json"))
    ]


def page_with(block: str) -> str:
    """The page of the docs that shows a generated block."""
    return next(
        path.name
        for path in sorted((ROOT / "docs").glob("*.md"))
        if f"<!-- begin {block} -->" in path.read_text(encoding="utf-8")
    )


def measured_table(part: Documented, found: Sequence[Measured]) -> str:
    """Every figure about a part; for a method, of training runs without extras."""
    own = [one for one in found if part.info.name in one.parts]
    if part.info.kind == "method":
        own = [one for one in own if not EXTRAS.keys() & set(one.parts)]
    if not own:
        return "Not measured yet."
    lines = [
        (
            "| trained with | setting | n | balanced accuracy, last epoch (%) | target recovery "
            "(%) | in full |"
        ),
        "|---|---|---:|---:|---:|---|",
    ]
    for one in own:
        page = page_with(one.block)
        figures = f"{percent(one.balanced_accuracy)} | {percent(one.target_recovery)}"
        lines.append(
            f"| {one.label} | {one.setting} | {one.n} | {figures} | "
            f"[{page.removesuffix('.md')}](../{page}) |"
        )
    note = (
        "Mean and standard deviation over n seeds or folds, with the code of the commits "
        "that the full tables name."
    )
    lines += ["", f"*{note}*"]
    if more := of_origins(part.info.name):
        lines += ["", more]
    return "\n".join(lines)


# ---- pages ---------------------------------------------------------------------------------------


def page(part: Documented, found: Sequence[Measured]) -> str:
    """The page of a part."""
    config = config_file(part)
    command_lines = "\n".join(commands(part))
    source = part.sections.get("References", "No publication: this is the method alone.")
    references = "\n".join(f"- {linked(one_line(paragraph))}" for paragraph in source.split("\n\n"))
    blocks = [
        NOTE,
        f"# {part.title}",
        (
            f"{part.info.kind.capitalize()} `{part.info.name}` in `src/{part.info.file}`: "
            f"{part.info.idea}"
        ),
        part.prose,
        "## Formula",
        f"```text\n{part.sections['Formula']}\n```",
        "[Symbols](index.md#symbols)",
        "## Options",
        options_table(part),
        "## Requirements and combinations",
        "\n".join(f"- {line}" for line in combinations(part)),
        "## Usage",
        f"```python\n{python_example(part)}\n```",
        f"```sh\n{command_lines}\n```",
        *(
            [
                (
                    "Options are set in a file, `--config ltpll.toml` (of `ltpll-research "
                    f"benchmark`, without `training.`):\n\n```toml\n{config}```"
                )
            ]
            if config
            else []
        ),
        "## Measured",
        measured_table(part, found),
        "## Source",
        references,
    ]
    return "\n\n".join(blocks) + "\n"


def linked(reference: str) -> str:
    return re.sub(r"https://\S+", lambda found: f"<{found[0]}>", reference)


SYMBOLS = {
    "x": "the input of an example",
    "S": "its candidate set; j ∈ S is a candidate, j ∉ S is not",
    "w": (
        "its targets, which sum to one over S; at the start uniform on S, or the weights of "
        "the candidates"
    ),
    "f": "its features, the input of the last layer (the head)",
    "z": (
        "its logits, head(f); z_v, z_weak, z_strong: of a view; one without a name is of the "
        "first view, which is weak"
    ),
    "p": "softmax(z)",
    "π, π̂": "the class prior, true or estimated",
    "a": (
        "what is known about the candidates before training: weight times set size, so 1 if "
        "they have no weights"
    ),
    "ẑ": "the logits that refine the targets: z corrected by the rebalancer, plus log a",
    "m": "the mean target of all training examples, each class at least half an example",
    "softmax_S": "the softmax over the candidates, zero elsewhere",
    "σ": "the logistic function 1 / (1 + exp(−·))",
    "CE(w, z)": "−Σ_j w_j log softmax(z)_j",
    "KL(w ‖ p)": "Σ_j w_j log(w_j / p_j)",
    "onehot(k)": "1 for class k, 0 elsewhere",
    "C, N, B": "the number of classes, of training examples, and of examples in a batch",
    "e, E": "the epoch, from 0, and the number of epochs",
    "x′, w′, S′": (
        "those of another example of the batch; z_blend: the logits of λx + (1−λ)x′, "
        "with λ as in [mixup](mixup.md) with α = 4"
    ),
    "other letters": (
        "defined by the formula, or named like an option (β: `beta`, τ: `tau`, φ: "
        "`phi`, ε: `epsilon`, T: `temperature`)"
    ),
}


def index(parts: Sequence[Documented]) -> str:
    """The overview of all parts, and the symbols of their formulas."""
    blocks = [
        NOTE,
        "# Methods, rebalancers and extras",
        "A training run has one method, one rebalancer and any number of extras; `ltpll list` "
        "prints them. "
        "Every page states the formula, the "
        "options, and the figures that were measured.",
    ]
    for kind, what in (
        (
            "method",
            (
                "A method has a loss against the targets and a rule that refines them, written as "
                "if classes were balanced."
            ),
        ),
        (
            "rebalancer",
            (
                "A rebalancer corrects logits for the class prior where targets are refined and in "
                "predictions."
            ),
        ),
        ("extra", "An extra is a term that is added to the loss."),
    ):
        lines = ["| name | what it does | source |", "|---|---|---|"]
        lines += [
            (
                f"| [`{part.info.name}`]({part.info.name}.md) | {part.info.idea} | "
                f"{part.info.source.partition(' (')[2].removesuffix(')') or '–'} |"
            )
            for part in parts
            if part.info.kind == kind
        ]
        blocks += [f"## {kind.capitalize()}s", what, "\n".join(lines)]
    blocks += [
        "## Symbols",
        "\n".join(
            [
                "| symbol | meaning |",
                "|---|---|",
                *(f"| {symbol} | {meaning} |" for symbol, meaning in SYMBOLS.items()),
            ]
        ),
        "Formulas are for one example; the loss of a step is the mean over the batch. In a "
        "step, the rebalancer first observes the "
        "outputs. Then the targets of the batch are refined, except in the first epoch. The "
        "loss uses the raw logits z and the targets "
        "from before the step; the terms of the extras are added to it. Formulas say where a "
        "method differs from this. `prediction` is for "
        '`goal="balanced"`; for `goal="accuracy"` it is z, or the own prediction of a method '
        "that has one.",
        "## Your own parts",
        "A part is one class. In this repository it is a file in `src/ltpll/methods/`, "
        "`rebalancers/` or `extras/`; "
        "[Adding a method](../add-a-method.md) has a complete example of each kind. Another "
        "package offers its parts through the entry "
        "points `ltpll.methods`, `ltpll.rebalancers` and `ltpll.extras`. The page of a part is "
        "generated from its class: the first line of "
        "the module (source and idea), the sections Formula, References, Args and Examples of "
        "the docstring, and the attributes.",
    ]
    return "\n\n".join(blocks) + "\n"


def pages() -> dict[str, str]:
    """The text of every page by file name."""
    parts, found = documented(), measured()
    return {
        "index.md": index(parts),
        **{f"{part.info.name}.md": page(part, found) for part in parts},
    }


def navigation(text: str) -> str:
    """The settings of the site, with an entry for each page between the marks."""
    indent = "      "
    kinds: dict[str, list[str]] = {}
    for part in documented():
        kinds.setdefault(f"{part.info.kind}s".capitalize(), []).append(
            f"{part.title}: methods/{part.info.name}.md"
        )
    lines = [
        f"{indent}- {kind}:\n" + "".join(f"{indent}    - {page}\n" for page in found)
        for kind, found in kinds.items()
    ]
    return re.sub(
        r"(# begin methods .*?\n).*?( *# end methods)",
        lambda found: found[1] + "".join(lines) + found[2],
        text,
        flags=re.S,
    )


def main(arguments: Sequence[str]) -> int:
    wanted: dict[Any, str | None] = {FOLDER / name: text for name, text in pages().items()}
    removed = {path: None for path in FOLDER.glob("*.md") if path not in wanted}
    settings = {SETTINGS: navigation(SETTINGS.read_text(encoding="utf-8"))}
    return update({**wanted, **removed, **settings}, check="--check" in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
