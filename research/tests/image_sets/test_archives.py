"""Archives are downloaded completely or not at all, and need the right checksum."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import random
import threading

import pytest

from ltpll_research.image_sets import archives
from ltpll_research.image_sets.archives import (
    PublishedArchive,
    download,
    find_or_download,
    md5_of_file,
    read_members,
)
from support.image_archives import tar_bytes
from support.refusals import refusal


def ending(*ends):
    return lambda name: next((end for end in ends if name.endswith(end)), None)


def everything(path, *ends):
    return dict(read_members([path], ending(*ends)))


@pytest.fixture
def write(tmp_path):
    def write(content, name="a.tar"):
        path = tmp_path / name
        path.write_bytes(content)
        return path

    return write


def md5(content):
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


# ---- reading ---------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
def test_the_wanted_members_are_read_and_nothing_is_written(write, tmp_path, packed):
    files = {"d/one.bin": bytes(range(256)) * 9, "d/two.bin": b"x" * 1024, "d/other": b"no"}
    path = write(tar_bytes(files, packed=packed))
    assert everything(path, "one.bin", "two.bin") == {
        "one.bin": files["d/one.bin"],
        "two.bin": files["d/two.bin"],
    }
    assert [p.name for p in tmp_path.iterdir()] == ["a.tar"]


def test_a_path_without_a_file_is_named(tmp_path):
    path = tmp_path / "nothing"
    assert f"The archive {path} cannot be read: " in refusal(lambda: md5_of_file(path))


# ---- a real server ---------------------------------------------------------------------------

BODY = tar_bytes({"d/x": random.Random(3).randbytes(1 << 20)})


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append((self.path, self.headers["Accept-Encoding"]))
        kind = self.path.split("/")[1]
        if kind == "missing":
            self.send_error(404)
            return
        body = BODY[:-1] + b"?" if kind == "wrong" else BODY
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        with contextlib.suppress(OSError):  # the client closes the connection if it is interrupted
            self.wfile.write(body[: len(body) // 2] if kind == "cut" else body)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(monkeypatch):
    for variable in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(variable, raising=False)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.asked = []
        server.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


def source(server, kind):
    return PublishedArchive(f"{server.url}/{kind}/a.tar", md5(BODY))


def left(folder):
    return [path.name for path in folder.rglob("*")]


def test_a_download_arrives_whole_and_without_a_transfer_encoding(server, tmp_path, capfd):
    folder = tmp_path / "downloads"
    path = download(source(server, "good"), folder)
    assert path == folder / "a.tar"
    assert path.read_bytes() == BODY
    assert left(folder) == ["a.tar"]
    assert {encoding for _, encoding in server.asked} == {"identity"}
    assert capfd.readouterr() == ("", "")
    asked = list(server.asked)
    assert download(source(server, "good"), folder) == path
    assert server.asked == asked  # a second call downloads nothing
    path.write_bytes(BODY[:100])
    assert download(source(server, "good"), folder).read_bytes() == BODY


@pytest.mark.parametrize("kind", ["missing", "cut", "wrong"])
def test_a_failed_download_names_the_address_and_the_alternative_and_leaves_no_file(
    server, tmp_path, kind
):
    message = refusal(lambda: download(source(server, kind), tmp_path))
    assert f"{source(server, kind).url} cannot be downloaded" in message
    assert "--archive PATH" in message
    assert "\n" not in message
    assert left(tmp_path) == []


def test_a_download_that_cannot_be_written_or_started_is_one_sentence(server, tmp_path):
    (tmp_path / "downloads").write_text("a file")
    message = refusal(lambda: download(source(server, "good"), tmp_path / "downloads"))
    assert f"cannot be downloaded to {tmp_path / 'downloads'}" in message
    gone = source(server, "good")
    server.shutdown()
    server.server_close()
    assert "--archive PATH" in refusal(lambda: download(gone, tmp_path))


def test_the_published_addresses_are_all_https_with_an_md5_sum():
    for sources in archives.PUBLISHED_ARCHIVES.values():
        for one in sources:
            assert one.url.startswith("https://")
            assert len(one.md5) == 32
            assert int(one.md5, 16)


# ---- given archives --------------------------------------------------------------------------


def test_given_archives_are_recognised_by_their_checksums_whatever_their_names_and_order(
    write, tmp_path
):
    first, second = tar_bytes({"a": b"1"}), tar_bytes({"b": b"2"})
    sources = [
        PublishedArchive("https://x/first.tar", md5(first)),
        PublishedArchive("https://x/second.tar", md5(second)),
    ]
    given = [write(second, "renamed"), write(first, "first.tar")]
    assert find_or_download(sources, given, tmp_path / "downloads") == given[::-1]


def test_an_archive_that_is_not_given_is_downloaded(server, write, tmp_path):
    mine = tar_bytes({"a": b"1"})
    found = find_or_download(
        [PublishedArchive("https://x/mine.tar", md5(mine)), source(server, "good")],
        [write(mine)],
        tmp_path / "downloads",
    )
    assert found == [tmp_path / "a.tar", tmp_path / "downloads" / "a.tar"]


def test_a_given_archive_with_another_checksum_is_refused_with_both_checksums(write, tmp_path):
    path = write(tar_bytes({"a": b"1"}))
    sources = [
        PublishedArchive("https://x/first.tar", "0" * 31 + "1"),
        PublishedArchive("https://x/second.tar", "0" * 31 + "2"),
    ]
    message = refusal(lambda: find_or_download(sources, [path], tmp_path / "downloads"))
    for fragment in (str(path), md5(path.read_bytes()), "0" * 31 + "1 (first.tar) or "):
        assert fragment in message
    assert not (tmp_path / "downloads").exists()
