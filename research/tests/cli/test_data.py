"""The data commands as a user sees them."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import time

import pytest
from typer.testing import CliRunner

from ltpll.errors import InputError
from ltpll_research.cli.data import app
from ltpll_research.image_sets import archives
from ltpll_research.image_sets.archives import PublishedArchive
from ltpll_research.image_sets.prepared import load_image_set
from support.fork_server import shared_fork_server
from support.image_archives import cifar10_files, tar_bytes


@pytest.fixture
def archive(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    path = tmp_path / "my [copy].tar.gz"
    path.write_bytes(tar_bytes(cifar10_files()[0], packed=True))
    md5 = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
    monkeypatch.setitem(
        archives.PUBLISHED_ARCHIVES,
        "cifar10",
        (PublishedArchive("https://example.invalid/cifar-10-binary.tar.gz", md5),),
    )
    return path


def left(folder):
    return [path for path in folder.rglob("*") if path.is_file()]


def data(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_prepare_writes_the_set_and_says_where(archive, tmp_path):
    root = tmp_path / "[root]"
    result = data("prepare", "cifar10", "--archive", archive, "--data-root", root)
    assert result.exit_code == 0, result.output
    assert (
        f"cifar10: 35 training and 10 test images of 10 classes in {root / 'cifar10'}"
        in result.output
    )
    assert load_image_set("cifar10", root).x_train.shape == (35, 32, 32, 3)


def test_prepare_honours_the_environment_variable(archive, tmp_path, monkeypatch):
    monkeypatch.setenv("LTPLL_DATA", str(tmp_path / "variable"))
    assert data("prepare", "cifar10", "--archive", archive).exit_code == 0
    assert (tmp_path / "variable" / "cifar10" / "meta.json").exists()


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (("prepare", "cifar11"), "There is no image set 'cifar11'"),
        (("prepare", "cifar10", "--archive", "nowhere.tar.gz"), "nowhere.tar.gz cannot be read"),
        (("prepare", "cifar100", "--archive", "ARCHIVE"), "md5 sum"),
    ],
)
def test_errors_that_the_user_can_fix_are_input_errors(archive, tmp_path, arguments, fragment):
    given = [archive if argument == "ARCHIVE" else argument for argument in arguments]
    result = data(*given, "--data-root", tmp_path / "root")
    assert isinstance(result.exception, InputError)
    assert fragment in str(result.exception)
    assert not (tmp_path / "root").exists()


def test_list_of_an_empty_root_names_the_commands_that_prepare_sets(tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    result = data("list", "--data-root", tmp_path / "none")
    assert result.exit_code == 0
    for name in ("cifar10", "cifar100", "voc2007"):
        assert f"`ltpll-research data prepare {name}`" in result.output
    assert not (tmp_path / "none").exists()


def test_list_shows_a_line_for_each_set(archive, tmp_path):
    root = tmp_path / "[root]"
    data("prepare", "cifar10", "--archive", archive, "--data-root", root)
    shown = data("list", "--data-root", root).output
    assert "cifar10: 35 training and 10 test images of 10 classes" in shown
    assert "cifar100: not prepared" in shown
    assert "voc2007: not prepared" in shown
    assert data("list", "--verify", "--data-root", root).exit_code == 0


def test_list_verify_finds_a_flipped_byte_and_exits_with_2(archive, tmp_path):
    data("prepare", "cifar10", "--archive", archive, "--data-root", tmp_path / "root")
    path = tmp_path / "root" / "cifar10" / "x_test.npy"
    content = bytearray(path.read_bytes())
    content[5000] ^= 4
    path.write_bytes(content)
    assert data("list", "--data-root", tmp_path / "root").exit_code == 0
    result = data("list", "--verify", "--data-root", tmp_path / "root")
    assert result.exit_code == 2
    assert "x_test.npy has changed since it was written" in result.output


def test_an_interrupted_download_says_so_and_leaves_nothing(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/cifar-10-binary.tar.gz"
        code = (
            "from ltpll_research.cli import data as commands\n"
            "from ltpll_research.image_sets import archives\n"
            f"one = archives.PublishedArchive({url!r}, '0' * 32)\n"
            "archives.PUBLISHED_ARCHIVES['cifar10'] = (one,)\n"
            "commands.app()"
        )
        root, log = tmp_path / "data", tmp_path / "log"
        arguments = [
            "interrupted_runs.execute",
            code,
            "prepare",
            "cifar10",
            "--data-root",
            str(root),
        ]
        pid = shared_fork_server().start(*arguments, log=log, environment={"NO_PROXY": "127.0.0.1"})
        server.settimeout(60)
        connection, _ = server.accept()
        with connection:
            connection.recv(4096)
            connection.sendall(
                b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n" + b"x" * 3_000_000
            )
            deadline = time.monotonic() + 30
            while (
                not any(path.stat().st_size for path in root.rglob("*") if path.is_file())
                and time.monotonic() < deadline
            ):
                time.sleep(0.02)
            os.kill(pid, signal.SIGINT)
            status, printed = shared_fork_server().wait(pid)
    assert status == 130, printed
    assert "Interrupted: nothing was changed" in printed
    assert "Traceback" not in printed
    assert left(root) == []
