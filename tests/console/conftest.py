"""One cluster and one browser for all tests, and windows that are watched."""

import os
import shutil
import sys
from pathlib import Path

import pytest
from playwright.sync_api import sync_playwright

sys.path.insert(0, str(Path(__file__).parent))

from browser import CHROMIUM, Person  # noqa: E402
from cluster import PASSWORD, Cluster  # noqa: E402


@pytest.fixture(scope="session")
def cluster():
    folder = Path(os.environ["CONSOLE_DIR"]) / "cluster"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    cluster = Cluster(folder)
    try:
        cluster.send_traffic()
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


@pytest.fixture
def window(browser, cluster):
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
