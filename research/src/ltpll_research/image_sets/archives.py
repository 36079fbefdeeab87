"""The published archives of the image sets: downloaded, checked against their checksums, and read without unpacking them to disk."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import re
import struct
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple
from urllib.parse import urljoin, urlsplit

from ltpll.errors import InputError, first_line, printable, required_by, shown

ByteProgress = Callable[[str, int, int], None]
"""Called with a description of the task, the bytes done and the bytes in total (0 if unknown)."""


class PublishedArchive(NamedTuple):
    """Where an archive is published, and its checksum."""

    url: str
    md5: str

    @property
    def file_name(self) -> str:
        return self.url.rsplit("/", 1)[-1]


# The checksums come from the publishers' pages and from public code that reads these files; no download was made to confirm them.
# VOC is published under http addresses, but the host also supports TLS, and this package downloads over TLS only.
PUBLISHED_ARCHIVES: dict[str, tuple[PublishedArchive, ...]] = {
    "cifar10": (
        PublishedArchive(
            "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
            "c32a1d4ab5d03f1284b67883e8d87530",
        ),
    ),
    "cifar100": (
        PublishedArchive(
            "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",
            "03b5dce01913d631647c71ecec9e9cb8",
        ),
    ),
    "voc2007": (
        PublishedArchive(
            "https://host.robots.ox.ac.uk/pascal/VOC/voc2007/VOCtrainval_06-Nov-2007.tar",
            "c52e279531787c972589f7e41ab4ae64",
        ),
        PublishedArchive(
            "https://host.robots.ox.ac.uk/pascal/VOC/voc2007/VOCtest_06-Nov-2007.tar",
            "b6e924de25625d8de591ea690078ad9f",
        ),
    ),
}

CHUNK = 1 << 20
OTHERWISE = "get the file another way and pass it with --archive PATH"
DOWNLOAD_LIMIT = 1 << 30  # bytes; the largest published archive has 440 MiB
TIMEOUT = 30  # seconds without data from the server
# The largest published member is CIFAR-100's train.bin, 147 MiB; the largest archive unpacks to 440 MiB in 20,000 members.
MEMBER_LIMIT = 256 << 20
TOTAL_LIMIT = 4 << 30
COUNT_LIMIT = 200_000


class LocalArchive(NamedTuple):
    """An archive on disk, and its checksum."""

    path: Path
    md5: str


def find_or_download(
    sources: Sequence[PublishedArchive],
    given: Sequence[Path],
    downloads: Path,
    *,
    check: bool = True,
    on_progress: ByteProgress | None = None,
) -> list[LocalArchive]:
    """Return the archives of a set: the given files, and downloads of the archives that are not among them.

    With `check=False`, the given files are used whatever their checksum, and nothing is downloaded in addition.
    """
    found: dict[str, LocalArchive] = {}
    unchecked: list[LocalArchive] = []
    known = {source.md5: source for source in sources}
    for path in given:
        archive = LocalArchive(path, md5_of_file(path, on_progress))
        if not check:
            unchecked.append(archive)
        elif archive.md5 not in known:
            published = " or ".join(f"{source.md5} ({source.file_name})" for source in sources)
            raise InputError(
                f"The file {path} has the md5 sum {archive.md5}, but the published one is {published}: download it again, or "
                "pass --no-check if you packed it yourself."
            )
        else:
            found[archive.md5] = archive
    if unchecked:
        return unchecked
    return [found.get(source.md5) or download(source, downloads, on_progress) for source in sources]


def md5_of_file(path: Path, on_progress: ByteProgress | None = None) -> str:
    """The md5 sum of a file in hexadecimal; it is what the publishers give, and detects damage but not forgery."""
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            digest = hashlib.md5(usedforsecurity=False)
            while chunk := file.read(CHUNK):
                digest.update(chunk)
                if on_progress:
                    on_progress(f"checking {path.name}", file.tell(), size)
    except OSError as error:
        raise InputError(f"The archive {path} cannot be read: {error.strerror or error}.") from None
    return digest.hexdigest()


# ---- downloading ------------------------------------------------------------------------------------------------------


def download(
    source: PublishedArchive, downloads: Path, on_progress: ByteProgress | None = None
) -> LocalArchive:
    """Download an archive unless an earlier call did; an incomplete file never gets the final name."""
    path = downloads / source.file_name
    if path.is_file() and md5_of_file(path, on_progress) == source.md5:
        return LocalArchive(path, source.md5)
    _refuse_plain_http(source.url)
    with required_by(
        f"Downloading {source.url}", install="ltpll-research", otherwise=f", or {OTHERWISE}"
    ):
        import pooch  # type: ignore[import-untyped]

    def check_redirect(response: Any, **_: Any) -> None:
        if response.is_redirect:
            target = urljoin(response.url, response.headers["location"])
            _refuse_plain_http(target)
            if urlsplit(response.url).scheme == "https" and urlsplit(target).scheme != "https":
                raise _not_https(
                    target
                )  # not even on this machine: a server must not make us call its services

    downloader = pooch.HTTPDownloader(
        progressbar=_DownloadProgress(source.file_name, on_progress),
        chunk_size=CHUNK,
        timeout=TIMEOUT,
        hooks={"response": check_redirect},
        # A server might declare the gzip of a .tar.gz a transfer encoding; it would be decoded, and the checksum would differ.
        headers={"Accept-Encoding": "identity"},
    )
    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel("WARNING")  # its messages would break the progress bar
    try:
        pooch.retrieve(
            source.url,
            f"md5:{source.md5}",
            fname=source.file_name,
            path=downloads,
            downloader=downloader,
        )
    except InputError:
        raise
    except OSError as error:
        # All errors of requests are OSErrors, but only those of the operating system have an errno.
        if error.errno is not None:
            raise InputError(
                f"The download of {source.url} cannot be written to {downloads}: {error.strerror}."
            ) from None
        raise InputError(
            f"{source.url} cannot be downloaded ({_reason(error)}): try again later, or {OTHERWISE}."
        ) from None
    except ValueError as error:
        sums = [
            found for found in re.findall(r"\b[0-9a-f]{32}\b", str(error)) if found != source.md5
        ]
        arrived = (
            f"arrived with the md5 sum {sums[0]} instead of {source.md5}"
            if sums
            else f"did not arrive as published ({error})"
        )
        raise InputError(
            f"The download of {source.url} {arrived} and was deleted: try again later, or {OTHERWISE}."
        ) from None
    finally:
        logger.setLevel(level)
        with contextlib.suppress(OSError):
            downloads.rmdir()  # fails unless it is empty, which it is after a failed download
    return LocalArchive(path, source.md5)


def _refuse_plain_http(url: str) -> None:
    parts = urlsplit(url)
    if parts.scheme != "https" and not (
        parts.scheme == "http" and parts.hostname in ("127.0.0.1", "localhost")
    ):
        raise _not_https(url)


def _not_https(url: str) -> InputError:
    return InputError(
        f"The address {printable(url)[:200]} is not https, and ltpll only downloads over https: {OTHERWISE}."
    )


def _reason(error: OSError) -> str:
    response = getattr(error, "response", None)
    if response is not None:
        return f"the server answers {response.status_code} {response.reason}"
    name = type(error).__name__
    if "Timeout" in name:
        return f"no answer for {TIMEOUT} seconds"
    if name == "SSLError":
        return "the server's certificate is not accepted"
    return {
        "ChunkedEncodingError": "the connection was interrupted",
        "ConnectionError": "no connection",
    }.get(name, name)


class _DownloadProgress:
    """The methods of a tqdm progress bar that pooch calls."""

    def __init__(self, file_name: str, on_progress: ByteProgress | None) -> None:
        self.what, self.on_progress = f"downloading {file_name}", on_progress
        self.total, self.done = 0, 0

    def update(self, n: int) -> None:
        self.done += n
        if self.done > DOWNLOAD_LIMIT:
            raise InputError(
                f"The server sends more than {DOWNLOAD_LIMIT >> 30} GiB, so this is not the published archive: {OTHERWISE}."
            )
        if self.on_progress:
            self.on_progress(
                self.what, min(self.done, self.total) if self.total else self.done, self.total
            )

    def reset(self) -> None:
        self.done = 0

    def close(self) -> None:
        pass


# ---- reading ----------------------------------------------------------------------------------------------------------


def read_members(
    paths: Sequence[Path],
    wanted: Callable[[str], str | None],
    *,
    limit: int = MEMBER_LIMIT,
    on_progress: ByteProgress | None = None,
) -> Iterator[tuple[str, bytes]]:
    """Yield (key, content) of every member for whose name `wanted` returns a key, in the order of the archives."""
    seen: dict[str, bytes] = {}
    for path in paths:
        for key, content in _read_one(path, wanted, limit, on_progress):
            digest = hashlib.sha256(content).digest()
            if seen.setdefault(key, digest) != digest:
                raise InputError(
                    f"The archive {path} holds {key} a second time with other content: use the published archive."
                )
            yield key, content


def missing_member(paths: Sequence[Path], key: str) -> InputError:
    """The error for a member that none of the archives has."""
    names = " and ".join(str(path) for path in paths)
    return InputError(
        f"There is no {printable(key)[:200]} in {names}: the archive is truncated or a different one; download it again."
    )


def _read_one(
    path: Path, wanted: Callable[[str], str | None], limit: int, on_progress: ByteProgress | None
) -> Iterator[tuple[str, bytes]]:
    try:
        with path.open("rb") as raw:
            size = path.stat().st_size
            packed = raw.read(2) == b"\x1f\x8b"
            raw.seek(0)
            with (
                gzip.open(raw) if packed else raw as plain,
                tarfile.open(  # type: ignore[call-overload]
                    fileobj=_BoundedReader(plain, path), mode="r:"
                ) as tar,
            ):
                for count, member in enumerate(tar):
                    if count >= COUNT_LIMIT:
                        raise InputError(
                            f"The archive {path} has more than {COUNT_LIMIT} members: it is not a published one."
                        )
                    if on_progress:
                        on_progress(f"reading {path.name}", raw.tell(), size)
                    key = wanted(member.name)
                    if key is not None:
                        _check_member(member, path, limit)
                        file = tar.extractfile(member)
                        assert file is not None
                        yield key, file.read()
                # The checksum of a gzip file is at its end, and is only verified if everything is read.
                while plain.read(CHUNK):
                    if plain.tell() > TOTAL_LIMIT:
                        raise _too_large(path)
            if on_progress:
                on_progress(f"reading {path.name}", size, size)
    except InputError:
        raise
    except (
        tarfile.TarError,
        EOFError,
        zlib.error,
        gzip.BadGzipFile,
        struct.error,
        ValueError,
        LookupError,
        OverflowError,
    ) as error:
        raise InputError(
            f"The archive {path} is damaged or not a tar file ({first_line(error)}): download it again."
        ) from None
    except OSError as error:
        raise InputError(
            f"The archive {path} cannot be read: {error.strerror or first_line(error)}."
        ) from None


def _check_member(member: tarfile.TarInfo, path: Path, limit: int) -> None:
    name = PurePosixPath(member.name)
    if name.is_absolute() or ".." in name.parts:
        raise InputError(
            f"The archive {path} holds {shown(member.name)}, a path outside the archive: it is not a published one."
        )
    if not member.isreg():
        raise InputError(
            f"In the archive {path}, {shown(member.name)} is a link, a folder or a device instead of a file: it is not a published one."
        )
    if not 0 <= member.size <= limit:
        raise InputError(
            f"In the archive {path}, {shown(member.name)} claims {member.size} bytes, more than the {limit} allowed: "
            "it is not a published one."
        )


def _too_large(path: Path) -> InputError:
    return InputError(
        f"The archive {path} unpacks to more than {TOTAL_LIMIT >> 30} GiB: it is not a published one."
    )


class _BoundedReader:
    """A file that limits how far and how much at once it is read; tarfile trusts the lengths in an archive's headers."""

    def __init__(self, file: IO[bytes] | gzip.GzipFile, path: Path) -> None:
        self.file, self.path = file, path

    def read(self, size: int = -1) -> bytes:
        if size < 0:
            raise _too_large(self.path)
        if size > MEMBER_LIMIT:
            raise InputError(
                f"The archive {self.path} has a header of {size} bytes: it is not a published one."
            )
        return self.file.read(size)

    def seek(self, position: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_SET and position > TOTAL_LIMIT:
            raise _too_large(self.path)
        return self.file.seek(position, whence)

    def tell(self) -> int:
        return self.file.tell()

    def seekable(self) -> bool:
        return True

    def close(self) -> None:
        pass
