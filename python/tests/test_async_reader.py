"""Reads that are awaited: the same bytes, a bounded number of threads, and cancellation that loses nothing."""

import asyncio
import gc
import threading

import pytest
import verbs3
from conftest import ACCESS_KEY, BUCKET, SECRET_KEY, in_child


def make(gateway, **more):
    asked = {"access_key": ACCESS_KEY, "secret_key": SECRET_KEY, "memory": "16MiB"} | more
    return verbs3.AsyncReader(socket=gateway.socket, **asked)


def threads():
    return sum(thread.name.startswith("verbs3-read") for thread in threading.enumerate())


def test_objects_and_ranges_are_read(gateway, objects):
    async def run():
        async with make(gateway) as reader:
            for key, body in objects.items():
                assert await reader.read(BUCKET, key) == body
            assert await reader.read(BUCKET, "large", (7, 70_000)) == objects["large"][7:70_000]
            target = bytearray(5000)
            assert await reader.read_into(BUCKET, "small", target) == 4096
            assert target[:4096] == objects["small"]
            assert (await reader.head(BUCKET, "odd"))["content-length"] == "12345"
            assert await reader.exists_many([(BUCKET, "small"), (BUCKET, "no")]) == [True, False]
            with pytest.raises(verbs3.S3Error, match="NoSuchKey"):
                await reader.read(BUCKET, "missing")
        with pytest.raises(verbs3.LendingError, match="closed"):
            await reader.read(BUCKET, "small")

    asyncio.run(run())


def test_a_thousand_reads_take_no_more_threads_than_they_may(gateway, objects):
    async def run():
        seen = []

        async def read(reader, at):
            view = await reader.read(BUCKET, "large", (at * 100, at * 100 + 500))
            seen.append(threads())
            return view == objects["large"][at * 100 : at * 100 + 500]

        async with make(gateway, threads=5) as reader:
            assert all(await asyncio.gather(*(read(reader, at) for at in range(1000))))
            assert max(seen) <= 5
        assert threads() == 0

    asyncio.run(run())


def test_many_reads_are_iterated_over(gateway, objects):
    async def run():
        reads = [(BUCKET, "large", (at * 1000, at * 1001 + 1)) for at in range(300)]
        async with make(gateway) as reader:
            seen = set()
            async for index, view in reader.read_many(reads):
                assert view == objects["large"][index * 1000 : index * 1001 + 1]
                seen.add(index)
            assert seen == set(range(300))
            with pytest.raises(verbs3.S3Error, match="NoSuchKey"):
                async for _ in reader.read_many([(BUCKET, "missing")]):
                    pass
            answers = [answer async for _, answer in reader.read_many([(BUCKET, "missing")], errors="return")]
            assert [answer.code for answer in answers] == ["NoSuchKey"]

    asyncio.run(run())


def test_the_event_loop_goes_on_meanwhile(gateway, objects):
    async def run():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                ticks += 1
                await asyncio.sleep(0)

        async with make(gateway) as reader:
            ticking = asyncio.create_task(tick())
            for _ in range(50):
                await reader.read(BUCKET, "large")
            ticking.cancel()
            assert ticks > 50

    asyncio.run(run())


def test_tasks_that_are_cancelled_leave_nothing_behind(gateway, objects):
    """As many views find a place afterwards as before: none of the memory is lost."""

    def count_places(reader):
        held = []
        try:
            while True:
                held.append(reader.read(BUCKET, "large", (0, 3_000_000)))
        except verbs3.MemoryFull:
            return len(held)

    async def run():
        reader = make(gateway, memory="16MiB", threads=4)
        before = count_places(reader.reader)
        async with reader:
            for at in range(200):
                tasks = [asyncio.create_task(reader.read(BUCKET, "large")) for _ in range(6)]
                for _ in range(at % 7):
                    await asyncio.sleep(0)
                for task in tasks:
                    task.cancel()
                ended = await asyncio.gather(*tasks, return_exceptions=True)
                assert all(isinstance(end, (asyncio.CancelledError, memoryview)) for end in ended)
                del ended, tasks

                async def iterate():
                    async for _, view in reader.read_many([(BUCKET, "large")] * 4):
                        assert view is not None

                iterating = asyncio.create_task(iterate())
                await asyncio.sleep(0.0005 * (at % 5))
                iterating.cancel()
                await asyncio.gather(iterating, return_exceptions=True)
                # Its error has the frame of `iterate`, and that one the view it looked at last.
                del iterating
        gc.collect()
        assert count_places(reader.reader) == before >= 4
        assert reader.reader.read(BUCKET, "large") == objects["large"]

    asyncio.run(run())


def test_several_loops_share_a_reader(gateway, objects):
    reader = make(gateway)

    async def read():
        return bytes(await reader.read(BUCKET, "odd"))

    found = []
    loops = [threading.Thread(target=lambda: found.append(asyncio.run(read()))) for _ in range(4)]
    for loop in loops:
        loop.start()
    for loop in loops:
        loop.join()
    assert found == [objects["odd"]] * 4
    asyncio.run(reader.aclose())


def test_a_child_has_threads_of_its_own(gateway, objects):
    reader = make(gateway)

    async def read():
        return bytes(await reader.read(BUCKET, "odd"))

    assert asyncio.run(read()) == objects["odd"]
    for _ in range(3):
        assert in_child(lambda: 7 if asyncio.run(read()) == objects["odd"] else 1) == 7
    assert asyncio.run(read()) == objects["odd"]
    asyncio.run(reader.aclose())


def test_wrong_arguments_are_told(gateway):
    with pytest.raises(ValueError, match="threads"):
        make(gateway, threads=0)
    with pytest.raises(ValueError, match="connected already"):
        verbs3.AsyncReader(make(gateway).reader, socket=gateway.socket)
