"""docs/attacks.md names every case of this suite, and no other; what it says of known defects is what is marked so here."""

import re
from pathlib import Path

HERE = Path(__file__).resolve().parent
# They try the suite itself, and attack nothing.
OWN_CASES = ("test_document.py", "test_honest.py")
DOCUMENT = (HERE.parents[1] / "docs" / "attacks.md").read_text()


def cases() -> dict[str, bool]:
    """Name of each case, and whether it is expected to fail."""
    found = {}
    for file in sorted(HERE.glob("test_*.py")):
        if file.name in OWN_CASES:
            continue
        for marks, name in re.findall(r"((?:^@.*\n(?:[ )].*\n)*)*)^def (test_\w+)\(", file.read_text(), re.MULTILINE):
            found[name] = "xfail" in marks
    return found


def test_the_document_and_this_suite_name_the_same_cases():
    named = set(re.findall(r"`(test_\w+)`", DOCUMENT))
    assert named == set(cases())


def test_the_document_says_which_cases_show_a_defect():
    rows = [line for line in DOCUMENT.splitlines() if line.startswith("| ") and "`test_" in line]
    for name, fails in cases().items():
        row = next(line for line in rows if f"`{name}`" in line)
        assert ("**defect**" in row or "**gap**" in row) is fails, row
