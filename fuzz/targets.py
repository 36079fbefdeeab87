"""Targets: every reader of the package as a function of bytes, with its seeds and mutations."""

from __future__ import annotations

import json
import random
import struct
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fuzz import seeds
from fuzz.mutations import (
    Mutation,
    json_mutation,
    mutated,
    mutated_tree,
    safetensors_mutation,
    zip_mutation,
)
from ltpll.candidates import Candidates
from ltpll.convert.open import read_candidates, read_label_table
from ltpll.errors import InputError
from ltpll.settings import as_toml
from ltpll.tables.read_tables import LabelTable
from ltpll.tables.reading import Reading

LONGEST_SENTENCE = 2000


@dataclass(frozen=True)
class Target:
    """A reader; `run` writes the bytes to a file and reads it, with options selected by the first
    byte of the case.
    """

    name: str
    run: Callable[[bytes, Path], None]
    seeds: Callable[[], Sequence[bytes]]
    options: int = 1
    tokens: Sequence[bytes] = ()
    mutations: Sequence[Mutation] = ()

    def cases(self) -> list[bytes]:
        """Every seed with every choice of options."""
        return [
            bytes([option]) + content for content in self.seeds() for option in range(self.options)
        ]

    def mutate(self, rng: random.Random, case: bytes, others: Sequence[bytes]) -> bytes:
        option = case[:1] or b"\0"
        if rng.random() < 0.1:
            option = bytes([rng.randrange(self.options)])
        content = case[1:]
        if self.mutations and rng.random() < 0.5:
            content = rng.choice(self.mutations)(rng, content)
            if rng.random() < 0.7:
                return option + content
        return option + mutated(rng, content, others, self.tokens)


def check_sentence(error: InputError) -> None:
    """Check that a message is one printable, reasonably short line that ends with a full stop."""
    text = str(error)
    assert text.endswith("."), f"not a sentence: {text[-200:]!r}"
    assert len(text) <= LONGEST_SENTENCE, f"{len(text)} characters: {text[:300]!r}"
    assert text.isprintable(), f"not printable: {text[:300]!r}"


# ---- tables --------------------------------------------------------------------------------------

READINGS: tuple[tuple[Reading, bool], ...] = (
    (Reading(), True),
    (Reading(), False),
    (Reading(features=("x",), classes=("cat", "dog", "fox", "cow")), True),
    (Reading(separator=";"), True),
    (Reading(class_columns=("is_*",)), True),
    (Reading(class_columns=("is_cat", "is_dog")), True),
    (Reading(probability_columns=("p_*",), top_k=2), True),
    (Reading(probability_columns=("p_cat", "p_dog"), mass=0.9), True),
    (Reading(annotators="union"), True),
    (Reading(annotators="votes>=2"), True),
    (Reading(annotators="top-1", classes=("cat", "dog")), True),
    (Reading(id="x", label="y", candidates="sets"), True),
    (Reading(empty="all"), True),
    (Reading(empty="all", scores="none", taxonomy="tree.csv"), True),
    (Reading(scores="none", classes=("cat", "dog", "!fox", "16:9")), False),
)
# What a reading above names, as a small valid file.
TREE = b"class,parent\ncat,Felis\nlynx,Felis\nFelis,animal\ndog,Canidae\nfox,Canidae\ncow,\n"


def check_candidates(found: Candidates) -> None:
    assert len(found) >= 1
    assert found.n_classes >= 2
    assert int(found.sizes.min()) >= 1
    assert 0 <= int(found.labels.min()) <= int(found.labels.max()) < found.n_classes
    assert len(found.classes) == found.n_classes == len(set(found.classes))


def check_table(found: LabelTable) -> None:
    n = len(found)
    assert n >= 1
    assert len(set(found.ids)) == n
    if found.candidates is not None:
        check_candidates(found.candidates)
        assert len(found.candidates) == n
    if found.labels is not None:
        assert found.labels.shape == (n,)
        assert found.labels.min() >= -1
    if found.features is not None:
        assert found.features.shape == (n, len(found.feature_names))
        assert np.isfinite(found.features).all()
    assert all(column is None or len(column) == n for column in (found.splits, found.paths))


def table_target(suffix: str) -> Callable[[bytes, Path], None]:
    def run(case: bytes, folder: Path) -> None:
        path = folder / f"t{suffix}"
        path.write_bytes(case[1:])
        option = case[0] % (len(READINGS) + 2) if case else 0
        if option < len(READINGS):
            reading, needs_candidates = READINGS[option]
            if reading.taxonomy is not None:
                (folder / reading.taxonomy).write_bytes(TREE)
                reading = replace(reading, taxonomy=str(folder / reading.taxonomy))
            check_table(read_label_table(path, reading, needs_candidates=needs_candidates))
        else:
            check_candidates(
                read_candidates(path, "candidates" if option == len(READINGS) else None).candidates
            )

    return run


def run_csv(case: bytes, folder: Path) -> None:
    table_target(".tsv" if case[1:].split(b"\n", 1)[0].count(b"\t") else ".csv")(case, folder)


def run_taxonomy(case: bytes, folder: Path) -> None:
    """Read a taxonomy, and a table that uses it."""
    from ltpll.tables.class_files import read_taxonomy

    kinds = (".csv", ".tsv", ".parquet")
    path, table = folder / f"tree{kinds[case[0] % 3 if case else 0]}", folder / "t.csv"
    path.write_bytes(case[1:])
    table.write_bytes(b"candidates,x\nFelis|dog,1\n!cat,2\n*,3\nFelis|cow|!lynx,4\n")
    found = read_taxonomy(path)
    assert len(set(found.leaves)) == len(found.leaves)
    for member in list(found.names)[:50]:
        assert set(found.classes_below(member)) <= set(found.leaves)
    check_table(read_label_table(table, Reading(taxonomy=str(path))))


JSON_READINGS: tuple[tuple[Reading, bool], ...] = (
    (Reading(), True),
    (Reading(), False),
    (Reading(annotators="top-1", vote_weights="counts"), True),
    (Reading(control="c", path="image"), True),
    (Reading(top_k=1), True),
    (Reading(mass=0.5), True),
    (Reading(classes=("cat", "dog", "fox", "elk", "bear")), False),
)


def run_json(case: bytes, folder: Path) -> None:
    """Read a file of a labelling tool or a detector."""
    content = case[1:]
    path = folder / ("t.jsonl" if content[:1] == b"{" and b"}\n{" in content else "t.json")
    path.write_bytes(content)
    reading, needs_candidates = JSON_READINGS[case[0] % len(JSON_READINGS) if case else 0]
    check_table(read_label_table(path, reading, needs_candidates=needs_candidates))


# ---- sets ----------------------------------------------------------------------------------------


def run_strings(case: bytes, folder: Path) -> None:
    """Read what a program may pass: series of strings, lists, labels."""
    import pandas as pd

    from ltpll.candidates.labels import read_labels
    from ltpll.candidates.votes import vote_rule

    option = case[0] % 8 if case else 0
    text = case[1:].decode("utf-8", "surrogateescape" if option == 7 else "replace")
    lines = text.split("\n")
    if option in (0, 7):
        check_candidates(Candidates.of(pd.Series(lines, dtype=object)))
    elif option == 1:
        check_candidates(Candidates.of(pd.Series(lines[1:], dtype=object), separator=lines[0]))
    elif option == 2:
        check_candidates(
            Candidates.of(pd.Series(lines[1:], dtype=object), classes=lines[0].split("|"))
        )
    elif option == 3:
        check_candidates(read_labels(pd.Series(lines, dtype=object)).candidates)
    elif option == 4:
        vote_rule(lines[0])
    else:
        try:
            content = json.loads(text)
        except (ValueError, RecursionError):
            return
        if isinstance(content, list):
            check_candidates(
                Candidates.of(content) if option == 5 else read_labels(content).candidates
            )


def run_arrays(case: bytes, folder: Path) -> None:
    from ltpll.tables.opening import read_array

    option = case[0] % 3 if case else 0
    path = folder / ("t.npz" if case[1:3] == b"PK" else "t.npy")
    path.write_bytes(case[1:])
    found = read_array(path, lambda names: (names or ["x"])[0] if option else "candidates")
    check_candidates(Candidates.from_matrix(found))


# ---- settings, checkpoints, records --------------------------------------------------------------


def run_config(case: bytes, folder: Path) -> None:
    """Read a file of settings, write them again, and build the parts that it names."""
    from ltpll.cleaning.settings import TrainJob
    from ltpll.parts import build_parts
    from ltpll.settings import by_full_name, file_text, read_file, with_settings

    path = folder / "ltpll.toml"
    path.write_bytes(case[1:])
    job = with_settings(TrainJob, by_full_name(TrainJob, read_file(path)))
    path.write_text(file_text(job, "Written"), encoding="utf-8")
    assert with_settings(TrainJob, by_full_name(TrainJob, read_file(path))) == job
    settings = job.training
    job.table.check()
    settings.check(("cat", "dog"))
    build_parts(settings.method, settings.rebalancer, settings.extras, settings.options)


def config_mutation(rng: random.Random, data: bytes) -> bytes:
    try:
        tree = mutated_tree(rng, tomllib.loads(data.decode()))
        return "\n".join(f"{as_toml(str(k))} = {as_toml(v)}" for k, v in tree.items()).encode()
    except Exception:  # not TOML that this mutation can change
        return data


def checkpoint_mutation(rng: random.Random, data: bytes) -> bytes:
    """Change the header or the numbers, and usually correct the checksum."""
    from safetensors.torch import load

    from ltpll.training.checkpoint import _checksum

    if rng.random() < 0.3:
        size = min(8 + int.from_bytes(data[:8], "little"), len(data))
        data = data[:size] + mutated(rng, data[size:], [data], ())[: len(data) - size].ljust(
            len(data) - size, b"\0"
        )
    else:
        data = safetensors_mutation(rng, data)
    if rng.random() < 0.1:
        return data
    try:
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        header["__metadata__"]["checksum"] = _checksum(load(data), header["__metadata__"]["values"])
        text = json.dumps(header).encode()
    except Exception:  # too damaged to have a checksum
        return data
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data[8 + size :]


@cache
def _problem() -> tuple[Any, Candidates]:
    rng = np.random.default_rng(0)
    sets = Candidates.of(
        [[i % 3, (i + 1) % 3] if i % 2 else [i % 3] for i in range(8)], n_classes=3
    )
    return rng.normal(size=(8, 2)).astype(np.float32), sets


def small_trainer() -> Any:
    from ltpll import METHODS, REBALANCERS, PartialLabelTrainer, build_model

    x, sets = _problem()
    model = build_model("mlp", seed=0, n_inputs=2, n_classes=3, hidden=(2,))
    trainer = PartialLabelTrainer(
        model, METHODS["proden"](), REBALANCERS["records"](), epochs=3, lr=0.1, device="cpu"
    )
    trainer.prepare(x, sets)
    return trainer


def run_checkpoint(case: bytes, folder: Path) -> None:
    from ltpll import PartialLabelClassifier
    from ltpll.training.checkpoint import read_checkpoint

    path = folder / "c.safetensors"
    path.write_bytes(case[1:])
    option = case[0] % 3 if case else 0
    if option == 0:
        read_checkpoint(path)
    elif option == 1:
        trainer = small_trainer()
        trainer.load(path)
        assert trainer.epoch >= 0
    else:
        model = PartialLabelClassifier.load(path, device="cpu")
        predicted = model.predict(np.zeros((1, 2), dtype=np.float32))
        assert predicted[0] in model.classes_


def run_record(case: bytes, folder: Path) -> None:
    """Read a result file and render its page."""
    from unittest.mock import patch

    from ltpll.runs.run import read_result
    from ltpll_research.comparing.page import render_page
    from ltpll_research.comparing.systems import compare_systems
    from ltpll_research.paper.grid import Finished
    from ltpll_research.schema import check_record

    path = folder / "result.json"
    path.write_bytes(case[1:])
    found = read_result(path)
    others = [seeds.record(7, "records"), seeds.record(8)]
    if case[:1] == b"\1":
        Finished.under(folder)
    records = [found, *others] if case[:1] == b"\2" else [found]
    for record in records:
        check_record(record)
    with patch("ltpll_research.comparing.page.draw_problems", lambda problems: b""):  # it is slow
        shown = render_page(compare_systems(records), title="t")
    assert "<script" not in shown
    assert shown.count("<img") == shown.count("<figure>")


# ---- pictures, archives, image sets --------------------------------------------------------------


def run_picture(case: bytes, folder: Path) -> None:
    from ltpll.backbones import Preprocessing
    from ltpll.pictures.reading import read_pictures

    (folder / "p").write_bytes(case[1:])
    ways = (
        Preprocessing(8),
        Preprocessing(8, fit="crop", resize=10, resample="bicubic"),
        Preprocessing(8, fit="stretch"),
    )
    found = read_pictures(folder, ["p"], ways[case[0] % len(ways)] if case else 8)
    assert found.x.shape == (1, 8, 8, 3)


def run_paths(case: bytes, folder: Path) -> None:
    """Read pictures from paths in a table; the file outside their folder must not be read."""
    from ltpll.pictures.reading import read_pictures

    inner = folder / "inner"
    inner.mkdir(exist_ok=True)
    (folder / "secret.png").write_bytes(seeds.picture_seeds()[3])
    names = case[1:].decode("utf-8", "surrogateescape").split("\n")[:4]
    read_pictures(inner, names, 2, on_error="skip")
    raise AssertionError(f"a picture outside the folder was read: {names}")


class Bundle:
    """A folder of files as one case: all files in a row, each preceded by its length."""

    def __init__(
        self, files: Callable[[], dict[str, bytes]], mutations: dict[str, Sequence[Mutation]]
    ) -> None:
        self.files, self.mutations = files, mutations

    def seeds(self) -> list[bytes]:
        return [self.joined(self.files())]

    def joined(self, files: dict[str, bytes]) -> bytes:
        return b"".join(
            struct.pack("<I", len(files[name])) + files[name] for name in sorted(self.files())
        )

    def split(self, data: bytes) -> dict[str, bytes]:
        files, position = {}, 0
        for name in sorted(self.files()):
            (size,) = struct.unpack("<I", data[position : position + 4].ljust(4, b"\0"))
            files[name] = data[position + 4 : position + 4 + size]
            position += 4 + size
        return files

    def mutate(self, rng: random.Random, data: bytes) -> bytes:
        """Change one file, with or without knowledge of its format."""
        files = self.split(data)
        name = rng.choice(sorted(files))
        known = self.mutations.get(Path(name).suffix, ())
        if known and rng.random() < 0.7:
            return self.joined(files | {name: rng.choice(known)(rng, files[name])})
        return self.joined(files | {name: mutated(rng, files[name], [files[name]], ())})


IMAGE_SET = Bundle(seeds.image_set_files, {".json": [json_mutation], ".npz": [zip_mutation]})
OWN_RUN = Bundle(seeds.own_files, {".json": [json_mutation], ".parquet": [seeds.odd_columns]})


def run_image_set(case: bytes, folder: Path) -> None:
    from ltpll_research.image_sets.prepared import load_image_set

    home = folder / "voc2007"
    home.mkdir(exist_ok=True)
    files = IMAGE_SET.split(case[1:])
    if case[:1] != b"\1":  # correct the sizes, so that the arrays are read
        try:
            meta = json.loads(files["meta.json"])
            for name, about in meta["files"].items():
                about["bytes"] = len(files[name])
            files["meta.json"] = json.dumps(meta).encode("utf-8", "surrogatepass")
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            pass
    for name, content in files.items():
        (home / name).write_bytes(content)
    found = load_image_set("voc2007", folder, mmap=case[:1] == b"\2")
    assert len(found.x_train) == len(found.y_train)


# ---- own data ------------------------------------------------------------------------------------


def run_own(case: bytes, folder: Path) -> None:
    """Read the folder of a finished run, make its tables and its page, and restore how its table
    was read.
    """
    from ltpll.cleaning.prediction import source_for_new_table
    from ltpll.cleaning.results import annotator_columns, class_columns, cleaned_columns
    from ltpll.cleaning.stored_tables import read_cleaned
    from ltpll.report.cleaning_page import render_cleaning_page
    from ltpll.runs.run import marker_text
    from ltpll.runs.run_files import RunFile

    home = folder / "run"
    home.mkdir(exist_ok=True)
    files = OWN_RUN.split(case[1:])
    for name, content in files.items():
        (home / name).write_bytes(content)
    (home / "config.json").write_text('{"experiment": "own"}')
    (home / RunFile.MARKER).write_bytes(
        marker_text(home, files)
    )  # whoever forges files can forge their checksums too
    found = read_cleaned(home)
    if case[:1] == b"\1":
        source_for_new_table(home, found.record, Path("t.csv"), None, None, "stop")
        return
    cleaned_columns(found)
    class_columns(found)
    if found.votes is not None:
        annotator_columns(found)
    shown = render_cleaning_page(found)
    assert shown.count("<script") == shown.count("</script>") == 2


def run_features(case: bytes, folder: Path) -> None:
    from ltpll.cleaning.dataset import TableSource, read_examples

    table = folder / "t.csv"
    table.write_bytes(b"id,candidates\na,cat|dog\nb,dog\n")
    start = case[1:3]
    path = folder / ("f.npz" if start == b"PK" else "f.npy" if start == b"\x93N" else "f.csv")
    path.write_bytes(case[1:])
    found = read_examples(TableSource(table, Reading(), features=path))
    assert found.x.shape[0] == 2
    assert np.isfinite(found.x).all()


TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target(
            "csv",
            run_csv,
            lambda: seeds.CSV,
            len(READINGS) + 2,
            seeds.CSV_TOKENS,
            [seeds.cells_mutation(b",,,\t;", seeds.CSV_TOKENS)],
        ),
        Target(
            "strings", run_strings, lambda: seeds.STRINGS, 8, seeds.STRING_TOKENS, [json_mutation]
        ),
        Target(
            "parquet",
            table_target(".parquet"),
            seeds.parquet_seeds,
            len(READINGS) + 2,
            (b"PAR1",),
            [seeds.odd_table],
        ),
        Target(
            "xlsx",
            table_target(".xlsx"),
            seeds.workbook_seeds,
            len(READINGS) + 2,
            seeds.SHEET_TOKENS,
            [zip_mutation],
        ),
        Target(
            "json-lines",
            table_target(".jsonl"),
            lambda: seeds.JSON_LINES,
            len(READINGS) + 2,
            seeds.JSON_TOKENS,
            [json_mutation],
        ),
        Target(
            "label-studio",
            run_json,
            lambda: seeds.LABEL_STUDIO,
            len(JSON_READINGS),
            seeds.JSON_TOKENS,
            [json_mutation],
        ),
        Target(
            "speciesnet",
            run_json,
            lambda: seeds.SPECIESNET,
            len(JSON_READINGS),
            seeds.JSON_TOKENS,
            [json_mutation],
        ),
        Target(
            "taxonomy",
            run_taxonomy,
            seeds.taxonomy_seeds,
            3,
            seeds.TAXONOMY_TOKENS,
            [seeds.cells_mutation(b",\t\n ", seeds.TAXONOMY_TOKENS)],
        ),
        Target(
            "arrays",
            run_arrays,
            seeds.array_seeds,
            3,
            (b"<f8", b"|O", b"|b1", b"'shape': (2,)", b"True", b"PK\1\2"),
            [zip_mutation],
        ),
        Target(
            "config", run_config, lambda: seeds.CONFIG, 1, seeds.CONFIG_TOKENS, [config_mutation]
        ),
        Target(
            "checkpoint",
            run_checkpoint,
            seeds.checkpoint_seeds,
            3,
            (b'"F32"', b'"I64"', b'"shape":[2]', b"[0,0]"),
            [checkpoint_mutation],
        ),
        Target(
            "record",
            run_record,
            seeds.record_seeds,
            3,
            (b'"test"', b"null", b"1e999", b"NaN", b"[" * 2000),
            [json_mutation],
        ),
        Target("picture", run_picture, seeds.picture_seeds, options=3),
        Target(
            "paths",
            run_paths,
            lambda: [b"a.png\nb/c.jpg", b"../secret.png", b"..\\secret.png"],
            1,
            (b"..", b"/", b"\\", b"\0", b"C:", b"~"),
        ),
        Target("image-set", run_image_set, IMAGE_SET.seeds, 3, (), [IMAGE_SET.mutate]),
        Target("own-run", run_own, OWN_RUN.seeds, 2, (), [OWN_RUN.mutate]),
        Target(
            "features",
            run_features,
            seeds.feature_seeds,
            1,
            (b"<f8", b"|O", b"features", b"\n", b",", b"id", b"nan"),
            [zip_mutation],
        ),
    )
}
