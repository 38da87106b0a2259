"""Two clusters and one browser for all tests, and windows that are watched."""

import contextlib
import os
import shutil
import sys
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).parent))

from browser import CHROMIUM, Person  # noqa: E402
from cluster import PASSWORD, Cluster  # noqa: E402
from trouble import TroubledCluster  # noqa: E402


def make_folder(name: str) -> Path:
    folder = Path(os.environ["CONSOLE_DIR"]) / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return folder


@pytest.fixture(scope="session")
def cluster():
    cluster = Cluster(make_folder("cluster"))
    try:
        cluster.send_traffic()
        yield cluster
    finally:
        cluster.end()


@pytest.fixture(scope="session")
def trouble():
    cluster = TroubledCluster(make_folder("trouble"))
    try:
        yield cluster
    finally:
        cluster.end()


@pytest.fixture(scope="session")
def browser():
    # Its own sandbox needs rights that containers and root do not have; it sees pages of this test alone.
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which(CHROMIUM), args=["--no-sandbox"])
        yield browser
        browser.close()


@contextlib.contextmanager
def opening(browser, cluster):
    """Opens windows, and holds each of them against what it said."""
    opened = []

    def open_window(name: str | None = None, **options) -> Person:
        person = Person(browser, cluster.url, **options)
        opened.append(person)
        if name:
            person.sign_in(name, PASSWORD)
        return person

    yield open_window
    for person in opened:
        person.end()


@pytest.fixture
def window(browser, cluster):
    with opening(browser, cluster) as open_window:
        yield open_window


@pytest.fixture
def trouble_window(browser, trouble):
    with opening(browser, trouble) as open_window:
        yield open_window
