"""Reads into lent memory: every byte, no copy, and memory that is used again only when nobody looks at it."""

import faulthandler
import gc
import os
import signal
import subprocess
import sys
import threading

import pytest
import verbs3
from conftest import ACCESS_KEY, BUCKET, OTHER_KEY, OTHER_SECRET, SECRET_KEY, in_child, kill_in_work, pattern, until


def test_objects_are_read_whole(reader, objects):
    for _ in range(3):
        for key, body in objects.items():
            view = reader.read(BUCKET, key)
            assert view.readonly and view == body, key


def test_ranges_are_half_open(reader, objects):
    body = objects["large"]
    for start, stop in [(0, 1), (100, 4196), (2_999_999, 3_000_001), (2_999_999, 9_000_000), (0, 3_000_001)]:
        assert reader.read(BUCKET, "large", (start, stop)) == body[start:stop]
    assert reader.read(BUCKET, "large", "bytes=-5") == body[-5:]
    for start, stop in [(5, 5), (-1, 4), (7, 3)]:
        with pytest.raises(ValueError):
            reader.read(BUCKET, "large", (start, stop))


def test_errors_are_s3s(reader, objects, gateway):
    cases = [
        ("missing", {}, 404, "NoSuchKey"),
        ("small", {"range": (5000, 6000)}, 416, "InvalidRange"),
        ("small", {"if_match": '"another"'}, 412, "PreconditionFailed"),
    ]
    for key, arguments, status, code in cases:
        with pytest.raises(verbs3.S3Error) as caught:
            reader.read(BUCKET, key, **arguments)
        assert (caught.value.status, caught.value.code) == (status, code)
        assert caught.value.request_id
    with pytest.raises(verbs3.S3Error, match="NoSuchBucket"):
        reader.read("no-such-bucket", "small")
    other = verbs3.connect(gateway.socket, access_key=OTHER_KEY, secret_key=OTHER_SECRET, memory="4MiB")
    with pytest.raises(verbs3.S3Error, match="AccessDenied"):
        other.read(BUCKET, "small")
    assert other.read(BUCKET, "open/a b/\u00e9?&+.txt") == b"an odd name"
    with pytest.raises(verbs3.LendingUnavailable, match="signature"):
        verbs3.connect(gateway.socket, access_key=ACCESS_KEY, secret_key=OTHER_SECRET)
    with pytest.raises(verbs3.LendingUnavailable, match="gateway.lending.socket"):
        verbs3.connect("/nowhere.sock", access_key=ACCESS_KEY, secret_key=SECRET_KEY)


@pytest.mark.parametrize("poll_for", [0, 0.0001, 0.001])
def test_threads_find_their_answers_however_long_they_look(objects, gateway, poll_for):
    reader = verbs3.connect(gateway.socket, access_key=ACCESS_KEY, secret_key=SECRET_KEY, memory="16MiB", poll_for=poll_for)
    wrong = []

    def read_much(keys):
        for _ in range(200):
            wrong.extend(key for key in keys if reader.read(BUCKET, key) != objects[key])

    threads = [threading.Thread(target=read_much, args=(keys,)) for keys in (["small"], ["odd", "small"], ["empty", "odd"])]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_a_time_to_look_that_cannot_be_is_refused(gateway):
    for poll_for in (-1, 0.0011, float("nan")):
        with pytest.raises(ValueError, match="poll_for is from 0 to 0.001 seconds"):
            verbs3.connect(gateway.socket, access_key=ACCESS_KEY, secret_key=SECRET_KEY, poll_for=poll_for)


def test_a_buffer_of_the_caller_is_filled(reader, objects):
    target = bytearray(5000)
    assert reader.read(BUCKET, "small", into=target) == 4096
    assert target[:4096] == objects["small"] and target[4096:] == bytes(904)
    with pytest.raises(ValueError):
        reader.read(BUCKET, "odd", into=bytearray(100))
    with pytest.raises((TypeError, ValueError, BufferError)):
        reader.read(BUCKET, "small", into=bytes(5000))
    assert reader.read(BUCKET, "empty", into=bytearray(1)) == 0


def test_views_outlive_everything(gateway, objects):
    reader = verbs3.connect(gateway.socket, access_key=ACCESS_KEY, secret_key=SECRET_KEY, memory="8MiB")
    view = reader.read(BUCKET, "large")
    part = view[10:20]
    view.release()
    for _ in range(20):
        assert reader.read(BUCKET, "large") == objects["large"]
    assert part == objects["large"][10:20], "its memory was used again"
    del reader
    gc.collect()
    assert part == objects["large"][10:20]


def test_memory_that_is_full_says_so_and_is_free_again(gateway, objects):
    reader = verbs3.connect(gateway.socket, access_key=ACCESS_KEY, secret_key=SECRET_KEY, memory="8MiB", reads_max=4)
    held = []
    with pytest.raises(verbs3.MemoryFull):
        for _ in range(10):
            held.append(reader.read(BUCKET, "large", (0, 3_000_000)))
    assert len(held) == 2
    assert all(view == objects["large"][:3_000_000] for view in held)
    held[0].release()
    assert reader.read(BUCKET, "large", (0, 3_000_000)) == objects["large"][:3_000_000]


def test_small_views_keep_small_parts_of_the_memory(gateway, objects):
    """A landing is taken for a longer object than it turns out to be; the rest of it is free at once."""
    reader = verbs3.connect(gateway.socket, access_key=ACCESS_KEY, secret_key=SECRET_KEY, memory="8MiB")
    held = [reader.read(BUCKET, "small") for _ in range(500)]
    many = dict(reader.read_many([(BUCKET, "odd")] * 200))
    assert all(view == objects["small"] for view in held)
    assert all(view == objects["odd"] for view in many.values())


def test_many_reads_come_in_the_order_of_arrival(reader, objects):
    reads = [(BUCKET, "large", (at * 1000, at * 1000 + 1 + at)) for at in range(300)]
    seen = set()
    for index, view in reader.read_many(reads):
        assert view == objects["large"][index * 1000 : index * 1001 + 1]
        seen.add(index)
    assert seen == set(range(300))
    with pytest.raises(verbs3.S3Error, match="NoSuchKey"):
        list(reader.read_many([(BUCKET, "small"), (BUCKET, "missing")]))
    # Given up half way: nothing is lost.
    for _ in range(100):
        for _, view in reader.read_many(reads[:20]):
            assert view is not None
            break
    assert reader.read(BUCKET, "small") == objects["small"]


def test_threads_read_beside_each_other(reader, objects):
    wrong = []

    def read(seed):
        for at in range(100):
            start = (seed * 7919 + at * 104_729) % 2_900_000
            if reader.read(BUCKET, "large", (start, start + 5000)) != objects["large"][start : start + 5000]:
                wrong.append((seed, at))

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_child_connects_anew_and_leaves_its_parent_alone(reader, objects, gateway):
    view = reader.read(BUCKET, "small")
    stop = threading.Event()
    wrong = []

    def keep_reading():
        while not stop.is_set():
            if reader.read(BUCKET, "odd") != objects["odd"]:
                wrong.append(1)

    busy = threading.Thread(target=keep_reading)
    busy.start()
    try:
        for _ in range(10):
            child = os.fork()
            if child == 0:
                status = 1
                try:
                    good = all(reader.read(BUCKET, key) == body for key, body in objects.items())
                    status = 0 if good else 2
                finally:
                    os._exit(status)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    finally:
        stop.set()
        busy.join()
    assert wrong == []
    assert view == objects["small"] and reader.read(BUCKET, "large") == objects["large"]


def test_a_batch_goes_on_in_a_child_beside_its_parent(reader, objects):
    """Parent and child share no rings: neither sees the other's answers (finding 1 of the review)."""
    reads = [(BUCKET, "large", (at * 1000, at * 1000 + 1 + at)) for at in range(400)]

    def read_rest(answers):
        seen = set()
        for index, view in answers:
            if view != objects["large"][index * 1000 : index * 1001 + 1]:
                return None
            seen.add(index)
        return seen

    for _ in range(5):
        answers = reader.read_many(reads)
        first, view = next(answers)
        del view
        ready, go = os.pipe()
        child = os.fork()
        if child == 0:
            status = 99
            try:
                signal.alarm(60)
                os.read(ready, 1)
                status = 0 if read_rest(answers) == set(range(400)) - {first} else 2
            finally:
                os._exit(status)
        os.write(go, b"x")
        rest = read_rest(answers)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        os.close(ready)
        os.close(go)
        assert rest == set(range(400)) - {first}
        assert status == 0


def test_views_of_a_parent_fault_in_its_child(reader, objects):
    """A fault, and never the bytes of what the parent has read since (finding 3 of the review)."""
    view = reader.read(BUCKET, "small")
    body = view.obj

    def make_a_view():
        try:
            memoryview(body)
        except BufferError:
            return 7
        return 1

    def copy_it():
        try:
            body.copy_into(bytearray(len(body)))
        except verbs3.LendingError:
            return 7
        return 1

    def drop_it():
        nonlocal view, body
        del view, body
        gc.collect()
        return 7 if reader.read(BUCKET, "odd") == objects["odd"] else 1

    assert in_child(make_a_view) == 7
    assert in_child(copy_it) == 7

    def look_at_it():
        # The fault is what is wanted; its story is not.
        faulthandler.disable()
        return 1 if view[0] >= 0 else 2

    assert in_child(look_at_it) == -signal.SIGSEGV
    assert in_child(drop_it) == 7
    assert view == objects["small"]


def test_a_dropped_reader_frees_its_place_beside_children(gateway, objects):
    """Children inherit the socket (finding 6 of the review)."""
    before = settled_clients(gateway)
    reader = verbs3.connect(gateway.socket, access_key=ACCESS_KEY, secret_key=SECRET_KEY, memory="4MiB")
    view = reader.read(BUCKET, "small")
    assert gateway.metric("verbs3_lending_clients") == before + 1
    ready, go = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(go)
        os.read(ready, 1)
        os._exit(0)
    try:
        del reader
        gc.collect()
        until(lambda: gateway.metric("verbs3_lending_clients") == before)
        assert view == objects["small"], "a view keeps its memory"
    finally:
        os.close(go)
        os.close(ready)
        os.waitpid(child, 0)


def settled_clients(gateway):
    """Clients of the gateway, once those that earlier tests dropped are gone."""
    gc.collect()
    counts = [-1.0]

    def rests():
        """Not one count of ten changes, over a second."""
        counts.append(gateway.metric("verbs3_lending_clients"))
        return len(set(counts[-10:])) == 1 and len(counts) > 10

    until(rests)
    return counts[-1]


def test_a_gateway_that_restarts_is_waited_for(tmp_path, objects, gateway):
    import tempfile
    from pathlib import Path

    from conftest import Gateway, boto_arguments

    import boto3

    with tempfile.TemporaryDirectory(prefix="v3py") as folder:
        own = Gateway(Path(folder))
        try:
            plain = boto3.client("s3", **boto_arguments(own))
            plain.create_bucket(Bucket=BUCKET)
            plain.put_object(Bucket=BUCKET, Key="x", Body=pattern(50_000))
            reader = verbs3.connect(own.socket, access_key=ACCESS_KEY, secret_key=SECRET_KEY, memory="4MiB", reconnect_for=60)
            before = reader.read(BUCKET, "x")
            done, failed = [], []

            def keep_reading():
                try:
                    while len(done) < 400 or own.restarted < 2:
                        done.append(reader.read(BUCKET, "x") == pattern(50_000))
                except Exception as error:  # noqa: BLE001 - told by the assertion below
                    failed.append(error)

            own.restarted = 0
            busy = threading.Thread(target=keep_reading)
            busy.start()
            for how in (signal.SIGTERM, signal.SIGKILL):
                own.stop(how)
                own.start()
                own.restarted += 1
            busy.join(120)
            assert failed == [] and not busy.is_alive() and all(done)
            assert before == pattern(50_000), "what was read before stays"
        finally:
            own.stop()


READER = """
import sys, verbs3
reader = verbs3.connect(sys.argv[1], access_key=sys.argv[2], secret_key=sys.argv[3], memory="8MiB")
print("reading", flush=True)
while True:
    for _ in reader.read_many([("datasets", "large", (at, at + 200_000)) for at in range(0, 2_000_000, 100_000)]):
        pass
"""


def test_killed_readers_leave_nothing_behind(gateway, objects):
    gc.collect()
    held = ("verbs3_lending_clients", "verbs3_lending_memory_bytes")
    before = {name: gateway.metric(name) for name in held}
    # By hand a thousand of them: KILLS=1000, and --timeout 900.
    for _ in range(int(os.environ.get("KILLS", "10"))):
        # At any moment of its reads.
        kill_in_work(READER, gateway, b"reading\n", within=0.02)
    until(lambda: gateway.metric("verbs3_lending_reads_in_flight") == 0)
    for name in held:
        until(lambda name=name: gateway.metric(name) <= before[name])
    assert gateway.metric("verbs3_gateway_requests_in_flight ") == 0


def test_an_interrupt_ends_a_wait():
    """A wait for a gateway that does not come back is a wait that a signal ends."""
    code = """
import signal, sys, threading, os, verbs3
# Whoever runs the tests in the background may ignore it, and children take that over.
signal.signal(signal.SIGINT, signal.default_int_handler)
reader = verbs3.connect(sys.argv[1], access_key=sys.argv[2], secret_key=sys.argv[3], reconnect_for=600)
print("connected", flush=True)
sys.stdin.readline()
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    reader.read("datasets", "x")
except KeyboardInterrupt:
    print("interrupted")
"""
    import tempfile
    from pathlib import Path

    from conftest import Gateway

    with tempfile.TemporaryDirectory(prefix="v3py") as folder:
        own = Gateway(Path(folder))
        command = [sys.executable, "-c", code, own.socket, ACCESS_KEY, SECRET_KEY]
        child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            assert child.stdout.readline() == "connected\n"
            own.stop()
            out, _ = child.communicate("go\n", timeout=60)
            assert out == "interrupted\n"
        finally:
            child.kill()
            child.wait()
