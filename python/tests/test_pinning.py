"""When lent memory is pinned, and until when: by a driver that only writes it down. A GPU is asked by bench/gpu_reads.py."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ACCESS_KEY, BUCKET, SECRET_KEY

HERE = Path(__file__).parent
MEMORY = 8 << 20

START = """
import os, sys
import numpy, verbs3

MEMORY = %d

def connect(**more):
    socket, access_key, secret_key = sys.argv[1:4]
    return verbs3.connect(socket, access_key=access_key, secret_key=secret_key, memory=MEMORY, **more)

def address_of(view):
    return numpy.frombuffer(view, dtype=numpy.uint8).__array_interface__["data"][0]

def log():
    with open(os.environ["FAKE_CUDA_LOG"]) as lines:
        return [line.split() for line in lines]
""" % MEMORY


@pytest.fixture(scope="module")
def driver(tmp_path_factory):
    """A folder with a library that takes the CUDA driver's place."""
    folder = tmp_path_factory.mktemp("fake-cuda")
    library, source = folder / "libcuda.so.1", HERE / "fake_cuda.c"
    subprocess.run(["gcc", "-Wall", "-Werror", "-shared", "-fPIC", "-o", library, source], check=True)
    return folder


def run_python(gateway, code, driver, **environment):
    """Runs code in a process of its own, with a driver in a folder or without any."""
    found = {"LD_LIBRARY_PATH": str(driver), "FAKE_CUDA_LOG": str(driver / "log")}
    (driver / "log").write_text("")
    return subprocess.run(
        [sys.executable, "-c", START + code, gateway.socket, ACCESS_KEY, SECRET_KEY, BUCKET],
        env={**os.environ, **found, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def must_end_well(ended):
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_memory_is_pinned_as_long_as_a_view_is_left(gateway, objects, driver):
    code = """
reader = connect(pin_for="cuda:1")
what, process, start, length = log()[0]
assert (what, int(process), int(length), len(log())) == ("pinned", os.getpid(), MEMORY, 1), log()
view = reader.read(sys.argv[4], "odd")
assert int(start) <= address_of(view) and address_of(view) + len(view) <= int(start) + int(length)
del reader
assert len(log()) == 1 and view[250] == 250
view.release()
assert [line[0] for line in log()] == ["pinned", "unpinned"] and log()[1][2] == start
"""
    must_end_well(run_python(gateway, code, driver))


def test_the_first_device_is_taken_without_torch(gateway, objects, driver):
    must_end_well(run_python(gateway, "connect(pin_for='cuda').read(sys.argv[4], 'small').release()", driver))


def test_a_child_lends_memory_that_is_not_pinned(gateway, objects, driver):
    code = """
reader = connect(pin_for="cuda:0")
view = reader.read(sys.argv[4], "odd")
child = os.fork()
if not child:
    read = bytes(reader.read(sys.argv[4], "odd"))
    del reader
    os._exit(len(read) != 12345 or len(log()) != 1)
assert os.waitpid(child, 0)[1] == 0
del view, reader
assert [line[0] for line in log()] == ["pinned", "unpinned"]
"""
    must_end_well(run_python(gateway, code, driver))


def test_a_child_makes_readers_that_are_not_pinned(gateway, objects, driver):
    code = """
reader = connect(pin_for="cuda")
child = os.fork()
if not child:
    read = bytes(connect(pin_for="cuda").read(sys.argv[4], "odd"))
    os._exit(len(read) != 12345 or len(log()) != 1)
assert os.waitpid(child, 0)[1] == 0
"""
    must_end_well(run_python(gateway, code, driver))


def test_memory_that_the_driver_keeps_stays_mapped(gateway, objects, driver):
    code = """
import ctypes
reader = connect(pin_for="cuda")
start, length = (int(word) for word in log()[0][2:])
del reader
assert ctypes.CDLL(None).msync(ctypes.c_void_p(start), ctypes.c_size_t(length), 1) == 0, "it is unmapped"
"""
    must_end_well(run_python(gateway, code, driver, FAKE_CUDA_KEEPS="1"))


def test_a_reader_that_travels_pins_where_it_arrives(gateway, objects, driver):
    code = """
import pickle
first = connect(pin_for="cuda")
second = pickle.loads(pickle.dumps(first))
assert second._asked.pin_for == "cuda:0", "and not what its process calls so"
assert [line[0] for line in log()] == ["pinned", "pinned"]
"""
    must_end_well(run_python(gateway, code, driver))


def test_memory_that_is_not_to_be_pinned_is_not(gateway, objects, driver):
    must_end_well(run_python(gateway, "connect().read(sys.argv[4], 'small').release(); assert not log()", driver))


def test_where_it_cannot_be_pinned_it_is_said(gateway, tmp_path, driver):
    asks = """
try:
    connect(pin_for="cuda:%s")
except verbs3.LendingUnavailable as error:
    print(error)
"""
    # Whatever driver this host has, this folder has none that can be loaded.
    (tmp_path / "libcuda.so.1").write_bytes(b"")
    cases = [
        (tmp_path, "0", {}, "there is no CUDA driver"),
        (driver, "2", {}, "CUDA says error 101, invalid device ordinal"),
        (driver, "0", {"FAKE_CUDA_FAILS": "1"}, f"memory of {MEMORY} bytes can't be pinned: CUDA says error 2, out of memory"),
    ]
    for folder, device, environment, text in cases:
        ended = run_python(gateway, asks % device, folder, **environment)
        must_end_well(ended)
        assert text in ended.stdout
    for name in ["cpu", "cuda:", "cuda:-1", "cuda:x", "cuda:99999999999", "cudax", ""]:
        with pytest.raises(ValueError, match="pin_for is"):
            verbs3_connect(gateway, name)


def verbs3_connect(gateway, name):
    import verbs3

    return verbs3.connect(gateway.socket, access_key=ACCESS_KEY, secret_key=SECRET_KEY, pin_for=name)


def test_a_gateway_that_restarts_gets_memory_that_is_pinned_anew(tmp_path, objects, gateway, driver):
    code = """
import signal
reader = connect(pin_for="cuda:0")
before = reader.read(sys.argv[4], "odd")
print("read", flush=True)
sys.stdin.readline()
assert bytes(reader.read(sys.argv[4], "odd")) == bytes(before)
assert [line[0] for line in log()] == ["pinned", "pinned"]
before.release()
assert [line[0] for line in log()] == ["pinned", "pinned", "unpinned"] and log()[2][2] == log()[0][2]
"""
    (driver / "log").write_text("")
    running = subprocess.Popen(
        [sys.executable, "-c", START + code, gateway.socket, ACCESS_KEY, SECRET_KEY, BUCKET],
        env={**os.environ, "LD_LIBRARY_PATH": str(driver), "FAKE_CUDA_LOG": str(driver / "log")},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert running.stdout.readline() == "read\n", running.stderr.read()
    gateway.stop()
    gateway.start()
    _, errors = running.communicate("on\n", timeout=120)
    assert running.returncode == 0, errors
