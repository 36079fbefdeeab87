"""The data commands."""

from ltpll.data.commands import app as app
