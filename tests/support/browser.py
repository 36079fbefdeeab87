"""Opening a page in a real browser, and what hostile text may try in it."""

import base64
import json
import re
import shutil
import subprocess
import urllib.request

import pytest

needs_browser = pytest.mark.skipif(
    shutil.which("chromium") is None, reason="chromium is not installed"
)


def in_browser(path, tmp_path):
    """The page after it was opened, and what the browser complained of."""
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-sync",
    ]
    command = [
        "chromium",
        *options,
        f"--user-data-dir={tmp_path / 'profile'}",
        "--virtual-time-budget=3000",
        "--enable-logging=stderr",
    ]
    done = subprocess.run(
        [*command, "--dump-dom", path.as_uri()],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout, done.stderr


# What a class name, a path or a setting may try: to end a script or an attribute, to run code from
# a link, a picture or a style, templates
# of jinja2 and of plotly, and plotly's own markup, which knows links.
PAYLOADS = (
    "</script><script>OWNED</script>",
    "<img src=x onerror=OWNED>",
    '"><svg onload=OWNED>',
    "' onmouseover='OWNED' x='",
    '" autofocus onfocus=OWNED tabindex=1 "',
    '<a href="javascript:OWNED">x</a>',
    "javascript:OWNED",
    "<iframe srcdoc='<script>parent.document.documentElement.dataset.owned=1</script>'></iframe>",
    "<style>*{background:url(CALL)}</style><link rel=stylesheet href=CALL><img src=CALL>",
    "<meta http-equiv=refresh content='0;url=CALL'><base href=CALL>",
    '<a href="CALL"><b>x</b></a>',
    "{{ 7 * 7 }}{% raw %}",
    "%{fullData.name}<extra><a href='javascript:OWNED'>x</a></extra>",
    "</title></textarea></noscript><script>OWNED</script>",
    "\u2028OWNED//\u0000<!--<script>",
)


def payloads(port):
    """Texts that would leave a mark on the page, and call a server, if they were obeyed."""
    owned = "document.documentElement.dataset.owned=1;fetch('CALL')"
    return [
        one.replace("OWNED", owned).replace("CALL", f"http://127.0.0.1:{port}/") for one in PAYLOADS
    ]


def is_owned(shown):
    """Whether the mark is there."""
    return "owned" in re.search(r"<html[^>]*>", shown)[0]


needs_driver = pytest.mark.skipif(
    shutil.which("chromium") is None or shutil.which("chromedriver") is None,
    reason="chromium or chromedriver is not installed",
)


class Browser:
    """A headless Chromium that chromedriver drives over HTTP, by the WebDriver protocol."""

    def __init__(self, folder):
        self.folder = folder
        self._start()

    def _start(self):
        self.driver = subprocess.Popen(
            ["chromedriver", "--port=0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        port = next(found[1] for line in self.driver.stdout if (found := PORT.search(line)))
        self.address = f"http://127.0.0.1:{port}/session"
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        options.append(f"--user-data-dir={self.folder / 'profile'}")
        chrome = {
            "args": options,
            "prefs": {"download.default_directory": str(self.folder)},
            "binary": shutil.which("chromium"),
        }
        always = {"goog:chromeOptions": chrome, "goog:loggingPrefs": {"browser": "ALL"}}
        session = self._send("", {"capabilities": {"alwaysMatch": always}})
        self.address += f"/{session['sessionId']}"

    def _send(self, path, body=None, method="POST"):
        data = None if method != "POST" else json.dumps(body or {}).encode()
        request = urllib.request.Request(self.address + path, data, method=method)
        with urllib.request.urlopen(request, timeout=120) as reply:
            return json.load(reply)["value"]

    def open(self, url):
        self._send("/url", {"url": url})

    def run(self, script, *arguments):
        """What a script returns: `arguments[0]` and so on are its arguments."""
        return self._send("/execute/sync", {"script": script, "args": list(arguments)})

    def press(self, keys):
        """Press keys, one after the other."""
        pressed = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self._send("/actions", {"actions": [{"type": "key", "id": "keys", "actions": pressed}]})

    def protocol(self, command, **parameters):
        """A command of Chromium's own protocol."""
        return self._send("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def complaints(self):
        return [one["message"] for one in self._send("/se/log", {"type": "browser"})]

    def screenshot(self, path, width, *, dark):
        """The whole page as a picture."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.protocol("Emulation.setEmulatedMedia", features=[scheme])
        self.resize(width)
        height = self.run("return document.documentElement.scrollHeight")
        self.resize(width, height)
        path.write_bytes(base64.b64decode(self._send("/screenshot", method="GET")))

    def resize(self, width, height=844):
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.protocol("Emulation.setDeviceMetricsOverride", **size)

    def restart(self):
        """Close it, and open it again with what it has kept."""
        self.close()
        self._start()

    def close(self):
        try:
            self._send("", method="DELETE")
        finally:
            self.driver.terminate()
            self.driver.wait(30)


PORT = re.compile(r"started successfully on port (\d+)")
