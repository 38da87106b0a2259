"""Owns the comparison of two records of the suite: A straight from the store, B through the gateway.

    compare.py A.jsonl B.jsonl [--allowed FILE]

Prints every difference. Exit 1 if one is not in allowed_differences.toml, or if an entry there matches none any more.
An entry: `case`, `step`, `path` (shell patterns, each default "*"), `direct`, `through` (patterns of the two values,
default "*"), `cases` (optional: the exact number of cases it covers), `stores` (optional: behind these alone) and `reason`.
"""

import argparse
import fnmatch
import json
import sys
import tomllib
from dataclasses import dataclass, field
from pathlib import Path

ABSENT = "<absent>"


@dataclass(frozen=True)
class Difference:
    case: str
    step: str
    path: str
    direct: str
    through: str

    def __str__(self) -> str:
        return f"{self.case} · {self.step} · {self.path}: {self.direct} → {self.through}"


@dataclass
class Allowed:
    """One entry of the list. Brackets in patterns are literal: case names are full of them."""

    reason: str
    case: str = "*"
    step: str = "*"
    path: str = "*"
    direct: str = "*"
    through: str = "*"
    cases: int | None = None
    stores: tuple[str, ...] = ()
    seen: set[str] = field(default_factory=set)

    def covers(self, found: Difference) -> bool:
        return all(match(getattr(found, name), getattr(self, name)) for name in ("case", "step", "path", "direct", "through"))


def match(text: str, pattern: str) -> bool:
    return fnmatch.fnmatchcase(text, pattern.replace("[", "[[]"))


def allowed(path: Path) -> list[Allowed]:
    return [Allowed(**entry) for entry in tomllib.loads(path.read_text(encoding="utf-8")).get("allowed", [])]


def load(path: str) -> dict[str, dict[str, dict]]:
    """case → step → line."""
    cases: dict[str, dict[str, dict]] = {}
    for line in Path(path).read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        cases.setdefault(entry.pop("case"), {})[entry.pop("step")] = entry
    return cases


def not_asked(steps: dict) -> bool:
    """Left out at the store, because it would end the store's process; see deviations.py."""
    return str(steps.get("outcome", {}).get("value", "")).startswith("not asked")


def flatten(value, path: str = "") -> dict[str, str]:
    """Leaves by path: headers.etag, body.Error.Code[0]."""
    if isinstance(value, dict) and value:
        return {name: leaf for key, item in value.items() for name, leaf in flatten(item, f"{path}.{key}" if path else key).items()}
    if isinstance(value, list) and value:
        return {name: leaf for at, item in enumerate(value) for name, leaf in flatten(item, f"{path}[{at}]").items()}
    return {path: json.dumps(value)}


def differences(direct: dict, through: dict):
    for case in sorted(direct.keys() | through.keys()):
        if not_asked(direct.get(case, {})):
            print(f"not asked  {case}: {direct[case]['outcome']['value']}")
            continue
        if case not in direct or case not in through:
            yield Difference(case, "*", "case", *(ABSENT if case not in side else "present" for side in (direct, through)))
            continue
        for step in sorted(direct[case].keys() | through[case].keys()):
            a, b = direct[case].get(step), through[case].get(step)
            if a is None or b is None:
                yield Difference(case, step, "step", *(ABSENT if side is None else "present" for side in (a, b)))
                continue
            flat_a, flat_b = flatten(a), flatten(b)
            for path in sorted(flat_a.keys() | flat_b.keys()):
                left, right = flat_a.get(path, ABSENT), flat_b.get(path, ABSENT)
                if left != right:
                    yield Difference(case, step, path, left, right)


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare two records of the S3 suite, case by case.")
    parser.add_argument("direct")
    parser.add_argument("through")
    parser.add_argument("--verbose", action="store_true", help="print the allowed differences too")
    parser.add_argument("--store", default="rgw", help="what was asked directly")
    parser.add_argument("--allowed", default=str(Path(__file__).with_name("allowed_differences.toml")))
    options = parser.parse_args()
    listed = [entry for entry in allowed(Path(options.allowed)) if not entry.stores or options.store in entry.stores]
    direct, through = load(options.direct), load(options.through)
    if not direct or not through:
        print("an empty record: run the suite with S3_RECORD=FILE first")
        return 1
    allowed_count, failures = 0, []
    for found in differences(direct, through):
        entries = [entry for entry in listed if entry.covers(found)]
        for entry in entries:
            entry.seen.add(found.case)
        allowed_count += bool(entries)
        if entries and options.verbose:
            print(f"allowed  {found}  ({entries[0].reason})")
        elif not entries:
            print(f"DIFFERS  {found}")
        if not entries:
            failures.append(found)
    stale = [entry for entry in listed if not entry.seen or entry.cases not in (None, len(entry.seen))]
    for entry in stale:
        print(f"STALE    allowed entry covers {len(entry.seen)} cases (wanted {entry.cases or 'some'}): {entry.case} · {entry.step} · {entry.path} ({entry.reason})")
    print(f"{len(direct)} cases direct, {len(through)} through: {len(failures)} differences, {allowed_count} allowed, {len(stale)} stale entries")
    return 1 if failures or stale else 0


if __name__ == "__main__":
    sys.exit(main())
