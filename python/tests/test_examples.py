"""What the documents show is run: the examples of every module, and the Python of docs/python.md and docs/lending.md."""

import doctest
import importlib
import importlib.util
import pkgutil
import re
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
    assert len(blocks) == (2 if HAS_TORCH else 5)
    for block in blocks:
        exec(compile(block, str(DOCUMENT), "exec"), {"__name__": "guide"})
    shown = capsys.readouterr().out
    expected = ["tensor([5])", "0003 b'sample 3'"] if HAS_TORCH else ["1 0\n", "[True, False]", "shard-00.tar 10240", "(b'hello', [", "6\n", "done 3", "1.0 HitRate"]
    for text in expected:
        assert text in shown, shown
