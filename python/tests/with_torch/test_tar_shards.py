"""Tar shards: every sample once, whatever ranks and workers there are; and resumed behind the last one."""

import io
import os
import random
import tarfile

import pytest
import torch
import verbs3
import verbs3.torch
from conftest import BUCKET
from example_objects import tar_of
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

SHARDS, SAMPLES = 13, 7
EVERY = {f"{shard:02}/{at:04}" for shard in range(SHARDS) for at in range(SAMPLES)}


def shard_of(shard):
    members = {}
    for at in range(SAMPLES):
        members[f"{shard:02}/{at:04}.bin"] = bytes([shard, at]) * (at * 300 + 1)
        members[f"{shard:02}/{at:04}.meta.json"] = b"{}"
    return tar_of(members)


@pytest.fixture(scope="module")
def written(plain, objects):
    urls = [f"s3://{BUCKET}/shards/{at:02}.tar" for at in range(SHARDS)]
    for at, url in enumerate(urls):
        plain.put_object(Bucket=BUCKET, Key=url.removeprefix(f"s3://{BUCKET}/"), Body=shard_of(at))
    return urls


@pytest.fixture
def urls(environment, written):
    return written


def keys(samples):
    return [sample["__key__"] for sample in samples]


def test_samples_are_what_was_put(urls):
    for sample in verbs3.torch.TarShards(urls):
        shard, at = (int(part) for part in sample["__key__"].split("/"))
        assert sample == {
            "__key__": f"{shard:02}/{at:04}",
            "__url__": urls[shard],
            "bin": bytes([shard, at]) * (at * 300 + 1),
            "meta.json": b"{}",
        }
    assert sorted(keys(verbs3.torch.TarShards(urls))) == sorted(EVERY)
    assert list(verbs3.torch.TarShards(urls, decode=lambda sample: len(sample["bin"])))[:2] == [2, 602]


@pytest.mark.parametrize("world_size, workers", [(1, 0), (1, 3), (2, 2), (3, 0), (5, 4)])
def test_each_sample_goes_to_one_worker_of_one_rank(urls, world_size, workers):
    seen = []
    for rank in range(world_size):
        shards = verbs3.torch.TarShards(urls, shuffle=True, seed=3, rank=rank, world_size=world_size)
        seen += keys(DataLoader(shards, batch_size=None, num_workers=workers))
    assert len(seen) == len(EVERY) and set(seen) == EVERY


def test_epochs_have_orders_of_their_own_by_the_seed(urls):
    def order(seed, epoch):
        shards = verbs3.torch.TarShards(urls, shuffle=True, seed=seed)
        shards.set_epoch(epoch)
        return shards.own_shards()

    orders = [order(seed, epoch) for seed in (1, 2) for epoch in range(4)]
    assert orders == [order(seed, epoch) for seed in (1, 2) for epoch in range(4)]
    assert len({tuple(found) for found in orders}) == len(orders)
    assert all(sorted(found) == urls for found in orders)
    assert verbs3.torch.TarShards(urls).own_shards() == urls


def test_workers_that_stay_see_the_next_epoch(urls):
    shards = verbs3.torch.TarShards(urls, shuffle=True, seed=5)
    loader = DataLoader(shards, batch_size=None, num_workers=1, persistent_workers=True)
    for epoch in range(3):
        shards.set_epoch(epoch)
        alone = verbs3.torch.TarShards(urls, shuffle=True, seed=5)
        alone.set_epoch(epoch)
        assert keys(loader) == keys(alone)


def test_it_goes_on_behind_the_last_sample(urls):
    seed = int(os.environ.get("SEED", random.randrange(1 << 32)))
    print(f"SEED={seed}")
    chance = random.Random(seed)
    whole = keys(verbs3.torch.TarShards(urls, shuffle=True, seed=seed))
    for count in [0, 1, SAMPLES - 1, SAMPLES, SAMPLES + 1, len(whole), chance.randrange(len(whole))]:
        begun = verbs3.torch.TarShards(urls, shuffle=True, seed=seed)
        samples = iter(begun)
        before = [next(samples)["__key__"] for _ in range(count)]
        again = verbs3.torch.TarShards(urls, shuffle=True, seed=seed)
        again.load_state_dict(begun.state_dict())
        assert again.state_dict() == begun.state_dict()
        assert before + keys(again) == whole, count
        assert keys(again) == whole, "the iteration after it is a whole one"


@pytest.mark.parametrize("workers", [0, 3])
def test_a_stateful_loader_is_resumed_with_its_workers(urls, workers):
    def loader():
        shards = verbs3.torch.TarShards(urls, shuffle=True, seed=11, rank=1, world_size=2)
        return StatefulDataLoader(shards, batch_size=2, num_workers=workers, collate_fn=keys)

    whole = list(loader())
    begun = loader()
    batches = iter(begun)
    before = [next(batches) for _ in range(9)]
    state = begun.state_dict()
    del batches
    again = loader()
    again.load_state_dict(state)
    assert before + list(again) == whole


def test_states_of_others_are_refused(urls, plain):
    shards = verbs3.torch.TarShards(urls, shuffle=True, seed=1)
    samples = iter(shards)
    next(samples)
    state = shards.state_dict()
    for other in (
        verbs3.torch.TarShards(urls[:-1], shuffle=True, seed=1),
        verbs3.torch.TarShards(urls, shuffle=True, seed=2),
        verbs3.torch.TarShards(urls, seed=1),
    ):
        with pytest.raises(ValueError, match="another data set"):
            other.load_state_dict(state)
    moved = verbs3.torch.TarShards(urls, shuffle=True, seed=1, rank=0, world_size=2)
    moved.load_state_dict(state)
    with pytest.raises(ValueError, match="as many ranks and workers"):
        next(iter(moved))
    # The next epoch begins at its beginning.
    again = verbs3.torch.TarShards(urls, shuffle=True, seed=1)
    again.load_state_dict(state)
    again.set_epoch(1)
    assert len(keys(again)) == len(EVERY)


def test_a_shard_that_was_replaced_is_not_resumed(urls, plain):
    url = f"s3://{BUCKET}/shards/replaced.tar"
    plain.put_object(Bucket=BUCKET, Key="shards/replaced.tar", Body=shard_of(1))
    shards = verbs3.torch.TarShards([url])
    next(iter(shards))
    plain.put_object(Bucket=BUCKET, Key="shards/replaced.tar", Body=shard_of(2))
    again = verbs3.torch.TarShards([url])
    again.load_state_dict(shards.state_dict())
    with pytest.raises(ValueError, match="another object"):
        next(iter(again))


def test_a_shard_that_is_missing_is_s3s_error(urls):
    samples = iter(verbs3.torch.TarShards([urls[0], f"s3://{BUCKET}/shards/missing.tar"]))
    for _ in range(SAMPLES):
        next(samples)
    with pytest.raises(verbs3.S3Error, match="NoSuchKey"):
        next(samples)


def test_damaged_shards_are_never_cut_in_silence(urls, plain):
    whole = shard_of(4)

    def read(body):
        plain.put_object(Bucket=BUCKET, Key="shards/damaged.tar", Body=body)
        return keys(verbs3.torch.TarShards([f"s3://{BUCKET}/shards/damaged.tar"]))

    assert len(read(whole)) == SAMPLES
    assert read(b"") == []
    # A header in the middle, and cuts inside of a header and of a member.
    headers = [one.offset for one in tarfile.open(fileobj=io.BytesIO(whole))]
    overwritten = bytearray(whole)
    overwritten[headers[6] : headers[6] + 512] = b"\xff" * 512
    for body in (bytes(overwritten), whole[: headers[6] + 100], whole[: headers[6] + 512 + 10], b"no tar" * 1000):
        with pytest.raises(tarfile.ReadError):
            read(body)
    # Without the blocks of zeros at its end, it is whole.
    assert len(read(whole[: headers[-1] + 1024])) == SAMPLES


def test_long_names_and_other_formats(urls, plain):
    for tar_format in (tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT):
        target = io.BytesIO()
        with tarfile.open(fileobj=target, mode="w", format=tar_format) as archive:
            folder = tarfile.TarInfo("folder")
            folder.type = tarfile.DIRTYPE
            archive.addfile(folder)
            for at in range(6):
                name = f"{'long' * (30 if tar_format != tarfile.USTAR_FORMAT else 3)}/{'é' if tar_format == tarfile.PAX_FORMAT else 'e'}{at}.x"
                member = tarfile.TarInfo(name)
                member.size = at
                archive.addfile(member, io.BytesIO(bytes(at)))
        plain.put_object(Bucket=BUCKET, Key="shards/names.tar", Body=target.getvalue())
        shards = verbs3.torch.TarShards([f"s3://{BUCKET}/shards/names.tar"])
        whole = [(sample["__key__"], sample["x"]) for sample in shards]
        assert [len(body) for _, body in whole] == list(range(6))
        for count in range(1, 6):
            samples = iter(shards)
            for _ in range(count):
                next(samples)
            again = verbs3.torch.TarShards(shards.urls)
            again.load_state_dict(shards.state_dict())
            assert [(sample["__key__"], sample["x"]) for sample in again] == whole[count:]


def rank_keys(rank, urls, store, found):
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    shards = verbs3.torch.TarShards(urls, shuffle=True)
    for context, workers in (("fork", 2), ("spawn", 1)):
        loader = DataLoader(shards, batch_size=None, num_workers=workers, multiprocessing_context=context)
        found[rank, context] = keys(loader)
    torch.distributed.destroy_process_group()


def test_ranks_of_torch_distributed_are_taken(urls, tmp_path):
    """Workers that are spawned do not know of it, and have to be told."""
    import torch.multiprocessing

    with torch.multiprocessing.Manager() as manager:
        found = manager.dict()
        torch.multiprocessing.spawn(rank_keys, (urls, tmp_path / "store", found), nprocs=2)
        for context in ("fork", "spawn"):
            both = found[0, context] + found[1, context]
            assert len(both) == len(EVERY) and set(both) == EVERY


def test_wrong_ranks_are_refused():
    with pytest.raises(ValueError, match="come together"):
        verbs3.torch.TarShards([], rank=1)
    with pytest.raises(ValueError, match="rank 2 is none of 2"):
        verbs3.torch.TarShards([], rank=2, world_size=2)
