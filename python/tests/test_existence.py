"""Many HEADs in one batch: each answer in its place, and no error that is taken for an absence."""

import pytest
import verbs3
from conftest import ACCESS_KEY, BUCKET, OTHER_KEY, OTHER_SECRET, SECRET_KEY, in_child


@pytest.fixture(scope="module")
def thousand(plain, objects):
    """Keys of which every other one is there, and which."""
    for at in range(0, 200, 2):
        plain.put_object(Bucket=BUCKET, Key=f"heads/{at}", Body=bytes(at))
    keys = [f"heads/{at % 200}" for at in range(1000)]
    return [(BUCKET, key) for key in keys], [at % 2 == 0 for at in range(1000)]


def test_each_of_a_thousand_is_told_in_its_place(reader, thousand):
    asked, there = thousand
    for _ in range(3):
        assert reader.exists_many(asked) == there
    assert reader.exists_many(iter(asked)) == there
    assert reader.exists_many([]) == []


def test_headers_come_in_their_places(reader, thousand):
    asked, there = thousand
    found = reader.head_many(asked)
    for (_, key), is_there, headers in zip(asked, there, found, strict=True):
        assert (headers is not None) == is_there
        if headers is not None:
            assert headers["content-length"] == key.removeprefix("heads/")
            assert headers["etag"]


def test_lists_say_what_single_heads_say_and_ask_each_home_once(reader, gateway, thousand):
    # Absences are known for a moment alone.
    asked = [pair for pair, is_there in zip(*thousand, strict=True) if is_there]
    assert all(reader.exists_many(asked))
    lists = 'verbs3_worker_requests_total{request="head_list"'
    opens = 'verbs3_worker_requests_total{request="open"'
    before = gateway.metric(lists), gateway.metric(opens)
    found = reader.head_many(asked)
    assert gateway.metric(lists) > before[0]
    assert gateway.metric(opens) == before[1]
    own = ("date", "x-amz-request-id", "x-amz-id-2")
    for (bucket, key), headers in list(zip(asked, found, strict=True))[:20]:
        single = reader.head(bucket, key)
        for name in {*headers, *single} - {*own}:
            assert headers[name] == single[name], name


def test_heads_need_no_memory_for_bodies(gateway, thousand):
    asked, there = thousand
    small = verbs3.connect(gateway.socket, access_key=ACCESS_KEY, secret_key=SECRET_KEY, memory="2MiB")
    assert small.exists_many(asked) == there


def test_a_change_is_seen_at_once(reader, plain, objects):
    asked = [(BUCKET, "coming"), (BUCKET, "small")]
    assert reader.exists_many(asked) == [False, True]
    plain.put_object(Bucket=BUCKET, Key="coming", Body=b"x")
    assert reader.exists_many(asked) == [True, True]
    plain.delete_object(Bucket=BUCKET, Key="coming")
    assert reader.exists_many(asked) == [False, True]


def test_what_may_not_be_known_is_an_error(gateway, objects):
    other = verbs3.connect(gateway.socket, access_key=OTHER_KEY, secret_key=OTHER_SECRET, memory="4MiB")
    key = "open/a b/\u00e9?&+.txt"
    assert other.exists_many([(BUCKET, key)]) == [True]
    for ask in (other.exists_many, other.head_many):
        with pytest.raises(verbs3.S3Error) as caught:
            ask([(BUCKET, key), (BUCKET, "small")])
        assert (caught.value.status, caught.value.code) == (403, "AccessDenied")


def test_names_that_are_too_long_for_this_way_say_so(reader):
    with pytest.raises(verbs3.RequestTooLong):
        reader.exists_many([(BUCKET, "k" * 5000)])


def test_urls_are_asked_for_together(environment):
    urls = ["s3://train/hello.txt", "verbs3://train/missing", "s3://no-such-bucket/x"]
    assert verbs3.exists(urls) == [True, False, False]
    assert verbs3.exists(urls[0]) is True and verbs3.exists(urls[1]) is False
    for wrong in ("train/hello.txt", "s3://train", "s3://train/", "https://x/y"):
        with pytest.raises(ValueError, match="s3://BUCKET/KEY"):
            verbs3.exists(wrong)
    assert in_child(lambda: 7 if verbs3.exists(urls) == [True, False, False] else 1) == 7
