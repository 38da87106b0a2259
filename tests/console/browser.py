"""Owns Chromium: a window for each person, and what every page has to keep. Knows no cluster."""

import json
import os
import re
from pathlib import Path

from playwright.sync_api import Browser, Page, expect

CHROMIUM = "chromium-headless-shell"
WAIT_MS = 120_000
expect.set_options(timeout=WAIT_MS)
# Rules of axe that are judged: WCAG 2.2 up to level AA, and axe's own best practices.
AXE_TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]


class Person:
    """A window, and all that the browser says in it."""

    def __init__(self, browser: Browser, url: str, **options):
        self.url = url
        self.context = browser.new_context(base_url=url, **{"viewport": {"width": 1200, "height": 900}, **options})
        self.context.set_default_timeout(WAIT_MS)
        self.page: Page = self.context.new_page()
        self.complaints: list[str] = []
        # Answers that a test asks for on purpose: the browser mentions their status, too.
        self.statuses_expected: set[int] = set()
        self.page.on("console", self.hear)
        self.page.on("pageerror", lambda error: self.complaints.append(f"script: {error}"))
        self.page.on("dialog", lambda dialog: (self.complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        self.page.on("request", self.watch_request)

    def hear(self, message):
        status = re.search(r"responded with a status of (\d+)", message.text)
        if message.type in ("error", "warning") and not (status and int(status[1]) in self.statuses_expected):
            self.complaints.append(f"{message.type}: {message.text}")

    def watch_request(self, request):
        if not request.url.startswith(f"{self.url}/console"):
            self.complaints.append(f"asked elsewhere: {request.url}")

    def sign_in(self, name: str, password: str):
        self.page.goto("/console")
        expect(self.page).to_have_url(f"{self.url}/console/sign-in")
        self.page.get_by_label("Name").fill(name)
        self.page.get_by_label("Password").fill(password)
        self.page.get_by_role("button", name="Sign in").click()

    def see(self, tab: str):
        self.page.get_by_role("navigation").get_by_role("link", name=tab, exact=True).click()
        expect(self.page.get_by_role("heading", level=1)).to_have_text(tab)

    def screenshot(self, name: str):
        folder = Path(os.environ["CONSOLE_DIR"]) / "screenshots"
        self.page.screenshot(path=folder / f"{name}.png", full_page=True)

    def judge(self, name: str):
        """Holds a page against axe, in light and dark, and narrow: and keeps pictures of it."""
        axe = (Path(os.environ["CONSOLE_NODE"]) / "node_modules/axe-core/axe.min.js").read_text()
        self.page.evaluate(axe)
        # A page that is drawn anew under axe has headings that it can't find any more. Hidden pages stand still.
        self.page.evaluate("Object.defineProperty(document, 'hidden', { get: () => true, configurable: true })")
        self.page.wait_for_load_state("networkidle")
        for scheme in ("light", "dark"):
            self.page.emulate_media(color_scheme=scheme)
            found = self.page.evaluate(
                "tags => axe.run({ runOnly: tags }).then(result => ({ rules: result.passes.map(rule => rule.id), flaws: "
                "result.violations.concat(result.incomplete).map(rule => [rule.id, rule.nodes.map(node => node.html + "
                "' ' + (node.any[0] || {}).message)]) }))",
                AXE_TAGS,
            )
            assert "color-contrast" in found["rules"], "no contrast was measured"
            assert not found["flaws"], f"{name}, {scheme}: {json.dumps(found['flaws'], indent=1)}"
            self.screenshot(f"{name}-{scheme}")
        self.page.evaluate("delete document.hidden")
        self.page.emulate_media(color_scheme="light")
        wide = self.page.viewport_size
        self.page.set_viewport_size({"width": 360, "height": 740})
        overflow = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        self.screenshot(f"{name}-narrow")
        self.page.set_viewport_size(wide)
        assert overflow <= 0, f"{name} is {overflow} pixels too wide for a telephone"

    def press_to(self, label: str, most: int = 60) -> list[str]:
        """Presses Tab until what is called so has the focus. Returns what had it on the way."""
        passed = []
        for _ in range(most):
            self.page.keyboard.press("Tab")
            # Past the last one, the browser's own bar has it; that is the page's body here.
            name, is_seen = self.page.evaluate(
                "() => { const at = document.activeElement; if (at === document.body) return ['', true]; const style = getComputedStyle(at); const box = "
                "at.getBoundingClientRect(); return [(at.labels && at.labels[0] || at).textContent.trim() || "
                "at.getAttribute('aria-label'), style.outlineStyle !== 'none' && box.width > 0 && box.right > 0] }"
            )
            passed.append(name)
            assert is_seen, f"nobody sees where the keyboard is: {name}"
            if name == label:
                return passed
        raise AssertionError(f"{label} can't be reached by Tab: {passed}")

    def end(self):
        complaints, self.complaints = self.complaints, []
        self.context.close()
        assert not complaints, complaints
