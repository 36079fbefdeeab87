"""Archives are downloaded completely or not at all, need the right checksum, and are read without trusting their headers."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import http.server
import random
import shutil
import ssl
import subprocess
import sys
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


def header(name, size, kind=tarfile.REGTYPE):
    member = tarfile.TarInfo(name)
    member.size, member.type = size, kind
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


# ---- reading ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [False, True])
def test_the_wanted_members_are_read_and_nothing_is_written(write, tmp_path, packed):
    files = {"d/one.bin": bytes(range(256)) * 9, "d/two.bin": b"x" * 1024, "d/other": b"no"}
    path = write(tar_bytes(files, packed=packed))
    assert everything(path, "one.bin", "two.bin") == {
        "one.bin": files["d/one.bin"],
        "two.bin": files["d/two.bin"],
    }
    assert [p.name for p in tmp_path.iterdir()] == ["a.tar"]


def test_progress_ends_at_the_size_of_the_file(write):
    path = write(tar_bytes({"a": b"1" * 5000, "b": b"2"}, packed=True))
    calls = []
    everything(path, "a", on_progress=lambda *call: calls.append(call))
    assert calls[-1] == ("reading a.tar", path.stat().st_size, path.stat().st_size)
    assert [done for _, done, _ in calls] == sorted(done for _, done, _ in calls)


@pytest.mark.parametrize(
    ("name", "content", "fragment"),
    [
        ("/etc/x.bin", b"1", "a path outside the archive"),
        ("d/../../x.bin", b"1", "a path outside the archive"),
        (
            "d/x.bin",
            special("d/x.bin", tarfile.SYMTYPE, "/etc/passwd"),
            "is a link, a folder or a device",
        ),
        (
            "d/x.bin",
            special("d/x.bin", tarfile.LNKTYPE, "d/y.bin"),
            "is a link, a folder or a device",
        ),
        ("d/x.bin", special("d/x.bin", tarfile.CHRTYPE), "is a link, a folder or a device"),
        ("d/x.bin", special("d/x.bin", tarfile.FIFOTYPE), "is a link, a folder or a device"),
        ("d/x.bin", special("d/x.bin", tarfile.DIRTYPE), "is a link, a folder or a device"),
    ],
)
def test_a_wanted_member_that_is_not_a_plain_file_inside_the_archive_is_refused_and_others_are_skipped(
    write, name, content, fragment
):
    path = write(tar_bytes({name: content, "d/good": b"good"}))
    message = refusal(lambda: everything(path, "x.bin"))
    assert fragment in message
    assert str(path) in message
    assert everything(path, "good") == {"good": b"good"}


def test_a_member_that_claims_a_huge_size_is_refused_before_it_is_read(write):
    path = write(header("d/x.bin", 10**13) + b"\0" * 2048)
    assert "claims 10000000000000 bytes" in refusal(lambda: everything(path, "x.bin"))
    assert "unpacks to more than 4 GiB" in refusal(lambda: everything(path, "other"))


def test_the_size_limit_of_a_member_is_the_callers(write):
    path = write(tar_bytes({"x": b"12345"}))
    assert everything(path, "x", limit=5) == {"x": b"12345"}
    assert "claims 5 bytes, more than the 4" in refusal(lambda: everything(path, "x", limit=4))


@pytest.mark.parametrize("kind", [tarfile.GNUTYPE_LONGNAME, tarfile.XHDTYPE])
def test_a_header_that_claims_a_huge_size_is_refused_before_it_is_read(write, kind):
    path = write(header("x", archives.MEMBER_LIMIT + 1024, kind) + b"\0" * 2048)
    assert "has a header of" in refusal(lambda: everything(path, "x"))


def test_an_archive_that_unpacks_to_too_much_is_refused_even_if_its_members_are_not_wanted(
    write, monkeypatch
):
    monkeypatch.setattr(archives, "TOTAL_LIMIT", 1 << 20)
    path = write(tar_bytes({"zeros": b"\0" * (4 << 20), "x": b"1"}, packed=True))
    assert path.stat().st_size < 1 << 20
    assert "unpacks to more than" in refusal(lambda: everything(path, "x"))
    path = write(
        gzip.compress(tar_bytes({"x": b"1"}) + b"\0" * (4 << 20))
    )  # after the end of the tar file
    assert "unpacks to more than" in refusal(lambda: everything(path, "x"))


def test_too_many_members_are_refused(write, monkeypatch):
    monkeypatch.setattr(archives, "COUNT_LIMIT", 3)
    assert "more than 3 members" in refusal(
        lambda: everything(write(tar_bytes({str(i): b"" for i in range(4)})), "x")
    )


def test_a_member_may_appear_twice_only_with_the_same_content(write):
    twice = tar_bytes({"d/x": b"1", "e/x": b"1"})
    assert everything(write(twice), "x") == {"x": b"1"}
    assert "second time with other content" in refusal(
        lambda: everything(write(tar_bytes({"d/x": b"1", "e/x": b"2"})), "x")
    )


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
    assert f"The archive {path} is damaged or not a tar file" in message


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.999])
def test_a_truncated_gzip_file_is_refused(write, share):
    whole = tar_bytes({"d/x": random.Random(0).randbytes(60_000), "d/y": b"1" * 100}, packed=True)
    path = write(whole[: int(len(whole) * share)])
    assert "damaged or not a tar file" in refusal(lambda: everything(path, "x", "y"))


def test_a_truncated_tar_file_is_refused(write):
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
    for _ in range(300):
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
    assert f"The archive {path} cannot be read: " in refusal(lambda: everything(path, "x"))


# ---- a real server ----------------------------------------------------------------------------------------------------

BODY = tar_bytes({"d/x": random.Random(3).randbytes(3 << 20)})


MOVED = {
    "moved": "/good/a.tar",
    "moved-open": "http://example.invalid/a.tar",
    "moved-here": "http://127.0.0.1:{port}/good/a.tar",
}


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append((self.path, self.headers["Accept-Encoding"]))
        kind = self.path.split("/")[1]
        if kind == "missing":
            self.send_error(404)
            return
        if kind in MOVED:
            self.send_response(302)
            self.send_header("Location", MOVED[kind].format(port=self.server.server_port))
            self.end_headers()
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


@pytest.mark.parametrize("kind", ["good", "moved"])
def test_a_download_arrives_whole_with_progress_and_without_a_transfer_encoding(
    server, tmp_path, kind, capfd
):
    calls = []
    archive = download(
        source(server, kind), tmp_path / "downloads", lambda *call: calls.append(call)
    )
    assert archive == (tmp_path / "downloads" / "a.tar", md5(BODY))
    assert archive.path.read_bytes() == BODY
    assert left(tmp_path / "downloads") == ["a.tar"]
    assert calls[0] == ("downloading a.tar", 1 << 20, len(BODY))
    assert calls[-1] == ("downloading a.tar", len(BODY), len(BODY))
    assert {encoding for _, encoding in server.asked} == {"identity"}
    assert capfd.readouterr() == ("", "")


def test_a_second_call_downloads_nothing_and_needs_no_pooch(server, tmp_path, monkeypatch):
    download(source(server, "good"), tmp_path)
    asked = list(server.asked)
    monkeypatch.setitem(sys.modules, "pooch", None)
    assert download(source(server, "good"), tmp_path).path.read_bytes() == BODY
    assert server.asked == asked


def test_a_damaged_earlier_download_is_downloaded_again(server, tmp_path):
    (tmp_path / "a.tar").write_bytes(BODY[:100])
    assert download(source(server, "good"), tmp_path).path.read_bytes() == BODY


@pytest.mark.parametrize(
    ("kind", "fragment"),
    [
        ("missing", "the server answers 404 Not Found"),
        ("cut", "the connection was interrupted"),
        (
            "wrong",
            f"arrived with the md5 sum {md5(BODY[:-1] + b'?')} instead of {md5(BODY)} and was deleted",
        ),
        ("moved-open", "http://example.invalid/a.tar is not https"),
    ],
)
def test_a_failed_download_names_the_address_and_the_alternative_and_leaves_no_file(
    server, tmp_path, kind, fragment
):
    message = refusal(lambda: download(source(server, kind), tmp_path / "downloads"))
    assert fragment in message
    assert kind == "moved-open" or source(server, kind).url in message
    assert "--archive PATH" in message
    assert left(tmp_path) == []


def test_without_a_server_the_address_and_the_alternative_are_named(server, tmp_path):
    gone = source(server, "good")
    server.shutdown()
    server.server_close()
    message = refusal(lambda: download(gone, tmp_path))
    assert f"{gone.url} cannot be downloaded (no connection)" in message
    assert "--archive PATH" in message
    assert left(tmp_path) == []


def test_an_interrupted_download_leaves_no_file(server, tmp_path):
    def interrupt(*call):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download(source(server, "good"), tmp_path, interrupt)
    assert left(tmp_path) == []


def test_downloads_that_cannot_be_written_are_refused(server, tmp_path):
    (tmp_path / "downloads").write_text("a file")
    message = refusal(lambda: download(source(server, "good"), tmp_path / "downloads"))
    assert f"cannot be written to {tmp_path / 'downloads'}" in message


def test_a_download_stops_at_the_size_limit(server, tmp_path, monkeypatch):
    monkeypatch.setattr(archives, "DOWNLOAD_LIMIT", 1 << 20)
    message = refusal(lambda: download(source(server, "good"), tmp_path / "downloads"))
    assert "sends more than" in message
    assert left(tmp_path) == []


@pytest.fixture
def tls(server, tmp_path_factory):
    """The server with a self-signed certificate."""
    folder = tmp_path_factory.mktemp("tls")
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    made = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:prime256v1",
        "-nodes",
        "-days",
        "2",
        "-subj",
        "/CN=test",
    ]
    subprocess.run(
        [
            *made,
            "-addext",
            "subjectAltName=IP:127.0.0.1",
            "-keyout",
            str(key),
            "-out",
            str(certificate),
        ],
        check=True,
        capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.url = server.url.replace("http:", "https:")
    server.certificate = certificate
    return server


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_a_self_signed_certificate_is_not_accepted(tls, tmp_path):
    message = refusal(lambda: download(source(tls, "good"), tmp_path / "downloads"))
    assert "the server's certificate is not accepted" in message
    assert left(tmp_path) == []
    assert tls.asked == []


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl is not installed")
def test_https_does_not_redirect_to_http_even_on_this_machine(tls, tmp_path, monkeypatch):
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tls.certificate))
    assert download(source(tls, "moved"), tmp_path / "downloads").path.read_bytes() == BODY
    message = refusal(lambda: download(source(tls, "moved-here"), tmp_path / "other"))
    assert f"http://127.0.0.1:{tls.server_port}/good/a.tar is not https" in message
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize(
    "url",
    [
        "http://www.cs.toronto.edu/a.tar",
        "ftp://127.0.0.1/a.tar",
        "file:///a.tar",
        "http://127.0.0.1.evil.org/a.tar",
    ],
)
def test_nothing_is_downloaded_without_https(tmp_path, url):
    assert "is not https" in refusal(lambda: download(PublishedArchive(url, "0" * 32), tmp_path))


def test_without_pooch_the_message_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    message = refusal(
        lambda: download(PublishedArchive("https://example.invalid/a.tar", "0" * 32), tmp_path)
    )
    assert "needs pooch, which is not installed: pip install ltpll-research" in message
    assert "--archive PATH" in message


def test_the_published_addresses_are_all_https_with_an_md5_sum():
    for sources in archives.PUBLISHED_ARCHIVES.values():
        for one in sources:
            assert one.url.startswith("https://")
            assert len(one.md5) == 32
            assert int(one.md5, 16)


# ---- given archives ---------------------------------------------------------------------------------------------------


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


def test_a_given_archive_with_another_checksum_is_refused_with_both_checksums_unless_checking_is_off(
    write, tmp_path
):
    path = write(tar_bytes({"a": b"1"}))
    sources = [
        PublishedArchive("https://x/first.tar", "0" * 31 + "1"),
        PublishedArchive("https://x/second.tar", "0" * 31 + "2"),
    ]
    message = refusal(lambda: find_or_download(sources, [path], tmp_path / "downloads"))
    for fragment in (
        str(path),
        md5(path.read_bytes()),
        "0" * 31 + "1 (first.tar) or ",
        "download it again",
        "--no-check",
    ):
        assert fragment in message
    assert find_or_download(sources, [path], tmp_path / "downloads", check=False) == [
        (path, md5(path.read_bytes()))
    ]
    assert not (tmp_path / "downloads").exists()
