"""Archives are downloaded completely or not at all, and need the right checksum."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import random
import tarfile
import threading

import pytest

from ltpll.errors import InputError
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


def special(name, kind, target=""):
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


def header(name, size):
    member = tarfile.TarInfo(name)
    member.size = size
    return member.tobuf(tarfile.GNU_FORMAT)


def ending(*ends):
    return lambda name: next((end for end in ends if name.endswith(end)), None)


def everything(path, *ends, **options):
    return dict(read_members([path], ending(*ends), **options))


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


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE]
)
def test_a_wanted_member_that_is_not_a_plain_file_is_refused_and_others_are_skipped(write, kind):
    path = write(tar_bytes({"d/x.bin": special("d/x.bin", kind, "d/y.bin"), "d/good": b"good"}))
    message = refusal(lambda: everything(path, "x.bin"))
    assert f"In the archive {path}, 'd/x.bin' is not a plain file" in message
    assert everything(path, "good") == {"good": b"good"}


def test_a_member_that_claims_a_huge_size_is_refused_before_it_is_read(write):
    path = write(header("d/x.bin", 10**13) + b"\0" * 2048)
    assert "is not a plain file of at most" in refusal(lambda: everything(path, "x.bin"))
    path = write(tar_bytes({"x": b"12345"}))
    assert everything(path, "x", limit=5) == {"x": b"12345"}
    assert "of at most 4 bytes" in refusal(lambda: everything(path, "x", limit=4))


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"<html>Not Found</html>",
        b"\x1f\x8b",
        b"\x1f\x8bnonsense",
        random.Random(0).randbytes(4096),
    ],
    ids=["empty", "a web page", "two bytes", "no gzip", "noise"],
)
def test_a_file_that_is_not_an_archive_is_refused(write, content):
    path = write(content)
    message = refusal(lambda: everything(path, "x"))
    assert f"The archive {path} cannot be read" in message


def test_a_truncated_archive_is_refused(write):
    whole = tar_bytes({"d/x": random.Random(0).randbytes(60_000), "d/y": b"1" * 100}, packed=True)
    for share in (0.1, 0.9):
        path = write(whole[: int(len(whole) * share)])
        assert "cannot be read" in refusal(lambda path=path: everything(path, "x", "y"))
    path = write(tar_bytes({"d/x": b"1" * 5000})[:3000])
    assert "unexpected end of data" in refusal(lambda: everything(path, "x"))


@pytest.mark.parametrize("packed", [False, True])
def test_an_archive_with_wrong_bytes_is_read_or_refused_without_any_other_error(write, packed):
    files = {
        "d/x": random.Random(1).randbytes(700),
        "d/link": special("d/link", tarfile.SYMTYPE, "x"),
        "n" * 150: b"long name",
    }
    whole = tar_bytes(files, packed=packed)
    rng = random.Random(2)
    for _ in range(100):
        damaged = bytearray(whole)
        for _ in range(rng.choice([1, 1, 5])):
            damaged[rng.randrange(600 if not packed else len(damaged))] = rng.randrange(256)
        path = write(bytes(damaged))
        with contextlib.suppress(InputError):
            everything(path, "x", "name")


@pytest.mark.parametrize("there", [False, True])
def test_a_path_without_a_file_is_named(tmp_path, there):
    path = tmp_path / "nothing"
    if there:
        path.mkdir()
    assert f"The archive {path} cannot be read: " in refusal(lambda: md5_of_file(path))
    assert f"The archive {path} cannot be read (" in refusal(lambda: everything(path, "x"))


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


def test_a_download_arrives_whole_with_progress_and_without_a_transfer_encoding(
    server, tmp_path, capfd
):
    calls, folder = [], tmp_path / "downloads"
    path = download(source(server, "good"), folder, lambda *call: calls.append(call))
    assert path == folder / "a.tar"
    assert path.read_bytes() == BODY
    assert left(folder) == ["a.tar"]
    assert calls[-1] == ("a.tar", len(BODY), len(BODY))
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


def test_an_interrupted_download_leaves_no_file(server, tmp_path):
    def interrupt(*call):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download(source(server, "good"), tmp_path, interrupt)
    assert left(tmp_path) == []


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
    assert [
        archive.path for archive in find_or_download(sources, given, tmp_path / "downloads")
    ] == given[::-1]


def test_an_archive_that_is_not_given_is_downloaded(server, write, tmp_path):
    mine = tar_bytes({"a": b"1"})
    found = find_or_download(
        [PublishedArchive("https://x/mine.tar", md5(mine)), source(server, "good")],
        [write(mine)],
        tmp_path / "downloads",
    )
    assert [archive.path for archive in found] == [
        tmp_path / "a.tar",
        tmp_path / "downloads" / "a.tar",
    ]


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
