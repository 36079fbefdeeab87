"""The pages of the documentation, and the code blocks in them."""

import re
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
BLOCK = re.compile(
    r"(?:<!-- invisible\n(?P<hidden>.*?)-->)"
    r"|(?:(?:<!-- not executed: (?P<reason>[^\n]+) -->\n)?^(?P<indent> *)```(?P<language>\w*)\n(?P<code>.*?)^ *```$)",
    re.S | re.M,
)


class Block(NamedTuple):
    """A fenced block of a page; `hidden` ones are comments that prepare the next block, and
    `reason` says why one is not executed.
    """

    language: str
    code: str
    hidden: bool
    reason: str


def name_of(page):
    return page.relative_to(ROOT).as_posix()


def blocks_of(page):
    found = []
    for match in BLOCK.finditer(page.read_text(encoding="utf-8")):
        if match["hidden"] is not None:
            found.append(Block("python", match["hidden"], True, ""))
        else:
            code = re.sub(rf"(?m)^{match['indent']}", "", match["code"])
            found.append(Block(match["language"], code, False, match["reason"] or ""))
    return found


def execute(page, changes):
    """Execute the Python blocks of a page in order, in one namespace and in the current folder;
    returns the namespace.

    `changes` are replacements in the code that save time; each must apply.
    """
    space, code = (
        {},
        [
            block.code
            for block in blocks_of(page)
            if block.language == "python" and not block.reason
        ],
    )
    assert all(any(old in one for one in code) for old in changes)
    for one in code:
        for old, new in changes.items():
            one = one.replace(old, new)
        exec(compile(one, name_of(page), "exec"), space)
    return space


COMMAND = re.compile(r"(?:^|srun |-m |; )(ltpll(?:[-_]research)? (?:'[^']*'|[^#;'])*)")


def commands_of(page):
    """The `ltpll` and `ltpll-research` commands in the unnamed fenced blocks of a page.

    They are without comments, and without torchrun or srun in front.
    """
    lines = [
        line
        for block in blocks_of(page)
        if block.language in ("", "sh", "bash")
        for line in block.code.splitlines()
    ]
    return [found.strip() for line in lines for found in COMMAND.findall(line)]
