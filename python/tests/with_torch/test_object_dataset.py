"""Objects as samples: in their order, by batches, in workers that were forked or spawned."""

import numpy
import pytest
import torch
import verbs3
import verbs3.torch
from conftest import ACCESS_KEY, BUCKET, SECRET_KEY
from torch.utils.data import DataLoader

COUNT = 60


@pytest.fixture
def samples(environment, plain, objects):
    for at in range(COUNT):
        plain.put_object(Bucket=BUCKET, Key=f"samples/{at:03}.bin", Body=bytes([at]) * (at + 1))
    plain.put_object(Bucket=BUCKET, Key="samples/readme.txt", Body=b"no sample")
    return verbs3.torch.ObjectDataset.from_prefix(f"s3://{BUCKET}/samples/", to_tensor, suffix=".bin")


def to_tensor(view):
    return int(view[0]), len(view)


def test_a_prefix_is_listed_and_read_in_order(samples):
    assert len(samples) == COUNT
    assert [samples[at] for at in range(COUNT)] == [(at, at + 1) for at in range(COUNT)]
    assert samples.__getitems__([5, 59, 0, 5]) == [(5, 6), (59, 60), (0, 1), (5, 6)]


@pytest.mark.parametrize("workers, context", [(0, None), (3, "fork"), (1, "spawn")])
def test_workers_read_their_batches(samples, workers, context):
    # The parent has read, so that a forked worker inherits a connection.
    assert samples[7] == (7, 8)
    loader = DataLoader(samples, batch_size=8, num_workers=workers, multiprocessing_context=context)
    for _ in range(1 if context == "spawn" else 2):
        found = [pair for batch in loader for pair in zip(*(part.tolist() for part in batch))]
        assert found == [(at, at + 1) for at in range(COUNT)]
    assert samples[8] == (8, 9)


def test_a_reader_of_ones_own_goes_to_workers(gateway, samples):
    reader = verbs3.connect(gateway.socket, access_key=ACCESS_KEY, secret_key=SECRET_KEY, memory="4MiB")
    own = verbs3.torch.ObjectDataset(samples.urls, reader=reader)
    for context in ("fork", "spawn"):
        loader = DataLoader(own, batch_size=7, num_workers=1, multiprocessing_context=context, collate_fn=list)
        assert [body for batch in loader for body in batch] == [bytes([at]) * (at + 1) for at in range(COUNT)]


def test_a_sample_may_keep_its_view(gateway, samples, objects):
    reader = verbs3.connect(gateway.socket, access_key=ACCESS_KEY, secret_key=SECRET_KEY, memory="8MiB")
    arrays = verbs3.torch.ObjectDataset(samples.urls, lambda view: numpy.frombuffer(view, "uint8"), reader=reader)
    kept = arrays.__getitems__(list(range(COUNT)))
    for _ in range(20):
        assert [bytes(view) == objects["odd"] for _, view in reader.read_many([(BUCKET, "odd")] * 20)] == [True] * 20
    assert all((array == at).all() and len(array) == at + 1 for at, array in enumerate(kept))


def test_errors_are_s3s(samples):
    urls = [*samples.urls[:3], f"s3://{BUCKET}/samples/missing"]
    broken = verbs3.torch.ObjectDataset(urls)
    for read in (lambda: broken[3], lambda: broken.__getitems__([0, 3]), lambda: list(DataLoader(broken, num_workers=0))):
        with pytest.raises(verbs3.S3Error, match="NoSuchKey"):
            read()
    # torch makes errors of a worker anew, by their text.
    with pytest.raises(RuntimeError, match="Caught S3Error.*(?s:.*)NoSuchKey"):
        list(DataLoader(broken, num_workers=1))
    with pytest.raises(ValueError, match="s3://BUCKET/KEY"):
        verbs3.torch.ObjectDataset(["samples/000.bin"])


def test_a_torch_file_is_loaded_through_fsspec(environment, plain, objects):
    import fsspec

    made = {"weight": torch.arange(1000.0)}
    with fsspec.open(f"verbs3://{BUCKET}/model.pt", "wb") as file:
        torch.save(made, file)
    with fsspec.open(f"verbs3://{BUCKET}/model.pt") as file:
        assert torch.equal(torch.load(file, weights_only=True)["weight"], made["weight"])
