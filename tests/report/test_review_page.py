"""The page on which people answer, driven in a real browser: keys, search, reload, download."""

from __future__ import annotations

import io
import json
import threading
import time
import urllib.error
import urllib.request
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from ltpll.cleaning.audit import (
    Answers,
    answers_of_page,
    read_answers_about,
    store_answers,
    stored_answers,
)
from ltpll.cleaning.review import AUDIT, choose_questions
from ltpll.cli.review_server import ReviewServer
from ltpll.report.review_page import pictures_of_rows, render_review_page
from support.browser import Browser, needs_driver, payloads
from support.cleaned_tables import cleaned_table

NONE = Answers(np.zeros(0, dtype=np.int64), [], np.zeros(0, dtype=object), np.zeros(0))
NAMES = ["fox\u202e", "wolf", "dog", "=cat", "jackal", 'a "lynx", or so']
COUNT = "return document.getElementById('count').textContent"
CHOICES = "return [...document.querySelectorAll('#row .choices bdi')].map((one) => one.textContent)"
ENTER = "\ue007"


def named_table(names=NAMES, n=200):
    table = cleaned_table(n)
    return replace(table, record={**table.record, "classes": names, "key": "abc"})


def jpeg(side=160, seed=0):
    stream = io.BytesIO()
    noise = np.random.default_rng(seed).integers(0, 256, (side // 8, side // 8, 3), np.uint8)
    Image.fromarray(noise).resize((side, side)).save(stream, "JPEG", quality=80)
    return stream.getvalue()


@pytest.fixture
def browser(tmp_path):
    opened = Browser(tmp_path)
    yield opened
    opened.close()


def written(path, table, questions, answers=NONE, **how):
    path.write_text(render_review_page(table, questions, answers, **how), encoding="utf-8")
    return path.as_uri()


def downloaded(folder, seconds=20):
    until = time.monotonic() + seconds
    while not (folder / "answers.csv").exists():
        assert time.monotonic() < until
        time.sleep(0.1)
    return folder / "answers.csv"


@needs_driver
def test_answers_are_given_by_keys_and_search_outlive_the_browser_and_are_downloaded(
    browser, tmp_path
):
    table = named_table()
    questions = choose_questions(table, 12, 6)
    page = written(tmp_path / "page.html", table, questions)
    browser.open(page)
    assert browser.run(COUNT) == "0 of 12"
    first = browser.run(CHOICES)
    browser.press("1")
    second = browser.run(CHOICES)
    browser.press("2")
    browser.press("/")
    browser.press("jack" + ENTER)  # a class of the search, and no key of a button
    browser.press("0s")
    browser.press("m12" + ENTER)
    assert browser.run(COUNT) == "6 of 12"
    browser.press("u")
    assert browser.run(COUNT) == "5 of 12"
    browser.press("m12" + ENTER)
    several = browser.run("return localStorage.length")
    assert several == 1
    time.sleep(1)  # in which the browser hands on what it was told to keep
    browser.restart()
    browser.open(page)
    assert browser.run(COUNT) == "6 of 12"
    browser.run("document.getElementById('download').click()")
    found = read_answers_about(table, [downloaded(tmp_path)])
    given = dict(zip(found.rows.tolist(), found.sets, strict=True))
    rows = questions.rows.tolist()
    shown = [name.replace("\u202e", "\ufffd") for name in NAMES]  # it would reorder the page
    assert given[rows[0]] == (shown.index(first[0]),)
    assert given[rows[1]] == (shown.index(second[1]),)
    assert given[rows[2]] == (NAMES.index("jackal"),)
    assert given[rows[3]] == ()
    assert rows[4] not in given  # it was skipped
    assert len(given[rows[5]]) == 2
    asked = dict(zip(rows, questions.asked, strict=True))
    assert [asked[i] for i in found.rows.tolist()] == found.asked.tolist()
    assert browser.complaints() == []


@needs_driver
def test_every_class_is_told_apart_in_the_downloaded_file(browser, tmp_path):
    table = named_table(n=40)
    questions = choose_questions(table, 6, 6)
    browser.open(written(tmp_path / "page.html", table, questions))
    for name in NAMES:
        browser.press("/")
        browser.press(name.rstrip("\u202e") + ENTER)
    browser.run("document.getElementById('download').click()")
    found = read_answers_about(table, [downloaded(tmp_path)])
    assert found.sets == [(c,) for c in range(6)]


@needs_driver
def test_a_random_row_whose_answer_is_not_the_label_is_shown_once_more(browser, tmp_path):
    table = named_table(n=40)
    questions = choose_questions(table, 3, 3)
    labels = table.labels.label[questions.rows]
    browser.open(written(tmp_path / "page.html", table, questions))
    wrong = (labels[1] + 1) % 6
    for c in (labels[0], wrong, labels[2]):
        browser.press("/")
        browser.press(NAMES[c].rstrip("\u202e") + ENTER)
    assert browser.run(COUNT) == "Please look at this row once more"
    shown = browser.run("return document.querySelector('#row dd:last-of-type').textContent")
    assert shown == table.ids[questions.rows[1]]
    browser.press("/")
    browser.press(NAMES[labels[1]].rstrip("\u202e") + ENTER)
    assert browser.run(COUNT) == "3 of 3"
    assert "All rows are answered" in browser.run("return document.body.textContent")


@needs_driver
@pytest.mark.parametrize("width", [1280, 390])
def test_nothing_is_wider_than_the_window(browser, tmp_path, width):
    table = named_table([f"{name} {'very-long-name' * 9}" for name in NAMES])
    texts = np.full(200, "word " * 50 + "x" * 200, dtype=object)
    table = replace(table, shown={"text": texts, "y" * 60: texts})
    questions = choose_questions(table, 12, 6)
    pictures = dict.fromkeys(questions.rows.tolist(), jpeg())
    browser.resize(width)
    browser.open(written(tmp_path / "page.html", table, questions, pictures=pictures))
    browser.resize(width)
    wide = "return document.documentElement.scrollWidth"
    assert browser.run(wide) <= width
    assert browser.run("return document.querySelector('#row img').naturalWidth") == 160


@needs_driver
def test_hostile_names_ids_and_texts_do_nothing(browser, tmp_path):
    attacks = payloads(9)
    names = [f"{one} {k}" for k, one in enumerate(attacks[:6])]
    table = named_table(names)
    shown = {attacks[6]: np.resize(np.asarray(attacks, dtype=object), 200)}
    ids = np.asarray([f"{attacks[i % len(attacks)]} {i}" for i in range(200)], dtype=object)
    record = {**table.record, "source": {"table": "</title><script>OWNED</script>.csv"}}
    table = replace(table, ids=ids, shown=shown, record=record)
    questions = choose_questions(table, 30, 15)
    browser.open(written(tmp_path / "page.html", table, questions))
    for _ in range(30):
        browser.press("1")
    browser.press("/")
    browser.press("script")
    owned = browser.run("return document.documentElement.dataset.owned || null")
    assert owned is None
    assert (
        browser.run("return document.querySelectorAll('iframe, svg, link[rel=stylesheet]').length")
        == 0
    )
    assert browser.complaints() == []
    kept = json.loads(browser.run("return localStorage.getItem('ltpll-review-abc')"))
    assert {one[0] for one in kept} == {*ids[questions.rows].tolist()}


@needs_driver
def test_pictures_with_hostile_file_names_are_shown_and_do_nothing(browser, tmp_path):
    folder = tmp_path / "pictures"
    hostile = [one.replace("\0", "") for one in payloads(9)]
    hostile += ["javascript:alert(1)", "=cmd|' /C calc'!A0", "a\u202egnp.jpg", "%2e%2e"]
    names = [
        f"{name} {k}.png" for k, name in enumerate([*hostile, "'\"><b>", "line\nend", "-1", "é"])
    ]
    for name in names:  # their slashes make folders
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (40, 20), (10, 200, 10)).save(folder / name, "PNG")
    ids, table = np.asarray(names, dtype=object), named_table(n=len(names))
    record = {**table.record, "source": {"table": "t.csv", "images": str(folder)}}
    table = replace(table, ids=ids, paths=ids, record=record)
    questions = choose_questions(table, len(names), 6)
    pictures = pictures_of_rows(table, questions.rows)
    assert sorted(pictures) == list(range(len(names)))
    browser.open(written(tmp_path / "page.html", table, questions, pictures=pictures))
    seen = []
    for _ in names:
        image = "const one = document.querySelector('#row img'); await one.decode(); return "
        assert browser.run(f"return (async () => {{ {image} one.naturalWidth }})()") == 480
        seen.append(browser.run("return document.querySelector('#row img').alt"))
        browser.press("1")
    shown = [name.replace("\u202e", "\ufffd") for name in ids[questions.rows]]
    assert seen == [f"Picture of {name}" for name in shown]
    assert browser.run("return document.documentElement.dataset.owned || null") is None
    assert browser.complaints() == []
    browser.run("document.getElementById('download').click()")
    # Slips are shown again at the end, and every row has its answer in the file.
    found = read_answers_about(table, [downloaded(tmp_path)])
    assert sorted(found.rows.tolist()) == list(range(len(names)))


@needs_driver
def test_thousands_of_rows_with_pictures_open_quickly(browser, tmp_path):
    table = named_table(n=5000)
    questions = choose_questions(table, 5000, 30)
    some = [jpeg(seed=seed) for seed in range(20)]
    pictures = {int(i): some[k % 20] for k, i in enumerate(questions.rows)}
    path = tmp_path / "page.html"
    page = written(path, table, questions, pictures=pictures)
    assert path.stat().st_size > 15_000_000
    browser.open(page)
    # What the browser itself took: this machine may be busy with other things.
    took = browser.protocol("Performance.enable") or 0
    metrics = {
        one["name"]: one["value"] for one in browser.protocol("Performance.getMetrics")["metrics"]
    }
    assert browser.run(COUNT) == "0 of 5,000", took
    assert metrics["TaskDuration"] < 2


def test_pictures_are_read_large_from_their_folder_or_else_those_of_the_run_are_shown(tmp_path):
    table = named_table(n=20)
    for name in table.ids[:5]:
        Image.new("RGB", (600, 300), (10, 200, 10)).save(tmp_path / name, "PNG")
    stored = {7: jpeg()}
    record = {**table.record, "source": {"table": "t.csv", "images": str(tmp_path)}}
    table = replace(table, record=record, pictures=stored)
    rows = np.asarray([0, 3, 4, 7, 12])  # there is no picture of the last two any more
    found = pictures_of_rows(table, rows)
    assert sorted(found) == [0, 3, 4, 7]
    assert found[7] == stored[7]
    assert Image.open(io.BytesIO(found[3])).size == (480, 480)
    gone = {**record, "source": {"table": "t.csv", "images": str(tmp_path / "gone")}}
    assert pictures_of_rows(replace(table, record=gone), rows) == stored
    assert pictures_of_rows(named_table(n=20), rows) == {}


# ---- served ------------------------------------------------------------------------------------


@pytest.fixture
def served(tmp_path):
    table = named_table()
    questions = choose_questions(table, 12, 6)
    page = render_review_page(table, questions, NONE, served=True)

    def store(given):
        store_answers(tmp_path, table, answers_of_page(table, questions, NONE, given))

    with ReviewServer(page, store) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server, table, questions, tmp_path
        server.shutdown()


def status_of(url, data=None, **headers):
    request = urllib.request.Request(url, data, headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as reply:
            return reply.status
    except urllib.error.HTTPError as error:
        return error.code


def test_only_the_page_is_served_and_only_to_whoever_knows_its_address(served):
    server, *_, folder = served
    origin = f"http://{server.host}"
    assert server.server_address[0] == "127.0.0.1"
    assert status_of(server.url) == 200
    for path in ("/", "/answers", f"{server.path}../", f"{server.path}x", "/etc/passwd"):
        assert status_of(origin + path) == 404
    assert status_of(server.url, Host="evil.example") == 404  # another name for this machine
    body = b"[[0, [1]]]"
    assert status_of(f"{server.url}answers", body) == 404  # from no page
    assert status_of(f"{server.url}answers", body, Origin="http://evil.example") == 404
    assert status_of(f"{origin}/answers", body, Origin=origin) == 404
    for bad in (b"no JSON", b"[[99, [0]]]", b"[[0, [99]]]", b"5", b"[" * 100000):
        assert status_of(f"{server.url}answers", bad, Origin=origin) == 400
    assert not (folder / "answers.csv").exists()
    assert status_of(f"{server.url}answers", body, Origin=origin) == 204
    assert (folder / "answers.csv").exists()


@needs_driver
def test_a_served_page_stores_answers_as_they_are_given(browser, served):
    server, table, questions, folder = served
    browser.open(server.url)
    browser.press("1")
    for n in (1, 2):
        downloaded(folder)
        until = time.monotonic() + 20
        while len(stored_answers(folder, table).rows) < n:
            assert time.monotonic() < until
            time.sleep(0.1)
        browser.press("1")
    found = stored_answers(folder, table)
    assert {*found.rows.tolist()} <= {*questions.rows[:3].tolist()}
    assert found.asked[0] in (AUDIT, "suspicious", "doubtful")
    assert browser.complaints() == []
