"""What operators are told when something goes wrong or moves: on a page that stays open, and by loading it anew without
JavaScript. In the order of this file: each test but the last one leaves the cluster well."""

import re
import signal

import pytest
from browser import Person
from cluster import OPERATOR, VIEWER
from playwright.sync_api import Page, expect
from trouble import JOINER, OTHER, RAIL, RAILED

WELL, UNWELL = "The cluster is well", "Something is to be done"
# So that one test that fails does not make each after it wait for the whole of its time.
SOON_MS = 40_000


def health(page: Page):
    return page.locator(".health")


def moves(page: Page):
    return page.get_by_role("region", name="Fills, moves and jobs")


class Lookers:
    """Two who look at the overview: one on a page that nobody loads anew, the other one without JavaScript."""

    def __init__(self, window):
        self.live: Person = window(VIEWER)
        self.plain: Person = window(VIEWER, java_script_enabled=False)
        self.live.page.evaluate("window.isFirst = true")

    def await_health(self, heading: str, *texts: str):
        """Until the live one sees this. The other one sees it, too, then."""
        page = self.live.page
        expect(page.get_by_role("heading", name=heading)).to_be_visible(timeout=SOON_MS)
        for text in texts:
            expect(health(page)).to_contain_text(text, timeout=SOON_MS)
        assert page.evaluate("window.isFirst"), "the page was loaded anew"
        plain = self.renew_plain()
        expect(plain.get_by_role("heading", name=heading)).to_be_visible(timeout=1)
        for text in texts:
            expect(health(plain)).to_contain_text(text, timeout=1)

    def renew_plain(self) -> Page:
        self.plain.page.get_by_role("link", name="Load the figures anew").click()
        return self.plain.page


@pytest.fixture
def lookers(trouble_window):
    lookers = Lookers(trouble_window)
    lookers.await_health(WELL)
    return lookers


def follow_by_keyboard(person: Person, link: str, heading: str):
    """Goes from the overview to what a link leads to."""
    person.page.goto("/console")
    person.press_to(link)
    person.page.keyboard.press("Enter")
    expect(person.page.get_by_role("heading", level=1)).to_have_text(heading)


def worker_row(page: Page, name: str):
    return page.get_by_role("region", name="Workers").get_by_role("row", name=name)


def test_a_rail_that_goes_down_is_named_with_what_to_do(lookers, trouble, trouble_window):
    nodes = trouble_window(OPERATOR)
    nodes.see("Nodes")
    expect(worker_row(nodes.page, RAILED)).to_contain_text("2 of 2")
    ways = nodes.page.get_by_role("region", name="Rails and transports")
    rail = ways.get_by_role("row").filter(has_text=f"rail {RAIL}:1")
    expect(rail).to_contain_text("open")
    trouble.unplug(RAIL)
    lookers.await_health(
        UNWELL,
        f"1 of 2 rails of worker {RAILED} is down: {RAIL}:1.",
        "Its traffic goes another way meanwhile.",
        "Look at the cable and the switch's port, and run `verbs3 doctor` on that host",
    )
    expect(worker_row(nodes.page, RAILED)).to_contain_text("1 of 2")
    expect(rail).to_contain_text("not open")
    nodes.judge("nodes-rail-down")
    lookers.live.judge("rail-down")
    follow_by_keyboard(nodes, "Runbook: rails", "Rails")
    expect(nodes.page.get_by_role("main")).to_contain_text("cable, transceiver, switch port")
    nodes.judge("runbook-rails")
    lookers.renew_plain().get_by_role("link", name="Runbook: rails").click()
    expect(lookers.plain.page.get_by_role("heading", name="What to do")).to_be_visible()
    lookers.plain.see("Overview")
    trouble.plug_in(RAIL)
    lookers.await_health(WELL)


def test_a_hot_block_is_shown_with_those_who_serve_it(lookers, trouble, trouble_window):
    (key,) = trouble.fill("hot", 1)
    nodes = trouble_window(VIEWER)
    nodes.see("Nodes")

    def row(page: Page):
        return page.get_by_role("region", name="Hot blocks").get_by_role("row").filter(has_text=key)

    with trouble.reading(key):
        for see in (lambda: lookers.live.page, lookers.renew_plain):
            cells = row(see()).get_by_role("cell")
            expect(cells.nth(2)).to_have_text("2")
            expect(cells.nth(3)).to_contain_text("MiB/s")
        lookers.live.judge("hot")
        # Nothing else is held: both serve it.
        for name in (RAILED, OTHER):
            expect(worker_row(nodes.page, name)).to_contain_text("512 KiB of 64.0 MiB")
    quiet = "No block is read more than one worker should serve."
    expect(lookers.live.page.get_by_text(quiet)).to_be_visible()
    expect(lookers.renew_plain().get_by_text(quiet)).to_be_visible(timeout=1)


def test_a_job_whose_keys_the_store_lacks_shows_its_failures(lookers, trouble, trouble_window):
    trouble.fill("there", 2)
    jobs, plain = trouble_window(VIEWER), trouble_window(OPERATOR, java_script_enabled=False)
    jobs.see("Jobs")
    expect(jobs.page.get_by_text("There are no jobs.")).to_be_visible()
    missing = [f"s3://demo/gone/{number}.bin" for number in range(3)]
    plain.see("Jobs")
    plain.page.get_by_label("Load all below these prefixes").fill("s3://demo/there/")
    plain.page.get_by_label("Load these objects").fill("\n".join(missing))
    plain.page.get_by_label("Name (optional)").fill("lacking")
    plain.page.get_by_role("button", name="Begin").click()
    row = jobs.page.get_by_role("region", name="Jobs").get_by_role("row", name="lacking")
    expect(row).to_contain_text("incomplete")
    expect(row).to_contain_text("5 of 5 objects gone through, 3 failed")
    jobs.judge("jobs-failures")
    note = "One job of the last day ended without all that was asked for."
    expect(lookers.live.page.locator(".notes")).to_contain_text(note)
    # That is no reason to get up at night.
    lookers.await_health(WELL)
    lookers.live.judge("overview-job-failed")
    follow_by_keyboard(jobs, "See which, and why", "Jobs")
    jobs.press_to("lacking")
    jobs.page.keyboard.press("Enter")
    plain.page.get_by_role("link", name="Load the figures anew").click()
    for page in (jobs.page, plain.page):
        expect(page.get_by_role("heading", level=1)).to_have_text("Job lacking")
        failures = page.get_by_role("region", name="Failures")
        expect(failures).to_contain_text("What was not loaded, and is missing at the check, is named for each.")
        for path in missing:
            named = failures.get_by_role("listitem").filter(has_text=path)
            # By the load and by the check.
            expect(named).to_have_count(2)
            expect(named.first).to_contain_text("There is no such object.")
    jobs.judge("job-failures")
    plain.page.get_by_role("link", name="Runbook: preload jobs").click()
    expect(plain.page.get_by_role("heading", level=1)).to_have_text("Preload jobs")
    expect(plain.page.get_by_role("main")).to_contain_text("objects vanished")


def test_what_moves_to_a_worker_that_joins_is_shown(lookers, trouble, trouble_window):
    trouble.until_first_moves_are_over()
    keys = trouble.fill("moving", 24)
    nodes = trouble_window(VIEWER)
    nodes.see("Nodes")
    with trouble.reading(*keys):
        trouble.start_worker(JOINER)
        joins = re.compile(rf"Worker {JOINER} joins: it has (25|50|75) % of its share so far\.")
        expect(moves(lookers.live.page)).to_contain_text(joins)
        expect(moves(lookers.renew_plain())).to_contain_text(joins)
        expect(worker_row(nodes.page, JOINER)).to_contain_text(re.compile("(25|50|75) %"))
        lookers.live.judge("moves")
        nodes.judge("nodes-joining")
        expect(moves(lookers.live.page)).not_to_contain_text("joins")
    expect(worker_row(nodes.page, JOINER)).to_contain_text("100 %")
    lookers.await_health(WELL, "All 3 workers answer")
    moved = moves(lookers.live.page).locator("div", has_text="Moved between workers in the hour").locator("dd")
    expect(moved).to_have_text(re.compile(r"^[1-9][\d.]* [KM]iB$"))


def test_a_worker_that_is_gone_is_named_until_it_is_forgotten(lookers, trouble, trouble_window):
    trouble.worker(JOINER).signal(signal.SIGKILL)
    command = f"verbs3 worker forget {JOINER}"
    lookers.await_health(UNWELL, f"Worker {JOINER} at 127.0.0.1:", "and the others have its slots; start it again", command)
    nodes = trouble_window(VIEWER)
    nodes.see("Nodes")
    expect(worker_row(nodes.page, JOINER)).to_contain_text("missing")
    nodes.judge("nodes-worker-gone")
    lookers.live.judge("worker-gone")
    follow_by_keyboard(nodes, "Runbook: workers that are gone", "Workers and processes that are gone")
    # What the page says is done as it says it.
    trouble.ask(*command.split()[1:])
    lookers.await_health(WELL, "All 2 workers answer")


def test_a_drain_is_followed_until_the_worker_may_be_stopped(lookers, trouble, trouble_window):
    nodes = trouble_window(VIEWER)
    nodes.see("Nodes")
    trouble.ask("worker", "drain", OTHER)
    drained = re.compile(rf"Worker {OTHER} is being drained: it has (75|50|25) % of its share left\. Wait with stopping it\.")
    expect(moves(lookers.live.page)).to_contain_text(drained)
    expect(moves(lookers.renew_plain())).to_contain_text(drained)
    expect(worker_row(nodes.page, OTHER)).to_contain_text("draining")
    lookers.live.judge("drain")
    nodes.judge("nodes-draining")
    lookers.await_health(UNWELL, f"Worker {OTHER} owns nothing any more and may be stopped.")
    expect(worker_row(nodes.page, OTHER)).to_contain_text("drained")
    lookers.live.judge("drained")
    trouble.worker(OTHER).end()
    lookers.await_health(WELL, "The one worker answers")
    expect(worker_row(nodes.page, OTHER)).to_have_count(0)


def test_a_store_that_is_away_is_told_with_what_goes_on(lookers, trouble, trouble_window):
    (held,) = trouble.fill("held", 1)
    cold = trouble.fill("cold", 24)
    assert trouble.can_read(held)
    trouble.store.signal(signal.SIGKILL)
    # Its attributes are still believed.
    assert trouble.can_read(held)
    with trouble.reading(*cold):
        lookers.await_health(
            UNWELL,
            "A store failed so often that it is not asked at present by",
            "Cached objects can be read as long as their attributes are believed",
            "Look at the store, and at the way to it.",
        )
        lookers.live.judge("store-away")
        follow_by_keyboard(trouble_window(VIEWER), "Runbook: the object store", "The object store")
        trouble.until(lambda: not trouble.can_read(held), "what is cached is still read after attributes_ttl")
        trouble.start("store", trouble.store_words)
        trouble.until(lambda: trouble.can_read(held), "the store is back, and nothing is read")
        # That requests failed within the last minute may stand there for the rest of it.
        expect(lookers.live.page.get_by_role("main")).not_to_contain_text("not asked at present", timeout=SOON_MS)
