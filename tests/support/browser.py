"""Opening a page in a real browser, and what hostile text may try in it."""

import re
import shutil
import subprocess

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
