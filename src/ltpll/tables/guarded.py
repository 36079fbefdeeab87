"""Guarded: binary files of strangers, opened in a child process with a limit of memory and time.

A few wrong bytes make the reader of pyarrow crash the process. Here only the child dies, and the
file is refused. The child starts with the first file and serves all later ones. It answers with one
line of JSON; nothing is unpickled.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from ltpll.errors import InputError, first_line, printable
from ltpll.tables.memory_limits import ALWAYS, COPIES, check_expansion, largest_expansion

SECONDS, BYTES_PER_SECOND = 30.0, 1 << 20  # time for every file, and more for large ones
LONGEST_MESSAGE = 1000
NUMBER_BYTES, TEXT_BYTES = 4, 16  # memory for each value of a Parquet file
READERS = {"parquet": "pyarrow.parquet", "excel": "python_calamine"}
DAMAGED = {
    "parquet": ("Parquet", "damaged; write it anew"),
    "excel": (
        "an Excel file",
        "damaged, or protected by a password; save it again, or as .csv",
    ),
}


def check_parquet(path: Path, names: Sequence[str] = ()) -> None:
    """Refuse a Parquet file that is damaged, or whose columns of these names are far too large.

    Their size depends on the number of values, since dictionaries and run lengths pack millions of
    them into a few bytes.
    """
    ask_child("parquet", path, *names)


def damaged_error(task: str, path: Path, error: Exception) -> InputError:
    what, advice = DAMAGED[task]
    return InputError(f"{path} cannot be read as {what} ({first_line(error)}): it is {advice}.")


# ---- this process --------------------------------------------------------------------------------


_child: subprocess.Popen[bytes] | None = None
_lock = threading.Lock()


def ask_child(task: str, path: Path, *arguments: str) -> Any:
    """Let the child do a task; it is started if there is none, and again after it has died."""
    seconds = SECONDS + path.stat().st_size / BYTES_PER_SECOND
    absolute = str(path.absolute())  # the child may be in another folder
    with _lock:
        timer, start = threading.Timer(seconds, lambda: child.kill()), time.monotonic()
        timer.daemon = True
        try:
            child = _running_child()
            assert child.stdin is not None
            assert child.stdout is not None
            with suppress(BrokenPipeError):
                child.stdin.write(json.dumps([task, absolute, *arguments]).encode() + b"\n")
                child.stdin.flush()
            timer.start()
            answer = json.loads(child.stdout.readline())
        except json.JSONDecodeError:  # no answer, or one that is cut off
            end_child()
            slow = time.monotonic() - start >= seconds
            reason = f"takes more than {seconds:.0f} s" if slow else "crashes its reader"
            raise InputError(
                f"{path} is not read because it {reason}: it is damaged; write it again."
            ) from None
        except BaseException:  # an interrupt: the answer would be taken for that of the next file
            end_child()
            raise
        finally:
            timer.cancel()
    if "refused" in answer:
        raise InputError(
            printable(answer["refused"].replace(absolute, str(path)))[:LONGEST_MESSAGE]
        )
    return answer["result"]


def _running_child() -> subprocess.Popen[bytes]:
    global _child
    if _child is None or _child.poll() is not None:
        # It imports what this process would, but nothing from the folder that it is started in.
        paths = os.pathsep.join(map(os.path.abspath, sys.path))
        _child = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        )
        assert _child.stdout is not None
        if not _child.stdout.readline():
            status = _child.wait()
            raise InputError(
                f"The process that reads binary files ended with status {status} when it was "
                "started: write the table as .csv."
            )
    return _child


@atexit.register
def end_child() -> None:
    """End the child; the next file starts another one."""
    global _child
    child, _child = _child, None
    if child is not None:
        child.kill()
        child.communicate()


def _forget_child() -> None:
    """After a fork, the child belongs to the parent."""
    global _child, _lock
    _child, _lock = None, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_child)


# ---- the child -----------------------------------------------------------------------------------


def _serve() -> None:
    """Do tasks until the parent closes the pipe, whether it ends or is killed."""
    import warnings

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt reaches both; the parent handles it
    warnings.simplefilter("ignore")
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # libraries may print
    answers.write(b"ready\n")
    answers.flush()
    for line in sys.stdin.buffer:
        task, path, *arguments = json.loads(line)
        answers.write(json.dumps(_answer(task, Path(path), arguments)).encode() + b"\n")
        answers.flush()


def _answer(task: str, path: Path, arguments: Sequence[str]) -> dict[str, Any]:
    """The result of a task, or why there is none."""
    tasks: dict[str, Any] = {"parquet": _check_parquet, "excel": _sheet_cells}
    import_module(READERS[task])  # whose own memory does not count
    _limit_memory(COPIES * largest_expansion(path.stat().st_size) + ALWAYS)
    try:
        return {"result": tasks[task](path, arguments)}
    except InputError as error:
        return {"refused": str(error)}
    except MemoryError:
        reason = "it would expand to far more than it holds"
        return {"refused": f"{path} is not read because {reason}: save fewer rows or columns."}
    except Exception as error:  # damaged files fail in unforeseeable ways
        return {"refused": str(damaged_error(task, path, error))}


def _limit_memory(more: int) -> None:
    """Limit this process to so many bytes more than it uses now, where the system can do that."""
    with suppress(ImportError, OSError, ValueError):
        import resource

        used = int(Path("/proc/self/statm").read_text().split()[5]) * resource.getpagesize()
        hard = resource.getrlimit(resource.RLIMIT_DATA)[1]
        limit = used + more if hard == resource.RLIM_INFINITY else min(used + more, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _check_parquet(path: Path, names: Sequence[str]) -> None:
    import pyarrow.parquet as pq  # type: ignore[import-untyped]

    expanded, wanted = 0, set(names)
    with pq.ParquetFile(path) as file:
        file.schema_arrow  # noqa: B018, which is read now
        leaves = [file.schema.column(j) for j in range(len(file.schema))]
        for j, leaf in enumerate(leaves):
            parts = leaf.path.split(".")  # of a column that may have points in its name
            if wanted.isdisjoint(".".join(parts[: k + 1]) for k in range(len(parts))):
                continue
            for group in range(file.num_row_groups):
                chunk = file.metadata.row_group(group).column(j)
                n, size = chunk.num_values, chunk.total_uncompressed_size
                if min(n, size) < 0:
                    raise ValueError("its footer contains a negative size")
                is_text = leaf.physical_type.endswith("BYTE_ARRAY")
                shared = 0
                if is_text and n * size > ALWAYS and leaf.converted_type != "DECIMAL":
                    shared = _shared_text_bytes(path, group, leaf.path)
                each = TEXT_BYTES if is_text else NUMBER_BYTES
                expanded += max(n * each, size, shared)
    advice = "write fewer rows or columns, or write it without compression"
    check_expansion(path, path.stat().st_size, expanded, advice)


def _shared_text_bytes(path: Path, group: int, column: str) -> int:
    """The memory that the texts of a column take at least if many cells share them, 0 if little.

    The footer counts such texts once, and so does a file that is read as dictionaries.
    """
    import pyarrow.parquet as pq

    with pq.ParquetFile(path, read_dictionary=[column]) as file:
        rows = next(file.iter_batches(1, row_groups=[group], columns=[column])).column(0)
        n_rows = file.metadata.row_group(group).num_rows
        # The first row comes with all texts, unless it is a list.
        if hasattr(rows, "dictionary") and _text_sizes(rows)[0] * n_rows <= ALWAYS:
            return 0
        cells = file.read_row_group(group, columns=[column]).column(0)
        return sum(_text_sizes(chunk)[1] for chunk in cells.chunks)


def _text_sizes(cells: Any) -> tuple[int, int]:
    """The bytes of the longest text of a dictionary, or of lists of them, and of all cells."""
    import pyarrow as pa
    import pyarrow.compute as pc  # type: ignore[import-untyped]

    while isinstance(cells, (pa.ListArray, pa.LargeListArray, pa.FixedSizeListArray)):
        cells = cells.flatten()
    if not pa.types.is_dictionary(cells.type):
        return 0, 0
    sizes = pc.cast(pc.binary_length(cells.dictionary), pa.int64())
    return pc.max(sizes).as_py() or 0, pc.sum(sizes.take(cells.indices)).as_py() or 0


def _sheet_cells(path: Path, chosen: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """The sheets of an Excel file with data, and the cells of the chosen or only one.

    There are no cells if it is not clear which one it is. Macros are not run.
    """
    import zipfile

    from python_calamine import CalamineWorkbook

    with zipfile.ZipFile(path) as parts:
        expanded = sum(part.file_size for part in parts.infolist())
    advice = "save fewer rows or columns, or save it as .csv"
    check_expansion(path, path.stat().st_size, expanded, advice)
    book = CalamineWorkbook.from_path(path)
    kinds = {about.name: str(about.typ) for about in book.sheets_metadata}
    all_sheets = [book.get_sheet_by_name(name) for name in kinds if "Work" in kinds[name]]
    sheets = {one.name: one for one in all_sheets if any(map(any, one.iter_rows()))}
    found = [name for name in sheets if name in (chosen or sheets)]
    rows = sheets[found[0]].iter_rows() if len(found) == 1 else ()
    return [*sheets], [[_text_of_cell(cell) for cell in row] for row in rows]


def _text_of_cell(cell: Any) -> str:
    """A cell as it would be in a .csv file; one with an error such as #N/A is empty already."""
    if isinstance(cell, bool):
        return str(cell).lower()
    whole = isinstance(cell, float) and cell.is_integer() and abs(cell) < 2**53
    return str(int(cell) if whole else cell)


if __name__ == "__main__":
    _serve()
