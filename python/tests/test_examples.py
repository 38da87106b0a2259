"""What the documents show is run: the examples of every module, and the Python of docs/python.md and of the pages about clients."""

import doctest
import importlib
import importlib.util
import pkgutil
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import verbs3

HERE = Path(__file__).resolve()
# A folder that is called so is found as well, without an origin.
HAS_TORCH = getattr(importlib.util.find_spec("torch"), "origin", None) is not None
# What imports torch, or shows a tensor: run where torch is (with_torch/test_torch_examples.py).
NEEDS_TORCH = ("verbs3.torch", "verbs3.safetensors")


def module_names():
    found = [verbs3.__name__]
    for module in pkgutil.walk_packages(verbs3.__path__, "verbs3.", onerror=lambda name: None):
        if not module.name.endswith("_native") and module.name.startswith(NEEDS_TORCH) == HAS_TORCH:
            found.append(module.name)
    return [name for name in found if not (HAS_TORCH and name == verbs3.__name__)]


def run_examples(name):
    module = importlib.import_module(name)
    finder = doctest.DocTestFinder()
    told = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    for test in finder.find(module, name, module):
        runner.run(test, out=told.append)
    assert runner.failures == 0, "".join(told)
    return runner.tries


@pytest.mark.parametrize("name", module_names())
def test_examples_of_a_module(environment, name):
    run_examples(name)


def test_every_public_name_is_explained():
    bare = [name for name in verbs3.__all__ if not getattr(verbs3, name).__doc__]
    assert bare == []


def blocks_of(document):
    """The examples of a document: its blocks of Python, one after the other."""
    return re.findall(r"```python\n(.*?)```", document, re.DOTALL)


DOCUMENT = HERE.parents[2] / "docs/python.md"


def test_the_guide_runs(environment, capsys):
    """Its blocks, from the top, but for those of another environment."""
    blocks = [block for block in blocks_of(DOCUMENT.read_text()) if ("torch" in block) == HAS_TORCH]
    assert len(blocks) == (2 if HAS_TORCH else 6)
    for block in blocks:
        exec(compile(block, str(DOCUMENT), "exec"), {"__name__": "guide"})
    shown = capsys.readouterr().out
    without_torch = ["1 0\n", "[True, False]", "shard-00.tar 10240", "(b'hello', [", "6\n", "\nb'hello'\n", "done 3", "1.0 HitRate"]
    for text in ["tensor([5])", "0003 b'sample 3'"] if HAS_TORCH else without_torch:
        assert text in shown, shown


# Page, and what each of its blocks prints.
SCRIPTS = [
    ("clients.md", [r"http://\S+X-Amz-Algorithm=AWS4-HMAC-SHA256\S+"]),
    ("client-tuning.md", ["", r"5\n10240", r"(?s)(?=.*hello.txt 5)(?=.*shard-00.tar 10240).*\{'step': 100\}", r"0\.5|1\.0"]),
]
# Spawned workers have to find their classes in the file.
STARTS = ["fork", "spawn"] if HAS_TORCH else [None]


def script_cases():
    cases = []
    for page, shown in SCRIPTS:
        blocks = blocks_of((DOCUMENT.parent / page).read_text())
        assert len(blocks) == len(shown), page
        for number, (block, expected) in enumerate(zip(blocks, shown, strict=True), start=1):
            if ("torch" in block) == HAS_TORCH:
                for start in STARTS:
                    cases.append(pytest.param(block, expected, start, id="-".join(filter(None, (page, str(number), start)))))
    return cases


@pytest.mark.parametrize(("block", "expected", "start"), script_cases())
def test_a_block_about_clients_runs_as_a_file(environment, gateway, monkeypatch, tmp_path, block, expected, start):
    for name in ("AWS_ENDPOINT_URL", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    text = block.replace("http://127.0.0.1:9000", f"http://127.0.0.1:{gateway.port}")
    assert text != block, "it names the gateway"
    if start:
        text, workers = re.subn("(num_workers=2)", rf'\1, multiprocessing_context="{start}"', text)
        assert workers == 1
    (tmp_path / "block.py").write_text(text)
    done = subprocess.run([sys.executable, "block.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(expected, done.stdout.strip()), (done.stdout, done.stderr)
    if done.stdout.startswith("http"):
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        assert opener.open(done.stdout.strip()).read() == environment["hello.txt"]
    if "download_file" in block:
        assert (tmp_path / "hello.txt").read_bytes() == environment["hello.txt"]
