"""Opening a page in a real browser."""

import shutil
import subprocess

import pytest

needs_browser = pytest.mark.skipif(shutil.which("chromium") is None, reason="chromium is not installed")


def in_browser(path, tmp_path):
    """The page after it was opened, and what the browser complained of."""
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]
    command = ["chromium", *options, f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=3000", "--enable-logging=stderr"]
    done = subprocess.run([*command, "--dump-dom", path.as_uri()], capture_output=True, text=True, timeout=60, check=True)
    return done.stdout, done.stderr
