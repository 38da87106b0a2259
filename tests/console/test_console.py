"""What operators do with the console, in Chromium."""

import re
import signal
import time

from browser import Person
from cluster import HOSTILE_KEY, OBJECTS, OPERATOR, PASSWORD, VIEWER
from playwright.sync_api import expect


def figure(page, name: str):
    return page.locator(".tile", has=page.get_by_role("heading", name=name)).locator(".figure")


def fact(page, name: str):
    return page.locator("dl.facts > div", has=page.get_by_text(name, exact=True)).locator("dd")


def test_strangers_see_a_sign_in_and_wrong_passwords_are_refused(window):
    person = window()
    page = person.page
    for path in ("/console", "/console/nodes", "/console/jobs", "/console/object?path=s3://demo/k", "/console/tenants"):
        page.goto(path)
        expect(page).to_have_url(re.compile("/console/sign-in$"))
        assert "training" not in page.content(), "strangers are not told the cluster's name"
    person.judge("sign-in")
    person.statuses_expected = {401}
    person.sign_in(OPERATOR, "a wrong password")
    expect(page.get_by_role("alert")).to_have_text("Name or password is wrong.")
    person.screenshot("sign-in-refused")
    person.sign_in("nobody-here", PASSWORD)
    expect(page.get_by_role("alert")).to_have_text("Name or password is wrong.")
    page.goto("/console")
    expect(page).to_have_url(re.compile("/console/sign-in$"))


def test_the_overview_shows_the_cluster_and_renews_itself(window, cluster):
    person = window(OPERATOR)
    page = person.page
    expect(page.get_by_role("heading", name="The cluster is well")).to_be_visible()
    # 25 objects of half a MiB, twice.
    expect(figure(page, "Sent to clients")).to_have_text("25.0 MiB")
    expect(figure(page, "Hit ratio")).to_have_text("50.0 %")
    expect(page.get_by_text("From 1 gateway and 2 workers")).to_be_visible()
    # Of requests and of the store.
    latencies = page.get_by_role("region", name="Latency").get_by_role("row")
    expect(latencies.nth(1).get_by_role("cell").first).to_have_text(re.compile(r"µs|ms| s$"))
    expect(page.locator("#live-state")).to_have_text("Live")
    person.judge("overview")
    cluster.read("set/000.bin")
    cluster.read("set/001.bin")
    expect(figure(page, "Sent to clients")).to_have_text("26.0 MiB")
    page.get_by_role("button", name="Pause").click()
    expect(page.locator("#live-state")).to_contain_text("stand still")


def test_figures_are_called_old_while_the_coordinator_is_silent(window, cluster):
    person = window(VIEWER)
    page = person.page
    expect(page.locator("#live-state")).to_have_text("Live")
    cluster.coordinator.signal(signal.SIGSTOP)
    try:
        expect(page.locator("#live-state")).to_contain_text("These figures are old")
        # What was well then may not be so now, so it is not green.
        expect(page.locator("#live")).to_have_class("old")
        person.screenshot("coordinator-silent")
    finally:
        cluster.coordinator.signal(signal.SIGCONT)
    expect(page.locator("#live-state")).to_have_text("Live")
    expect(page.locator("#live")).not_to_have_class("old")


def test_nodes_show_gateway_worker_and_their_transports(window, cluster):
    person = window(VIEWER)
    page = person.page
    person.see("Nodes")
    worker = page.get_by_role("region", name="Workers").get_by_role("row", name="gpu-01")
    expect(worker).to_contain_text("serving")
    expect(worker).to_contain_text("of 64.0 MiB")
    expect(worker).to_contain_text("rack-1")
    gateway = page.get_by_role("region", name="Gateways").get_by_role("row", name=f":{cluster.gateway_port}")
    expect(gateway).to_contain_text("s ago")
    ways = page.get_by_role("region", name="Rails and transports")
    expect(ways.get_by_role("row", name="gpu-01").first).to_contain_text(re.compile("shm|tcp"))
    person.judge("nodes")
    person.see("Tenants")
    expect(page.get_by_role("main").get_by_role("row").nth(1)).to_contain_text("MiB")
    person.judge("tenants")


def test_a_job_is_begun_and_its_failures_are_named(window):
    person = window(OPERATOR)
    page = person.page
    person.see("Jobs")
    person.judge("jobs-empty")
    page.get_by_label("Load all below these prefixes").fill("s3://demo/set/\n")
    page.get_by_label("Load these objects").fill("s3://demo/is/not/there.bin")
    page.get_by_label("Name (optional)").fill("night-22")
    page.get_by_role("button", name="Begin").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Job night-22")
    expect(page.locator("#live .chip").first).to_have_text("incomplete")
    expect(fact(page, "Objects")).to_have_text(str(OBJECTS + 2))
    failures = page.get_by_role("region", name="Failures")
    expect(failures).to_contain_text("s3://demo/is/not/there.bin")
    person.judge("job-incomplete")
    person.see("Jobs")
    expect(page.get_by_role("region", name="Jobs").get_by_role("row", name="night-22")).to_contain_text("incomplete")
    person.judge("jobs")
    person.statuses_expected = {400}
    page.get_by_label("Load these objects").fill("<b>no path</b>")
    page.get_by_role("button", name="Begin").click()
    expect(page.get_by_role("alert")).to_contain_text("<b>no path</b>")
    expect(page.get_by_label("Load these objects")).to_have_value("<b>no path</b>")
    person.screenshot("job-refused")


def test_a_job_is_watched_and_stopped(window, cluster):
    cluster.begin_slow_job("slow-1")
    viewer, operator = window(VIEWER), window(OPERATOR)
    for person in (viewer, operator):
        person.see("Jobs")
        person.page.get_by_role("link", name="slow-1").click()
        expect(person.page.locator("#live .chip").first).to_have_text(re.compile("counts|loads"))
    expect(viewer.page.get_by_role("button", name="Stop this job")).to_have_count(0)
    expect(operator.page.locator("#live .chip").first).to_have_text("loads")
    operator.judge("job-running")
    operator.page.get_by_role("button", name="Stop this job").click()
    expect(operator.page.locator("#live .chip").first).to_have_text("stopped")
    # The page of whoever looks on goes on by itself.
    expect(viewer.page.locator("#live .chip").first).to_have_text("stopped")


def test_who_may_only_look_finds_no_form_and_forges_none(window):
    person = window(VIEWER)
    page = person.page
    expect(page.locator(".who .chip")).to_have_text("viewer")
    person.see("Jobs")
    assert page.locator("main form").count() == 0
    person.screenshot("jobs-viewer")
    token = page.locator("input[name=form_token]").first.get_attribute("value")
    person.statuses_expected = {403}
    statuses = page.evaluate(
        "async token => { const answers = []; for (const [path, given] of [['/console/jobs', token], "
        "['/console/jobs/slow-1/stop', token], ['/console/jobs', 'forged']]) { const body = new URLSearchParams({ "
        "form_token: given, paths: 's3://demo/set/000.bin' }); answers.push((await fetch(path, { method: 'POST', body "
        "})).status) } return answers }",
        token,
    )
    assert statuses == [403, 403, 403]


def test_an_object_is_looked_up_whatever_it_is_called(window):
    person = window(VIEWER)
    page = person.page
    person.see("Objects")
    page.get_by_label("Object", exact=True).fill(f"s3://demo/{HOSTILE_KEY}")
    page.get_by_role("button", name="Look up").click()
    expect(page.get_by_role("heading", level=2)).to_have_text(f"s3://demo/{HOSTILE_KEY}")
    expect(fact(page, "Length")).to_have_text("512 KiB")
    expect(page.get_by_role("region", name="Blocks")).to_contain_text(re.compile(r"gpu-0\d: 512 KiB in memory"))
    expect(page.get_by_label("Object", exact=True)).to_have_value(f"s3://demo/{HOSTILE_KEY}")
    person.judge("object")
    page.get_by_label("Object", exact=True).fill("s3://demo/not/there")
    page.get_by_role("button", name="Look up").click()
    expect(page.get_by_role("alert")).to_be_visible()
    person.screenshot("object-missing")


def test_all_is_done_without_javascript(window):
    person = window(OPERATOR, java_script_enabled=False)
    page = person.page
    expect(page.get_by_role("heading", name="The cluster is well")).to_be_visible()
    expect(figure(page, "Sent to clients")).to_have_text(re.compile("MiB"))
    page.get_by_role("link", name="Load the figures anew").click()
    expect(page.get_by_text(re.compile(r"As of \d\d:\d\d:\d\d UTC"))).to_be_visible()
    expect(page.get_by_role("button", name="Pause")).to_be_hidden()
    person.screenshot("overview-without-javascript")
    person.see("Nodes")
    expect(page.get_by_role("region", name="Workers")).to_contain_text("gpu-01")
    person.see("Objects")
    page.get_by_label("Object", exact=True).fill("s3://demo/set/000.bin")
    page.get_by_role("button", name="Look up").click()
    expect(page.get_by_role("region", name="Blocks")).to_contain_text("gpu-0")
    person.see("Jobs")
    page.get_by_label("Load all below these prefixes").fill("s3://demo/set/")
    page.get_by_label("Name (optional)").fill("plain-1")
    page.get_by_role("button", name="Begin").click()
    expect(page.get_by_role("heading", level=1)).to_have_text("Job plain-1")
    for _ in range(50):
        if page.get_by_text("done", exact=True).count():
            break
        time.sleep(0.1)
        page.get_by_role("link", name="Load the figures anew").click()
    expect(page.get_by_text("done", exact=True)).to_be_visible()
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_url(re.compile("/console/sign-in$"))


def test_the_keyboard_reaches_everything_in_page_order(window):
    person = window()
    page = person.page
    page.goto("/console")
    # The first field has the focus from the beginning.
    expect(page.get_by_label("Name")).to_be_focused()
    page.keyboard.type(OPERATOR)
    person.press_to("Password", most=1)
    page.keyboard.type(PASSWORD)
    person.press_to("Sign in", most=1)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="The cluster is well")).to_be_visible()
    way = person.press_to("Tenants")
    assert way == ["Skip to content", "Sign out", "Overview", "Nodes", "Jobs", "Objects", "Tenants"]
    page.goto("/console/jobs")
    person.press_to("Skip to content")
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    way = person.press_to("Begin")
    fields = ["Load all below these prefixes", "Load these objects", "Name (optional)", "Into", "Priority"]
    assert [name for name in way if name in fields] == fields
    person.press_to("Skip to content")
    person.press_to("Sign out", most=1)
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile("/console/sign-in$"))
    page.goto("/console/jobs")
    expect(page).to_have_url(re.compile("/console/sign-in$"))


def test_over_tls_cookies_are_bound_to_the_host(browser, cluster):
    person = Person(browser, cluster.start_tls_coordinator(), ignore_https_errors=True)
    person.sign_in(VIEWER, PASSWORD)
    # No worker knows this one.
    expect(person.page.get_by_role("heading", level=1)).to_have_text("Overview")
    (cookie,) = person.context.cookies()
    assert cookie["name"] == "__Host-verbs3-console"
    assert (cookie["secure"], cookie["httpOnly"], cookie["sameSite"]) == (True, True, "Strict")
    assert person.page.evaluate("document.cookie") == ""
    person.page.get_by_role("button", name="Sign out").click()
    expect(person.page).to_have_url(re.compile("/console/sign-in$"))
    assert [cookie["name"] for cookie in person.context.cookies()] == ["__Host-verbs3-console-form"]
    person.end()


def test_what_does_not_answer_any_more_is_said(window, cluster):
    """The last one: it kills the gateway."""
    person = window(OPERATOR)
    page = person.page
    cluster.gateway.signal(signal.SIGKILL)
    expect(page.get_by_role("heading", name="Something is to be done")).to_be_visible(timeout=40_000)
    expect(page.locator(".health")).to_contain_text(f":{cluster.gateway_port} has said nothing of its work for")
    expect(page.get_by_text("From 0 gateways and 2 workers; 1 is silent")).to_be_visible()
    person.judge("gateway-silent")
    person.see("Nodes")
    expect(page.get_by_role("region", name="Gateways")).to_contain_text("silent for")
    person.screenshot("nodes-silent")
