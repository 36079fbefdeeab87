"""A server on this machine that pages might call."""

import http.server
import threading

import pytest


class Listener(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.server.asked.append(self.path)
        self.send_error(404)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def listener():
    """A server that a page could call, and what it was asked for."""
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Listener) as server:
        server.asked = []
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()
