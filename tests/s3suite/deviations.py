"""Owns the expected deviations: where a store's answer is known to differ from S3, with the value seen there.

S3_STORE=rgw reads rgw.toml; S3_LEARN=FILE writes entries for a new one instead of failing. Directly at the store (S3_VIA unset) only the observed value passes, so that a deviation
that is gone is noticed. Behind a gateway (S3_VIA=gateway) S3's own answer passes as well: the gateway may be stricter
than its store, and compare.py holds it to name where. gateway.toml then says where the gateway itself differs from S3:
its entries stand in for the store's on the same check, and only the observed value passes.
"""

import json
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
    of_gateway: bool = False
    # Behind these stores; all, if it names none.
    stores: tuple[str, ...] = ()


@dataclass(frozen=True)
class Crash:
    """A case that ends the store's process: only asked behind a gateway, which has to keep it from the store."""

    case: str
    reason: str


@dataclass(frozen=True)
class Known:
    deviations: list[Deviation]
    crashes: list[Crash]


def behind_gateway() -> bool:
    return os.environ.get("S3_VIA") == "gateway"


def load() -> Known:
    store = os.environ.get("S3_STORE")
    known = read(store) if store else Known([], [])
    if not behind_gateway():
        return known
    gateways = [entry for entry in read("gateway", of_gateway=True).deviations if not entry.stores or store in entry.stores]
    replaced = {(entry.case, entry.check) for entry in gateways}
    return Known([entry for entry in known.deviations if (entry.case, entry.check) not in replaced] + gateways, known.crashes)


def read(name: str, of_gateway: bool = False) -> Known:
    path = Path(__file__).with_name(f"{name}.toml")
    if not path.exists():
        raise SystemExit(f"S3_STORE={name}: no {path}; leave S3_STORE unset for a store without known deviations")
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    known = Known([Deviation(**entry, of_gateway=of_gateway) for entry in content.get("deviation", [])],
                  [Crash(**entry) for entry in content.get("crash", [])])
    for entry in known.deviations + known.crashes:
        if not entry.reason.strip():
            raise SystemExit(f"{path.name}: the entry for {entry.case} has no reason: say why it is so")
    return known


def refuse_unknown(known: Known, whole_files: set[str], cases: set[str]) -> None:
    for entry in known.deviations + known.crashes:
        if entry.case.split("::")[0] in whole_files and entry.case not in cases:
            raise SystemExit(f"an entry for a case that does not exist: {entry.case}; rename or remove it")


class Checker:
    """The checks of one case."""

    def __init__(self, case: str, known: Known):
        self.case = case
        self.known = {entry.check: entry for entry in known.deviations if entry.case == case}
        self.used: set[str] = set()
        self.learn_to = os.environ.get("S3_LEARN")
        self.behind_gateway = behind_gateway()

    def check(self, label: str, actual, wanted) -> None:
        right = actual in wanted if isinstance(wanted, (set, frozenset)) else actual == wanted
        entry = self.known.get(label)
        if entry is None:
            if not right and self.learn_to:
                self.learn(label, actual, wanted)
                return
            assert right, f"[{label}] S3 says {wanted!r}, got {actual!r}"
            return
        self.used.add(label)
        if right and self.behind_gateway and not entry.of_gateway:
            return
        assert str(actual) == entry.observed, (
            f"[{label}] got {actual!r}; S3 says {wanted!r}, and the expected deviation is {entry.observed!r} ({entry.reason})")

    def learn(self, label: str, actual, wanted) -> None:
        """Writes an entry for a store that is new to the suite; its reason is for a person to find and fill in."""
        with open(self.learn_to, "a", encoding="utf-8") as out:
            fields = {"case": self.case, "check": label, "observed": str(actual), "reason": ""}
            out.write("[[deviation]]\n" + "".join(f"{name} = {json.dumps(value)}\n" for name, value in fields.items()))
            out.write(f"# S3: {wanted!r}\n\n")

    def refuse_unused(self) -> None:
        unused = set(self.known) - self.used
        assert not unused, f"{self.case}: expected deviations whose check never ran: {sorted(unused)}"
