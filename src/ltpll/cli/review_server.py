"""Review server: the review page on this machine alone, whose answers are stored in the run."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock
from typing import Any

HOST = "127.0.0.1"
LONGEST = 1 << 24  # bytes of a request
HEADERS = {
    "Content-Type": "text/html; charset=utf-8",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class ReviewServer(ThreadingHTTPServer):
    """Serves one page, and hands what it sends to `store`, which raises ValueError to refuse it.

    The address holds a secret; requests by other names of this machine, or from other pages, are
    refused.
    """

    daemon_threads = True

    def __init__(self, page: str, store: Callable[[Any], None]) -> None:
        super().__init__((HOST, 0), _Handler)
        self.page, self.store, self.lock = page.encode("utf-8", "replace"), store, Lock()
        self.host = f"{HOST}:{self.server_port}"
        self.path = f"/{secrets.token_urlsafe(24)}/"
        self.url = f"http://{self.host}{self.path}"


class _Handler(BaseHTTPRequestHandler):
    server: ReviewServer
    timeout = 30  # seconds without a byte

    def do_GET(self) -> None:
        self._reply(200 if self._allowed(self.server.path) else 404)

    def do_POST(self) -> None:
        length, own = self.headers.get("Content-Length", ""), f"http://{self.server.host}"
        if not self._allowed(f"{self.server.path}answers") or self.headers.get("Origin") != own:
            self._reply(404)
        elif not length.isdecimal() or int(length) > LONGEST:
            self._reply(413)
        else:
            try:
                sent = json.loads(self.rfile.read(int(length)))
                with self.server.lock:
                    self.server.store(sent)
            except (ValueError, TypeError, RecursionError):
                self._reply(400)
            else:
                self._reply(204)

    def _allowed(self, path: str) -> bool:
        same = secrets.compare_digest(self.path.encode(), path.encode())
        return same and self.headers.get("Host") == self.server.host

    def _reply(self, status: int) -> None:
        page = self.server.page if status == 200 else b""
        self.send_response(status)
        for name, value in {**HEADERS, "Content-Length": str(len(page))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *words: Any) -> None:
        """Nothing is printed: the address is a secret."""
