"""Owns what is kept of an answer, so that two runs of a case can be compared: the JSON lines of S3_RECORD.

Takes out what differs between any two runs (request ids, dates, bucket names, upload and version ids, addresses) and
nothing else: dates leave their format behind, ids a number by order of appearance. Judges nothing: compare.py does.
"""

import hashlib
import json
import os
import re
import xml.etree.ElementTree as ElementTree

# The outcome of a case that was left out because the store would end (deviations.py).
NOT_ASKED = "not asked"
# Per request or per connection, or about the server's software: no client depends on them.
HEADERS_DROPPED = {
    "date", "connection", "keep-alive", "server", "x-amz-request-id", "x-amz-id-2", "transfer-encoding",
}
# The gateway's own remarks on how it found the bytes (x-verbs3-cache and the like).
HEADER_PREFIX_DROPPED = "x-verbs3-"
XML_DROPPED = {"RequestId", "HostId"}
XML_IDS = {"UploadId": "upload", "VersionId": "version", "NextVersionIdMarker": "version", "VersionIdMarker": "version",
           "DeleteMarkerVersionId": "version", "UploadIdMarker": "upload", "NextUploadIdMarker": "upload"}
HEADER_IDS = {"x-amz-version-id": "version", "x-amz-copy-source-version-id": "version"}
XML_OPAQUE = {"ContinuationToken", "NextContinuationToken"}
HTTP_DATE = re.compile(r"(Mon|Tue|Wed|Thu|Fri|Sat|Sun), \d\d (Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec) \d{4} \d\d:\d\d:\d\d GMT")
ISO_DATE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d")


def start() -> None:
    """A run's record begins empty."""
    if path := os.environ.get("S3_RECORD"):
        open(path, "w", encoding="utf-8").close()


def write(lines: list[dict]) -> None:
    if path := os.environ.get("S3_RECORD"):
        with open(path, "a", encoding="utf-8") as out:
            out.writelines(json.dumps(line, sort_keys=True) + "\n" for line in lines)


class Recorder:
    """The record of one case. Steps are numbered in the order of the calls."""

    def __init__(self, case: str, addresses: list[str]):
        self.case = case
        self.lines: list[dict] = []
        self.names: dict[str, str] = {address: "<endpoint>" for address in addresses}
        self.counts: dict[str, int] = {}

    def name(self, kind: str, value: str) -> None:
        """From now on VALUE is written as <kind N>."""
        if value and value != "null" and value not in self.names:
            self.counts[kind] = self.counts.get(kind, 0) + 1
            self.names[value] = f"<{kind} {self.counts[kind]}>"

    def step(self, operation: str) -> str:
        return f"{len(self.lines) + 1:02d} {operation}"

    def answer(self, operation: str, status: int, headers: list[tuple[str, str]], body: bytes | None) -> str:
        """Notes one HTTP answer; returns the step's name. BODY None: the operation has none (HEAD)."""
        step = self.step(operation)
        lower = [(name.lower(), value) for name, value in headers]
        for name, value in lower:
            if name in HEADER_IDS:
                self.name(HEADER_IDS[name], value)
        content_type = dict(lower).get("content-type", "")
        tree = xml(body) if body and "xml" in content_type else None
        if tree is not None:
            self.learn(tree)
        line = {"case": self.case, "step": step, "status": status, "code": error_code(tree),
                "headers": self.headers(lower, status, tree is not None), "body": self.body(tree, body)}
        self.lines.append(line)
        return step

    def observe(self, label: str, value) -> str:
        """Notes anything else that JSON can hold: a count, a list of keys, a digest."""
        step = self.step(label)
        self.lines.append({"case": self.case, "step": step, "value": self.clean(value)})
        return step

    def learn(self, element) -> None:
        for child in element.iter():
            if tag(child) in XML_IDS and child.text:
                self.name(XML_IDS[tag(child)], child.text)

    def headers(self, lower: list[tuple[str, str]], status: int, is_xml: bool) -> dict:
        kept: dict[str, str] = {}
        for name, value in sorted(lower):
            # The length of XML (of an error's, for HEAD) follows from ids in it, that of an empty answer from the library.
            if name == "content-length" and (is_xml or status == 204 or status >= 300):
                continue
            if name == "accept-ranges" and status >= 300:  # RGW says it with every error, S3 only where there are ranges.
                continue
            if name in HEADERS_DROPPED or name.startswith(HEADER_PREFIX_DROPPED):
                continue
            value = self.clean(HTTP_DATE.sub("<http-date>", value))
            kept[name] = f"{kept[name]} | {value}" if name in kept else value
        return kept

    def body(self, tree, body: bytes | None):
        if body is None:
            return None
        if tree is not None:
            return {tag(tree): self.tree(tree)}
        if body[:1] in (b"{", b"<"):  # A policy, or XML that isn't said to be any: bucket names stand in it.
            body = self.clean(body.decode(errors="surrogateescape")).encode(errors="surrogateescape")
        return {"bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}

    def tree(self, element):
        """Nested dicts; repeated elements keep their order, different ones are free to change places."""
        children = [child for child in element if tag(child) not in XML_DROPPED]
        if not children:
            text = element.text or ""
            if tag(element) in XML_OPAQUE:
                return "<token>"
            return self.clean(re.sub(r"\d", "d", text) if ISO_DATE.match(text) else text)
        found: dict[str, list] = {}
        for child in children:
            found.setdefault(tag(child), []).append(self.tree(child))
        if tag(element) == "DeleteResult":
            # S3 promises no order here, and RGW keeps none.
            return {name: sorted(entries, key=lambda entry: json.dumps(entry, sort_keys=True)) for name, entries in found.items()}
        return found

    def clean(self, value):
        if isinstance(value, str):
            for literal in sorted(self.names, key=len, reverse=True):
                value = value.replace(literal, self.names[literal])
            return value
        if isinstance(value, (list, tuple)):
            return [self.clean(item) for item in value]
        if isinstance(value, dict):
            return {self.clean(str(key)): self.clean(item) for key, item in value.items()}
        if isinstance(value, bytes):
            return {"bytes": len(value), "sha256": hashlib.sha256(value).hexdigest()}
        return value

    def write(self, outcome: str) -> None:
        write(self.lines + [{"case": self.case, "step": "outcome", "value": outcome}])


def tag(element) -> str:
    return element.tag.rsplit("}", 1)[-1]


def xml(body: bytes):
    try:
        return ElementTree.fromstring(body)
    except ElementTree.ParseError:
        return None


def error_code(tree) -> str | None:
    if tree is None or tag(tree) != "Error":
        return None
    return next((child.text for child in tree if tag(child) == "Code"), None)
