"""Review server: the review page on this machine alone, whose answers are stored in the run."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from ltpll.cleaning.audit import Answers, store_answers
from ltpll.cleaning.results import CleanedTable
from ltpll.cleaning.review import Questions
from ltpll.cli.console import print_line

HOST = "127.0.0.1"
LONGEST = 1 << 24  # bytes of a request


class ReviewServer(ThreadingHTTPServer):
    """Serves one page, and stores the answers that it sends.

    The address holds a secret, and requests by other names of this machine, or from other pages,
    are refused.
    """

    daemon_threads = True

    def __init__(
        self,
        run: Path,
        table: CleanedTable,
        questions: Questions,
        answers: Answers,
        page: str,
    ) -> None:
        super().__init__((HOST, 0), _Handler)
        self.run, self.table, self.questions, self.earlier = run, table, questions, answers
        self.page, self.lock, self.stored = page.encode("utf-8", "replace"), Lock(), answers
        self.origin = f"http://{HOST}:{self.server_port}"
        self.path = f"/{secrets.token_urlsafe(24)}/"

    @property
    def url(self) -> str:
        return self.origin + self.path

    def store(self, given: Any) -> None:
        """Store answers, pairs of a question and its class numbers; ValueError if they are none."""
        found: dict[int, tuple[tuple[int, ...], str, float]] = {}
        n, n_classes = len(self.questions.rows), len(self.table.classes)
        for question, classes in given:
            chosen = () if classes is None else tuple(classes)
            whole = all(type(one) is int for one in (question, *chosen))
            if not (whole and 0 <= question < n and all(0 <= c < n_classes for c in chosen)):
                raise ValueError("an answer is not one of this page")
            if classes is not None:
                about = str(self.questions.asked[question])
                probability = float(self.questions.probability[question])
                found[int(self.questions.rows[question])] = chosen, about, probability
        shown = np.isin(self.earlier.rows, self.questions.rows)
        for i, *about in zip(*self.earlier.select(~shown), strict=True):
            found[int(i)] = tuple(about)
        with self.lock:
            sets, asked, probability = zip(*found.values()) if found else ((), (), ())
            self.stored = Answers(
                np.asarray(list(found), dtype=np.int64),
                list(sets),
                np.asarray(asked, dtype=object),
                np.asarray(probability, dtype=np.float64),
            )
            store_answers(self.run, self.table, self.stored)


class _Handler(BaseHTTPRequestHandler):
    server: ReviewServer

    def do_GET(self) -> None:
        if self._allowed(self.server.path):
            self._reply(200, self.server.page)

    def do_POST(self) -> None:
        if not self._allowed(f"{self.server.path}answers"):
            return
        length = self.headers.get("Content-Length", "")
        if self.headers.get("Origin") != self.server.origin or not length.isdigit():
            self._reply(403)
        elif int(length) > LONGEST:
            self._reply(413)
        else:
            try:
                self.server.store(json.loads(self.rfile.read(int(length))))
            except (ValueError, TypeError, RecursionError):
                self._reply(400)
            else:
                self._reply(204)

    def _allowed(self, path: str) -> bool:
        host = f"{HOST}:{self.server.server_port}"
        same = secrets.compare_digest(self.path.encode(), path.encode())
        if not same or self.headers.get("Host") != host:
            self._reply(404)
            return False
        return True

    def _reply(self, status: int, page: bytes = b"") -> None:
        self.send_response(status)
        about: Mapping[str, str] = {
            "Content-Type": "text/html; charset=utf-8",
            "Content-Length": str(len(page)),
            "Cache-Control": "no-store",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
        }
        for name, value in about.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *words: Any) -> None:
        """Nothing is printed; the address would be."""


def serve_page(
    run: Path, table: CleanedTable, questions: Questions, answers: Answers, page: str
) -> int:
    """Serve the page until Ctrl-C is pressed; returns how many answers the run has then."""
    with ReviewServer(run, table, questions, answers, page) as server:
        print_line(f"Open {server.url}")
        print_line("Press Ctrl-C when you are done.")
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print_line("")
        return len(server.stored.rows)
