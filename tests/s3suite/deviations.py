"""Owns the expected deviations: where a store's answer is known to differ from S3, with the value seen there.

S3_STORE=rgw reads rgw.toml. Directly at the store (S3_VIA unset) only the observed value passes, so that a deviation
that is gone is noticed. Behind a gateway (S3_VIA=gateway) S3's own answer passes as well: the gateway may be stricter
than its store, and compare.py holds it to name where.
"""

import os
import tomllib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Deviation:
    case: str
    check: str
    observed: str
    reason: str


def load() -> list[Deviation]:
    store = os.environ.get("S3_STORE")
    if not store:
        return []
    path = Path(__file__).with_name(f"{store}.toml")
    if not path.exists():
        raise SystemExit(f"S3_STORE={store}: no {path}; leave S3_STORE unset for a store without known deviations")
    return [Deviation(**entry) for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("deviation", [])]


def refuse_unknown(known: list[Deviation], whole_files: set[str], cases: set[str]) -> None:
    for entry in known:
        if entry.case.split("::")[0] in whole_files and entry.case not in cases:
            raise SystemExit(f"deviation for a case that does not exist: {entry.case}; rename or remove it")


class Checker:
    """The checks of one case."""

    def __init__(self, case: str, known: list[Deviation]):
        self.case = case
        self.known = {entry.check: entry for entry in known if entry.case == case}
        self.used: set[str] = set()
        self.behind_gateway = os.environ.get("S3_VIA") == "gateway"

    def check(self, label: str, actual, wanted) -> None:
        right = actual in wanted if isinstance(wanted, (set, frozenset)) else actual == wanted
        entry = self.known.get(label)
        if entry is None:
            assert right, f"[{label}] S3 says {wanted!r}, got {actual!r}"
            return
        self.used.add(label)
        if right and self.behind_gateway:
            return
        assert str(actual) == entry.observed, (
            f"[{label}] got {actual!r}; S3 says {wanted!r}, and the expected deviation is {entry.observed!r} ({entry.reason})")

    def refuse_unused(self) -> None:
        unused = set(self.known) - self.used
        assert not unused, f"{self.case}: expected deviations whose check never ran: {sorted(unused)}"
