"""Objects as files, and reads that are longer than the lent memory."""

import os
import pickle
import random
import tarfile

import pytest
import verbs3
from conftest import ACCESS_KEY, BUCKET, SECRET_KEY, in_child, pattern
from example_objects import tar_of

LONG = 13_000_001


@pytest.fixture(scope="module")
def long_object(plain, objects):
    body = pattern(LONG, 11)
    plain.put_object(Bucket=BUCKET, Key="long", Body=body)
    return body


@pytest.fixture
def small_memory(gateway):
    return verbs3.connect(gateway.socket, access_key=ACCESS_KEY, secret_key=SECRET_KEY, memory="6MiB")


def test_a_file_reads_as_one_of_the_disk(reader, long_object, tmp_path):
    path = tmp_path / "long"
    path.write_bytes(long_object)
    seed = int(os.environ.get("SEED", random.randrange(1 << 32)))
    print(f"SEED={seed}")
    chance = random.Random(seed)
    with open(path, "rb") as local, reader.open(BUCKET, "long", buffer_bytes=100_000) as remote:
        for _ in range(200):
            step = chance.randrange(5)
            if step == 0:
                where = chance.randrange(LONG + 100)
                assert local.seek(where) == remote.seek(where)
            elif step == 1:
                assert local.seek(-chance.randrange(LONG), os.SEEK_END) == remote.seek(-chance.randrange(1), os.SEEK_END) or remote.seek(local.tell()) >= 0
            elif step == 2:
                assert local.readline(500) == remote.readline(500)
            elif step == 3:
                ours, theirs = bytearray(chance.randrange(300_000)), bytearray()
                theirs.extend(bytes(len(ours)))
                assert local.readinto(ours) == remote.readinto(theirs) and ours == theirs
            else:
                count = chance.choice([0, 1, 17, 100_000, 100_001, 5_000_000])
                assert local.read(count) == remote.read(count)
            assert local.tell() == remote.tell()
        assert local.seek(0) == remote.seek(0) == 0
        assert local.read() == remote.read() == long_object
    assert remote.closed and remote.size == LONG and remote.name == f"s3://{BUCKET}/long"


def test_more_than_the_lent_memory_is_read(small_memory, long_object):
    target = bytearray(LONG)
    assert small_memory.read_into(BUCKET, "long", target) == LONG and target == long_object
    assert small_memory.read_bytes(BUCKET, "long") == long_object
    tail = bytearray(9_000_000)
    assert small_memory.read_into(BUCKET, "long", tail, LONG - 8_000_000) == 8_000_000
    assert tail[:8_000_000] == long_object[-8_000_000:] and not any(tail[8_000_000:])
    assert small_memory.read_into(BUCKET, "long", bytearray(5), LONG + 5) == 0
    assert small_memory.read_into(BUCKET, "long", bytearray()) == 0
    with pytest.raises(verbs3.S3Error, match="NoSuchKey"):
        small_memory.read_into(BUCKET, "missing", target)


class CountingReader:
    def __init__(self, reader):
        self.reader, self.reads = reader, 0

    def read_into(self, *arguments, **options):
        self.reads += 1
        return self.reader.read_into(*arguments, **options)


def test_the_rest_of_a_file_is_read_at_once(reader, long_object):
    with reader.open(BUCKET, "long", buffer_bytes=10_000) as file:
        counting = file.object._reader = CountingReader(reader)
        assert file.read() == long_object
        assert file.read() == b""
        assert counting.reads == 1
        file.seek(5)
        assert file.read(7) == long_object[5:12]
        assert file.read() == long_object[12:]
        assert counting.reads == 3


def test_what_is_read_is_of_one_version(reader, plain, objects):
    first, second = pattern(9_000_000, 3), pattern(9_000_000, 5)
    plain.put_object(Bucket=BUCKET, Key="replaced", Body=first)
    with reader.open(BUCKET, "replaced", buffer_bytes=1000) as file:
        assert file.read(100) == first[:100]
        plain.put_object(Bucket=BUCKET, Key="replaced", Body=second)
        assert file.read(900) == first[100:1000], "what is in the buffer is of its version"
        with pytest.raises(verbs3.S3Error, match="PreconditionFailed"):
            file.read(100)
    with reader.open(BUCKET, "replaced") as file:
        assert file.read() == second
    with pytest.raises(verbs3.S3Error, match="PreconditionFailed"):
        reader.read_bytes(BUCKET, "replaced", if_match='"another"')


def test_empty_and_missing_objects(reader, objects):
    with reader.open(BUCKET, "empty") as file:
        assert (file.read(), file.read(5), file.size, file.seek(5), file.read(1)) == (b"", b"", 0, 5, b"")
    assert reader.read_bytes(BUCKET, "empty") == b""
    with pytest.raises(verbs3.S3Error, match="NoSuchKey"):
        reader.open(BUCKET, "missing")
    with reader.open(BUCKET, "small") as file, pytest.raises(ValueError):
        file.seek(-1)


def test_libraries_take_it_for_a_file(reader, plain, objects):
    members = {f"{at}.bin": pattern(at * 1000 + 1, at + 1) for at in range(20)}
    plain.put_object(Bucket=BUCKET, Key="a.tar", Body=tar_of(members))
    with reader.open(BUCKET, "a.tar") as file, tarfile.open(fileobj=file) as archive:
        assert {one.name: archive.extractfile(one).read() for one in archive} == members


def test_a_file_belongs_to_one_process(reader, objects):
    with reader.open(BUCKET, "large", buffer_bytes=10) as file:
        file.read(5)

        def read_in_child():
            try:
                file.read(1000)
            except verbs3.LendingError:
                with reader.open(BUCKET, "large") as own:
                    return 7 if own.read() == objects["large"] else 2
            return 1

        assert in_child(read_in_child) == 7
        assert file.read() == objects["large"][5:]


def test_open_ended_ranges(reader, objects):
    assert reader.read(BUCKET, "large", (2_999_990, None)) == objects["large"][2_999_990:]
    assert reader.read(BUCKET, "large", (5, None)) == objects["large"][5:]
    with pytest.raises(ValueError, match="bytes=-N"):
        reader.read(BUCKET, "large", (-5, None))


def test_a_pickled_reader_connects_anew(reader, gateway, objects, environment):
    again = pickle.loads(pickle.dumps(reader))
    assert again is not reader and again.read(BUCKET, "odd") == objects["odd"]
    found = verbs3.connect(memory="4MiB")
    pickled = pickle.dumps(found)
    assert SECRET_KEY.encode() not in pickled, "keys of the environment are found again there"
    assert pickle.loads(pickled).read(BUCKET, "odd") == objects["odd"]
    assert SECRET_KEY not in repr(reader) + repr(reader._asked)


def test_errors_take_the_places_of_their_views(reader, objects):
    reads = [(BUCKET, "small"), (BUCKET, "missing"), (BUCKET, "small", (9000, 9001)), (BUCKET, "small", None, '"x"')]
    found = dict(reader.read_many(reads, errors="return"))
    assert found[0] == objects["small"]
    assert [found[at].code for at in (1, 2, 3)] == ["NoSuchKey", "InvalidRange", "PreconditionFailed"]
    with pytest.raises(ValueError, match="errors is"):
        reader.read_many(reads, errors="ignore")


def test_hits_are_counted_for_reader_and_process(reader, plain, objects):
    plain.put_object(Bucket=BUCKET, Key="counted", Body=b"x" * 100)
    before, whole = reader.hit_rate(), verbs3.hit_rate()
    assert before.reads == 0 and before.rate is None
    for _ in range(10):
        reader.read(BUCKET, "counted")
    list(reader.read_many([(BUCKET, "counted")] * 10))
    reader.exists_many([(BUCKET, "counted")] * 10)
    own = reader.hit_rate()
    assert own.reads == 20 and own.hits >= 19 and own.rate >= 0.95
    assert verbs3.hit_rate().reads == whole.reads + 20

    def count_in_child():
        reader.read(BUCKET, "counted")
        return 7 if reader.hit_rate().reads == verbs3.hit_rate().reads == 1 else 1

    assert in_child(count_in_child) == 7
    assert reader.hit_rate() == own
