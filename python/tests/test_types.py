"""The package and what users write against it, before a strict type checker."""

import importlib.metadata
import subprocess
import sys
from pathlib import Path

import verbs3

HERE = Path(__file__).resolve().parent
CONFIGURATION = """
[mypy]
strict = True
python_version = {version}
[mypy-boto3.*,botocore.*,fsspec.*,pyarrow.*,torch.*,tqdm.*]
ignore_missing_imports = True
follow_imports = skip
"""


def check(tmp_path, *paths, version="3.11"):
    (tmp_path / "mypy.ini").write_text(CONFIGURATION.format(version=version))
    command = [sys.executable, "-m", "mypy", "--config-file", str(tmp_path / "mypy.ini"), "--cache-dir", str(tmp_path / "cache"), *map(str, paths)]
    return subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)


def test_the_package_is_typed_throughout(tmp_path):
    # The oldest that it serves.
    checked = check(tmp_path, "-p", "verbs3", version="3.10")
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_users_see_the_types(tmp_path):
    """Not only is it accepted: where the types were not seen, its `assert_type` and unused ignores would fail."""
    checked = check(tmp_path, HERE / "typed/public_surface.py")
    assert checked.returncode == 0, checked.stdout + checked.stderr
    wrong = (HERE / "typed/public_surface.py").read_text().replace("  # type: ignore[call-overload]", "")
    (tmp_path / "wrong.py").write_text(wrong)
    assert check(tmp_path, tmp_path / "wrong.py").stdout.count("No overload variant") == 4


def test_the_package_says_that_it_is_typed():
    assert (Path(verbs3.__file__).parent / "py.typed").exists()


def test_the_package_brings_nothing_along():
    """Imported without what its parts are for; what they need stands in the extras."""
    code = "import sys, verbs3; print(sorted({name.partition('.')[0] for name in sys.modules} & set(sys.argv[1:])))"
    heavy = ["torch", "pyarrow", "fsspec", "numpy", "pandas", "safetensors", "tqdm", "boto3", "botocore"]
    assert subprocess.check_output([sys.executable, "-c", code, *heavy], text=True) == "[]\n"
    needed = importlib.metadata.requires("verbs3") or []
    assert all("extra ==" in one for one in needed)
