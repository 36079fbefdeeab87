"""The published archives of the image sets: downloaded, checked by checksum, and read in place."""

from __future__ import annotations

import hashlib
import sys
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ltpll.errors import InputError, first_line


class PublishedArchive(NamedTuple):
    """Where an archive is published, and its checksum."""

    url: str
    md5: str

    @property
    def file_name(self) -> str:
        return self.url.rsplit("/", 1)[-1]


# The checksums come from the publishers' pages and from public code that reads these files. They
# decide what is read: an archive with another checksum is refused, wherever it comes from.
TORONTO = "https://www.cs.toronto.edu/~kriz"
VOC2007 = "https://host.robots.ox.ac.uk/pascal/VOC/voc2007"  # published as http; TLS works, too
PUBLISHED_ARCHIVES: dict[str, tuple[PublishedArchive, ...]] = {
    name: tuple(PublishedArchive(url, md5) for url, md5 in archives.items())
    for name, archives in {
        "cifar10": {f"{TORONTO}/cifar-10-binary.tar.gz": "c32a1d4ab5d03f1284b67883e8d87530"},
        "cifar100": {f"{TORONTO}/cifar-100-binary.tar.gz": "03b5dce01913d631647c71ecec9e9cb8"},
        "voc2007": {
            f"{VOC2007}/VOCtrainval_06-Nov-2007.tar": "c52e279531787c972589f7e41ab4ae64",
            f"{VOC2007}/VOCtest_06-Nov-2007.tar": "b6e924de25625d8de591ea690078ad9f",
        },
    }.items()
}


def find_or_download(
    sources: Sequence[PublishedArchive], given: Sequence[Path], downloads: Path
) -> list[Path]:
    """The archives of a set: the given files, and downloads of those that are not among them."""
    found = {md5_of_file(path): path for path in given}
    published = {source.md5: source.file_name for source in sources}
    for md5, path in found.items():
        if md5 not in published:
            expected = " or ".join(f"{one} ({name})" for one, name in published.items())
            raise InputError(
                f"The file {path} has the md5 sum {md5}, but the published one is {expected}: "
                "download it again."
            )
    return [found.get(source.md5) or download(source, downloads) for source in sources]


def md5_of_file(path: Path) -> str:
    """The md5 sum of a file in hexadecimal, which is what the publishers give."""
    try:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False))
    except OSError as error:
        raise InputError(f"The archive {path} cannot be read: {error.strerror or error}.") from None
    return digest.hexdigest()


def download(source: PublishedArchive, downloads: Path) -> Path:
    """Download an archive unless an earlier call did; only a complete file gets the final name."""
    import pooch  # type: ignore[import-untyped]

    pooch.get_logger().setLevel("WARNING")  # its messages would break the progress bar
    # A server might declare the gzip of a .tar.gz a transfer encoding: it would be decoded, and the
    # checksum would differ.
    downloader = pooch.HTTPDownloader(
        progressbar=sys.stderr.isatty(), headers={"Accept-Encoding": "identity"}
    )
    published = (source.url, f"md5:{source.md5}", source.file_name)
    try:
        return Path(pooch.retrieve(*published, downloads, downloader=downloader))
    except (OSError, ValueError) as error:  # of the network, the disk, or the checksum
        raise InputError(
            f"{source.url} cannot be downloaded to {downloads} ({first_line(error).rstrip('.')}): "
            "try again later, or get the file another way and pass it with --archive PATH."
        ) from None


def read_members(
    paths: Sequence[Path], wanted: Callable[[str], str | None]
) -> Iterator[tuple[str, bytes]]:
    """Yield (key, content) of every member for whose name `wanted` returns a key, in order."""
    for path in paths:
        with tarfile.open(path) as tar:
            for member in tar:
                if (key := wanted(member.name)) is not None and (file := tar.extractfile(member)):
                    yield key, file.read()
