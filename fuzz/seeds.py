"""Seeds: valid files of every form that is read, made by code, from which damaged ones are derived."""

from __future__ import annotations

import io
import json
import random
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

CSV = (
    b"candidates,x,y\ncat|dog,1.5,2\ndog,0,-1e3\ncat|fox,3,4\n",
    b'id,path,label,split,candidates,x\na,p/1.png,cat,train,cat|dog,1\n"b, 2",p/2.png,,test,dog,2\n',
    b'candidates,x\n"[""cat"", ""dog""]",1\n"[\'fox\', \'dog\']",2\n[1],3\n',
    b"\xef\xbb\xbfcandidates;x\r\ncat;1\r\ndog;2\r\n",
    b"candidates\tx\ncat|dog\t1\ndog\t2\n",
    "candidates,größe\nÄpfel|Öl,1\nÖl,2\n".encode(),
    b"is_cat,is_dog,is_fox,x\n1,0,1,2.5\n0,true,0,1\nFalse,1,1.0,0\n",
    b"p_cat,p_dog,p_fox,x\n0.1,0.7,0.2,1\n0.5,0.5,0,2\n1,0,0,3\n",
    b"task,worker,label\n1,u,cat\n1,v,dog\n1,w,cat\n2,u,dog\n2,v,dog\n",
    b"task,path,worker,label,split\n1,a.png,u,cat,train\n1,a.png,v,dog,train\n2,b.png,u,dog,test\n",
    b"candidates,x\ncat|dog,NA\ndog,1\n\n\ncat,2\n",
    b"sets\ncat|dog\nfox\n",
)
CSV_TOKENS = (
    *(b"candidates", b"id", b"path", b"label", b"split", b"task", b"worker", b"is_", b"p_", b"x", b"cat", b"dog", b"|", b"||", b",", b"\t"),
    *(b";", b"\n", b"\r\n", b"\r", b'"', b'""', b"[", b"]", b'["cat", "dog"]', b"['cat' 'dog']", b"[[1]]", b"[1, NaN]", b'{"a":1}', b"\0"),
    *(b"nan", b"NA", b"-", b"?", b"inf", b"1e400", b"0x10", b"1_000", b"true", b"False", b"\xff", b"\xef\xbb\xbf", b"PAR1", b"PK\3\4"),
    *("\u2028".encode(), "\u0085".encode(), "ß".encode(), "\u00a0".encode(), b"=1+1", b" ", b"..", b"/", b"Unnamed: 0", b"[" * 3000),
)
STRINGS = (
    b"cat|dog\ndog\ncat|fox\n",
    b"a;b\nb\n",
    b'[["cat","dog"],["fox"]]',
    b"[[0,1],[1],[2,0]]",
    b"[[1,0,1],[0,1,0]]",
    b"cat\ndog\ncat\n",
    b"1|2\n2|3\n10\n",
    b"votes>=2\ntop-3\nunion\n",
    b'[{"cat":1},"dog",null,3.5,[[]]]',
    b"[1,0,1,1]",
)
STRING_TOKENS = (
    b"|",
    b"||",
    b" ",
    b"\n",
    b"cat",
    b"dog",
    b"[",
    b"]",
    b",",
    b'"',
    b"null",
    b"true",
    b"1e999",
    b"NaN",
    b"votes>=",
    b"top-",
    b"{}",
)
CONFIG = (
    b"data: cifar100\nimbalance: 100\nambiguity: 0.05\nmethod: corr\nrebalancer: records\nepochs: 800\nlr: 0.01\n",
    b"data: cifar10\nsuperclass: false\nextras: [mixup, sfn]\noptions:\n  lw: {beta: 2}\n  mixup:\n    weight: 1.0\nseed: 3\n",
    b"data: voc2007\nviews: flip-crop\nwidth: 32\nprecision: bfloat16\nmodel: resnet18\nweight_decay: 0.001\n",
    b"a: &a [1, 2]\nb: &b [*a, *a]\ndata: *b\n",
    b"? {x: 1}\n: 2\n",
)
CONFIG_TOKENS = (
    *(
        b"data: ",
        b"epochs: ",
        b"extras: ",
        b"options: ",
        b"seed: ",
        b"lr: ",
        b"method: ",
        b"imbalance: ",
        b"\n",
        b"  ",
        b"- ",
        b": ",
        b"? ",
    ),
    *(
        b"&a ",
        b"*a",
        b"[*a, *a]",
        b"<<: *a",
        b"!!python/object/apply:os.system [id]",
        b"!!binary ",
        b"!!int ",
        b"!!float ",
        b"!!timestamp ",
    ),
    *(
        b"2001-99-99",
        b"2001-01-01",
        b"1:2:3:4",
        b"0o7777",
        b".inf",
        b".nan",
        b"~",
        b"null",
        b"{}",
        b"[]",
        b"---\n",
        b"...\n",
        b"%YAML 1.1\n",
    ),
    *(
        b"|\n ",
        b">\n ",
        b"'",
        b'"',
        b"\\u0000",
        b"\t",
        b"#",
        b"[" * 400,
        b"{a: " * 200,
        b"9" * 5000,
        b"- " * 300,
        b"corr",
        b"lw",
        b"records",
    ),
)


def parquet(table: Any, **options: Any) -> bytes:
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


@cache
def parquet_seeds() -> list[bytes]:
    import pyarrow as pa  # type: ignore[import-untyped]

    plain = pa.table({"candidates": ["cat|dog", "dog", "fox"], "x": [1.0, 2.0, 3.0], "id": ["a", "b", "c"], "label": ["cat", "dog", None]})
    lists = pa.table(
        {"candidates": [["cat", "dog"], ["fox"]], "x": pa.array([1, 2], pa.int8()), "split": pa.array(["a", "b"]).dictionary_encode()}
    )
    wide = pa.table(
        {"is_cat": [1, 0], "is_dog": [True, True], "p_cat": [0.25, 1.0], "p_dog": [0.75, 0.0], "x": pa.array([1.5, 2], pa.float32())}
    )
    votes = pa.table({"task": [1, 1, 2], "worker": ["u", "v", "u"], "label": ["cat", "dog", "dog"]})
    return [
        parquet(plain),
        parquet(plain, compression="gzip", use_dictionary=False, data_page_version="2.0"),
        parquet(plain, compression="none", write_statistics=False),
        parquet(lists, compression="zstd"),
        parquet(lists, compression="none", row_group_size=1),
        parquet(wide, compression="lz4"),
        parquet(votes, compression="brotli", column_encoding={"task": "DELTA_BINARY_PACKED"}, use_dictionary=False),
    ]


def odd_table(rng: random.Random, _: bytes) -> bytes:
    """A valid Parquet file whose columns have types that nobody expects there."""
    import pyarrow as pa

    n = rng.randrange(0, 4)
    kinds = [
        *(pa.int8(), pa.uint64(), pa.float16(), pa.float64(), pa.bool_(), pa.string(), pa.large_string(), pa.binary(), pa.large_binary()),
        *(pa.binary(3), pa.date32(), pa.date64(), pa.timestamp("ns"), pa.timestamp("s", "UTC"), pa.time32("ms"), pa.time64("ns")),
        *(pa.duration("us"), pa.decimal128(5, 2), pa.decimal256(60, 3), pa.null(), pa.string_view(), pa.binary_view()),
    ]
    kind = rng.choice(kinds)
    wrap = rng.randrange(9)
    outer: Any = kind
    if wrap == 0:
        outer = pa.list_(kind)
    elif wrap == 1:
        outer = pa.large_list(kind)
    elif wrap == 2:
        outer = pa.list_(kind, 2)
    elif wrap == 3:
        outer = pa.struct([("a", kind)])
    elif wrap == 4:
        outer = pa.map_(pa.string(), kind)
    elif wrap == 5:
        outer = pa.list_(pa.list_(kind))

    def value(kind: Any) -> Any:
        if rng.random() < 0.15:
            return None
        if pa.types.is_struct(kind):
            return {"a": value(kind.field(0).type)}
        if pa.types.is_map(kind):
            return [("k", value(kind.item_type))]
        if pa.types.is_fixed_size_list(kind):
            return [value(kind.value_type) for _ in range(2)]
        if pa.types.is_nested(kind):
            return [value(kind.value_type) for _ in range(rng.randrange(3))]
        if pa.types.is_boolean(kind):
            return rng.random() < 0.5
        if pa.types.is_floating(kind):
            return (
                np.float16(rng.choice((0.5, 1, 0, -1, np.nan, np.inf))) if kind == pa.float16() else rng.choice((0.5, 1, 0, 1e300, np.nan))
            )
        if pa.types.is_integer(kind) or pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
            return rng.choice((0, 1, 2, 100))
        if "binary" in str(kind):
            return rng.choice((b"cat", b"dog", b"\xff\xfe\x00"))
        return rng.choice(("cat|dog", "dog", "", " ", "[1]", '["cat"]', "1", "nan"))

    names = rng.sample(("candidates", "id", "path", "label", "split", "x", "is_cat", "is_dog", "p_cat", "p_dog", "task", "worker"), 4)
    if rng.random() < 0.5:
        names[0] = "candidates"
    columns = []
    for i in range(len(names)):
        chosen = outer if i < 2 else rng.choice((pa.string(), pa.float64(), pa.int64()))
        try:
            array = pa.array([value(chosen) for _ in range(n)], chosen)
            columns.append(array.dictionary_encode() if rng.random() < 0.1 else array)
        except (pa.ArrowException, TypeError, ValueError, OverflowError):
            columns.append(pa.array(["cat|dog"] * n, pa.string()))
    try:
        return parquet(pa.table(columns, names=names), compression="none")
    except (pa.ArrowException, TypeError, ValueError):
        return parquet_seeds()[0]


@cache
def mat_seeds() -> list[bytes]:
    import scipy.io
    import scipy.sparse

    rng = np.random.default_rng(0)
    x = rng.normal(size=(6, 3))
    sets = (rng.random((6, 5)) < 0.5).astype(float)
    sets[:, 0] = 1
    y = np.arange(6)[None] % 5 + 1.0
    found = []
    for options in ({}, {"do_compression": True}, {"format": "4"}):
        for kind in (np.asarray, scipy.sparse.csc_matrix, lambda a: a.astype(np.uint8)):
            content = io.BytesIO()
            arrays = {"data": x, "partial_target": kind(sets), "target": kind(np.eye(5)[[0, 1, 2, 3, 4, 0]]) if len(found) % 2 else y}
            scipy.io.savemat(content, arrays, **options)
            found.append(content.getvalue())
    content = io.BytesIO()
    scipy.io.savemat(content, {"other": {"a": 1, "b": "x"}, "data": np.asarray([[1, "a"]], dtype=object), "target": "text"})
    return [*found, content.getvalue(), b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM" + b"\0" * 600]


@cache
def array_seeds() -> list[bytes]:
    matrix = np.asarray([[1, 0, 1], [0, 1, 0]])
    found = []
    for array in (
        matrix,
        matrix.astype(bool),
        matrix.astype(np.float32),
        matrix.astype(">i2"),
        np.asfortranarray(matrix),
        matrix[0],
        matrix > 9,
    ):
        content = io.BytesIO()
        np.save(content, array)
        found.append(content.getvalue())
    for save, arrays in ((np.savez, {"candidates": matrix}), (np.savez_compressed, {"a": matrix, "candidates": matrix.astype("u1")})):
        content = io.BytesIO()
        save(content, **arrays)
        found.append(content.getvalue())
    content = io.BytesIO()
    np.save(content, np.asarray([{1}, {2}], dtype=object), allow_pickle=True)
    return [*found, content.getvalue()]


@cache
def feature_seeds() -> list[bytes]:
    """Features of two examples."""
    matrix = np.asarray([[0.5, 1.0, -2.0], [0.0, 1e3, 4.0]])
    plain, packed = io.BytesIO(), io.BytesIO()
    np.save(plain, matrix.astype(np.float32))
    np.savez_compressed(packed, features=matrix, other=matrix[0])
    return [plain.getvalue(), packed.getvalue(), b"id,u,v\nb,1,2\na,3,4\n"]


@cache
def checkpoint_seeds() -> list[bytes]:
    """A trainer's checkpoint, and two saved classifiers."""
    import torch

    from fuzz.targets import small_trainer
    from ltpll import PartialLabelClassifier

    x = np.random.default_rng(0).normal(size=(12, 2)).astype(np.float32)
    y = ["a", "b", "c"] * 4
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "c.safetensors"
        torch.set_num_threads(1)
        small_trainer().save(path)
        found = [path.read_bytes()]
        for method, rebalancer in (("proden", "records"), ("corr", "none")):
            model = PartialLabelClassifier(method=method, rebalancer=rebalancer, epochs=1, device="cpu", random_state=0)
            model.fit(x, y).save(path)
            found.append(path.read_bytes())
    return found


def record(seed: int = 0, rebalancer: str = "none", n_classes: int = 3) -> dict[str, Any]:
    """A result file's content as a short training leaves it."""

    def judged() -> dict[str, Any]:
        shares = [1 / n_classes] * n_classes
        return {
            "balanced_accuracy": 0.5,
            "per_class": [0.5, None, 0.25][:n_classes],
            "mean_prediction": shares,
            "many": 0.5,
            "medium": None,
            "few": 0.25,
        }

    rows = ["test", "oracle-la-posthoc"] if rebalancer == "none" else ["test"]
    return {
        "format": "ltpll-run-1",
        "key": f"0123456789a{seed}",
        "config": {
            "experiment": "images",
            "data": "cifar10",
            "method": "corr",
            "rebalancer": rebalancer,
            "extras": ["mixup"],
            "seed": seed,
            "lr": 0.01,
        },
        "environment": {"hardware": "a machine", "commit": "abc", "torch": "2.0", "threads": 1},
        "class_counts": [20, 90, 5][:n_classes],
        "classes": ["ant", "bee", "cat"][:n_classes],
        "shots": {"many": 50, "few": 10},
        "seconds": 1.5,
        "views_per_second": 100,
        "posthoc": rows[1:],
        "last": {
            **{row: judged() for row in rows},
            "epoch": 2,
            "target_recovery": 0.5,
            "mean_target": [0.5, 0.3, 0.2],
            "prior": [0.6, 0.3, 0.1],
        },
        "best": {row: {row: judged(), "epoch": 1} for row in rows},
        "curves": {
            "epoch": [1, 2],
            "accuracy": {row: [0.1, 0.5] for row in rows},
            "target_recovery": [0.1, 0.2],
            "prior_distance": [0.5, 0.25],
        },
    }


@cache
def record_seeds() -> list[bytes]:
    return [json.dumps(record(0)).encode(), json.dumps(record(1, "records")).encode(), json.dumps(record(2, "records", 2)).encode()]


@cache
def picture_seeds() -> list[bytes]:
    from PIL import Image

    rng = np.random.default_rng(0)
    colours = Image.fromarray(rng.integers(0, 256, (9, 12, 3), dtype=np.uint8))
    found = []
    forms: Sequence[tuple[str, str, dict[str, Any]]] = (
        *(("JPEG", "RGB", {}), ("JPEG", "L", {"progressive": True}), ("JPEG", "CMYK", {}), ("PNG", "RGB", {}), ("PNG", "RGBA", {})),
        *(
            ("PNG", "P", {}),
            ("PNG", "1", {}),
            ("PNG", "I;16", {}),
            ("WEBP", "RGB", {"lossless": True}),
            ("WEBP", "RGB", {}),
            ("GIF", "P", {}),
        ),
        *(("BMP", "RGB", {}), ("TIFF", "RGB", {}), ("TIFF", "L", {"compression": "tiff_lzw"}), ("TIFF", "F", {}), ("PPM", "RGB", {})),
        *(("TGA", "RGB", {"rle": True}), ("JPEG2000", "RGB", {}), ("AVIF", "RGB", {})),
    )
    for form, mode, options in forms:
        content = io.BytesIO()
        try:
            colours.convert(mode).save(content, form, **options)
        except (KeyError, OSError, ValueError):  # a build of Pillow without this format
            continue
        found.append(content.getvalue())
    turned = io.BytesIO()
    exif = Image.Exif()
    exif[0x0112] = 6
    colours.save(turned, "JPEG", exif=exif)
    return [*found, turned.getvalue()]


def tar(files: dict[str, bytes], mode: str = "w") -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode=mode) as archive:  # type: ignore[call-overload]
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return content.getvalue()


ANNOTATION = (
    b"<annotation><folder>VOC2007</folder><object><name>dog</name><bndbox><xmin>1</xmin><ymin>2</ymin><xmax>9</xmax><ymax>8</ymax></bndbox>"
    b"<part><name>head</name></part></object><object><name>person</name><bndbox><xmin>3</xmin><ymin>1</ymin><xmax>7.5</xmax><ymax>9</ymax>"
    b"</bndbox></object></annotation>"
)
ANNOTATION_TOKENS = (
    *(
        b"<object>",
        b"</object>",
        b"<name>",
        b"</name>",
        b"dog",
        b"cat",
        b"<bndbox>",
        b"<xmin>",
        b"1e999",
        b"nan",
        b"-1",
        b"<!DOCTYPE x [",
        b"<!ENTITY",
    ),
    *(b"&lt;", b"&#0;", b"<![CDATA[", b"]]>", b"<?xml version='1.0' encoding='utf-16'?>", b"<!--", b"-->", b"<a>" * 2000),
)


@cache
def archive_seeds() -> list[bytes]:
    jpeg = picture_seeds()[0]
    voc = {
        "VOCdevkit/VOC2007/Annotations/000001.xml": ANNOTATION,
        "VOCdevkit/VOC2007/JPEGImages/000001.jpg": jpeg,
        "VOCdevkit/VOC2007/ImageSets/Main/trainval.txt": b"000001\n",
        "VOCdevkit/VOC2007/ImageSets/Main/test.txt": b"000001\n",
    }
    names = {
        "c/fine_label_names.txt": b"\n".join(b"f%d" % i for i in range(100)),
        "c/coarse_label_names.txt": b"\n".join(b"c%d" % i for i in range(20)),
    }
    cifar = {**names, "c/train.bin": bytes([3, 5]) + bytes(3072), "c/test.bin": bytes([3, 5]) + bytes(3072)}
    return [tar(voc), tar(voc, "w:gz"), tar(cifar, "w:gz"), tar({"a" * 150: b"x", "x.bin": b"12345"})]


@cache
def image_set_files() -> dict[str, bytes]:
    """A prepared set as a folder of files."""
    from ltpll.candidates import Candidates
    from ltpll.data.benchmarks.image_sets import ImageSet, write_image_set

    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (4, 2, 2, 3), dtype=np.uint8), np.asarray([0, 1, 2, 1])
    sets = Candidates.from_sets([[0, 1], [1], [2, 0], [1]], n_classes=3)
    image_set = ImageSet("voc2007", x, y, x, y, ("a", "b", "c"), np.asarray([0, 0, 1]), sets, ("s", "t"))
    with tempfile.TemporaryDirectory() as folder:
        path = write_image_set(image_set, folder)
        return {file.name: file.read_bytes() for file in path.iterdir()}


@cache
def own_files() -> dict[str, bytes]:
    """The files of a finished run on own data, as its folder holds them."""
    import pyarrow as pa

    n, rows = 4, np.arange(4)
    shares = np.asarray([0.9, 0.5, 0.75, 1.0], dtype=np.float32)
    examples = {
        "id": ["a", "b", "c", "d"],
        "path": ["a.png", "b.png", "c.png", "d.png"],
        "split": pa.array([None] * n, pa.string()),
        "candidates": pa.array([[0, 1], [1], [2, 0], [1]], pa.list_(pa.int32())),
        "true": pa.array([0, None, 2, 1], pa.int64()),
        "label": np.asarray([0, 1, 2, 1]),
        "confidence": shares,
        "runner_up": np.asarray([1, 1, 0, 1]),
        "margin": shares,
        "inside_probability": shares,
        "outside": np.asarray([2, 0, -1, 2]),
        "outside_probability": shares[::-1].copy(),
        "judged_by": ["own", "folds", "held out", "own"],
    }
    record = {
        "format": "ltpll-run-1",
        "key": "0123456789ab",
        "config": {"experiment": "own", "method": "corr", "rebalancer": "none", "extras": ["mixup"]},
        "environment": {"hardware": "a machine"},
        "classes": ["ant", "bee", "cat"],
        "class_prior": [0.5, 0.25, 0.25],
        "rows": {"all": n, "trained": 3, "held_out": 1},
        "skipped": [["x.png", "is empty"]],
        "source": {
            "table": "t.csv",
            "images": None,
            "features": None,
            "side": 32,
            "reading": {
                "candidates": "candidates",
                "separator": "|",
                "class_columns": [],
                "features": None,
                "annotators": "union",
                "mass": None,
            },
            "feature_names": ["x"],
        },
        "last": {"epoch": 2, "test": {"covering_rate": 0.5, "accuracy": 0.5, "balanced_accuracy": 0.5}, "target_recovery": 0.5},
        "curves": {"epoch": [1, 2], "loss": [2.0, 1.0], "measured": [2], "covering_rate": [0.75], "target_recovery": [0.5]},
    }
    votes = {"row": rows, "annotator": ["u", "v", "u", "v"], "label": np.asarray([0, 1, 2, 1])}
    return {
        "result.json": json.dumps(record).encode(),
        "examples.parquet": parquet(pa.table(examples), compression="none"),
        "votes.parquet": parquet(pa.table(votes), compression="none"),
        "pictures.parquet": parquet(pa.table({"row": [0, 1], "jpeg": [picture_seeds()[0], b"x"]}), compression="none"),
    }


def odd_columns(rng: random.Random, content: bytes) -> bytes:
    """A Parquet file with a column of another type, of other numbers, or left out."""
    import pyarrow as pa
    import pyarrow.compute as pc  # type: ignore[import-untyped]
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(io.BytesIO(content))
        i = rng.randrange(table.num_columns)
        column, name = table.column(i), table.column_names[i]
        kind = rng.randrange(6)
        if kind == 0:
            table = table.remove_column(i)
        elif kind == 1:
            table = table.set_column(
                i, name, column.cast(rng.choice((pa.string(), pa.int8(), pa.float32(), pa.uint64(), pa.bool_())), safe=False)
            )
        elif kind == 2:
            table = table.set_column(i, name, pa.nulls(len(table), column.type))
        elif kind == 3:
            table = table.set_column(i, name, table.column(rng.randrange(table.num_columns)))
        elif kind == 4:
            table = table.slice(rng.randrange(3), rng.randrange(4))
        else:
            table = table.set_column(i, name, pc.multiply(column, rng.choice((-1, 1000, 2**40))))
        return parquet(table, compression="none")
    except Exception:  # whatever is wrong with it, it is not for this mutation
        return content


def cells_mutation(separators: bytes, tokens: Sequence[bytes]) -> Callable[[random.Random, bytes], bytes]:
    """Whole cells or lines of a text exchanged, repeated or replaced."""

    def change(rng: random.Random, data: bytes) -> bytes:
        lines = data.split(b"\n")
        i = rng.randrange(len(lines))
        separator = separators[rng.randrange(len(separators)) :][:1]
        cells = lines[i].split(separator)
        j = rng.randrange(len(cells))
        kind = rng.randrange(5)
        if kind == 0:
            cells[j] = rng.choice(tokens)
        elif kind == 1:
            other = rng.choice(lines).split(separator)
            cells[j] = rng.choice(other)
        elif kind == 2:
            cells.insert(j, rng.choice(tokens))
        elif kind == 3:
            cells[j] = b'"' + cells[j].replace(b'"', b'""') + b'"'
        else:
            lines.insert(rng.randrange(len(lines) + 1), rng.choice(lines))
            return b"\n".join(lines)
        lines[i] = separator.join(cells)
        return b"\n".join(lines)

    return change
