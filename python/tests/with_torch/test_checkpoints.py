"""Checkpoints and safetensors: the tensors that were saved, by torch's own files and by ours."""

import json
import struct

import pytest
import torch
import torch.distributed.checkpoint as dcp
import verbs3
import verbs3.fsspec
import verbs3.safetensors
from conftest import BUCKET
from safetensors.torch import save
from verbs3.torch import CheckpointReader, CheckpointWriter


@pytest.fixture
def bucket(environment, plain, objects):
    return BUCKET


def make_state():
    generator = torch.Generator().manual_seed(7)
    return {
        "small": torch.arange(10),
        "long": torch.randn(3_000_000, generator=generator),
        "half": torch.randn(17, 33, generator=generator).to(torch.bfloat16),
        "scalar": torch.tensor(3.5),
        "empty": torch.empty(0, 4),
        "step": 1234,
        "nested": {"list": [torch.ones(3), "text"], "bytes": b"raw"},
    }


def zeroed(state):
    if isinstance(state, torch.Tensor):
        return torch.zeros_like(state)
    if isinstance(state, dict):
        return {name: zeroed(part) for name, part in state.items()}
    return [zeroed(part) for part in state] if isinstance(state, list) else None


def same(one, other):
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


@pytest.mark.parametrize("threads", [1, 3])
def test_what_is_saved_is_loaded(bucket, plain, threads):
    state, where = make_state(), f"s3://{bucket}/checkpoints/step-{threads}"
    dcp.save(state, storage_writer=CheckpointWriter(where, thread_count=threads))
    loaded = zeroed(state)
    dcp.load(loaded, storage_reader=CheckpointReader(where))
    assert same(loaded, state)
    listed = [one["Key"] for one in plain.list_objects_v2(Bucket=bucket, Prefix="checkpoints/")["Contents"]]
    assert f"checkpoints/step-{threads}/.metadata" in listed and not any(key.endswith(".tmp") for key in listed)


def test_less_memory_than_a_tensor_is_enough(bucket):
    state, where = make_state(), f"s3://{bucket}/checkpoints/tight/"
    dcp.save(state, storage_writer=CheckpointWriter(where))
    files = verbs3.fsspec.Verbs3FileSystem(memory="10MiB", skip_instance_cache=True)
    loaded = zeroed(state)
    dcp.load(loaded, storage_reader=CheckpointReader(where, files=files))
    assert same(loaded, state)


def test_files_of_torchs_own_writer_are_read_and_ours_by_torch(bucket, plain, tmp_path):
    state = make_state()
    dcp.save(state, storage_writer=dcp.FileSystemWriter(tmp_path / "own"))
    files = verbs3.fsspec.Verbs3FileSystem()
    files.put(str(tmp_path / "own") + "/", f"{bucket}/checkpoints/own/", recursive=True)
    loaded = zeroed(state)
    dcp.load(loaded, storage_reader=CheckpointReader(f"s3://{bucket}/checkpoints/own"))
    assert same(loaded, state)
    dcp.save(state, storage_writer=CheckpointWriter(f"s3://{bucket}/checkpoints/ours"))
    files.get(f"{bucket}/checkpoints/ours/", str(tmp_path / "ours"), recursive=True)
    loaded = zeroed(state)
    dcp.load(loaded, storage_reader=dcp.FileSystemReader(tmp_path / "ours"))
    assert same(loaded, state)


def test_a_checkpoint_that_is_not_there_is_missing(bucket):
    with pytest.raises(dcp.api.CheckpointException) as caught:
        dcp.load({"a": torch.zeros(1)}, storage_reader=CheckpointReader(f"s3://{bucket}/checkpoints/none"))
    assert isinstance(caught.value.failures[0][0], FileNotFoundError)
    with pytest.raises(ValueError, match="s3://BUCKET/KEY"):
        CheckpointWriter("/checkpoints/none")


def test_tensors_are_those_of_the_library(bucket, plain):
    generator = torch.Generator().manual_seed(3)
    made = {
        "long": torch.randn(3_000_001, generator=generator),
        "matrix": torch.randn(33, 65, generator=generator).to(torch.float16),
        "half": torch.randn(1000, generator=generator).to(torch.bfloat16),
        "scalar": torch.tensor(7),
        "empty": torch.empty(0, 3),
        "flags": torch.tensor([True, False]),
        "bytes": torch.arange(256, dtype=torch.uint8),
        "float8": torch.randn(100, generator=generator).to(torch.float8_e4m3fn),
    }
    plain.put_object(Bucket=bucket, Key="m.safetensors", Body=save(made, {"about": "a test"}))
    url = f"s3://{bucket}/m.safetensors"
    reader = verbs3.connect(memory="8MiB")
    for more in ({}, {"reader": reader}):
        loaded = verbs3.safetensors.load_file(url, **more)
        assert loaded.keys() == made.keys()
        for name, tensor in made.items():
            assert loaded[name].dtype == tensor.dtype and loaded[name].shape == tensor.shape
            assert torch.equal(loaded[name].view(-1).view(torch.uint8), tensor.view(-1).view(torch.uint8)), name
    loaded["long"].add_(1)
    assert torch.equal(verbs3.safetensors.load_file(url, names=["long"])["long"], made["long"])
    header = verbs3.safetensors.read_header(url)
    assert header.metadata == {"about": "a test"} and header.tensors["matrix"].shape == (33, 65)


def test_copies_under_way_keep_no_memory_from_others(bucket, plain, monkeypatch):
    """A GPU's copies end later: views are kept until then, by five at once in memory for fifteen pieces."""
    import threading

    import verbs3.safetensors as module

    class LaterEnd:
        def synchronize(self):
            ended.append(self)

    def copy_for_later(target, source):
        target.copy_(source)
        return LaterEnd()

    ended = []
    monkeypatch.setattr(module, "_begin_copy", copy_for_later)
    made = {"long": torch.arange(16 << 20, dtype=torch.int32)}
    plain.put_object(Bucket=bucket, Key="later.safetensors", Body=save(made))
    reader, failed = verbs3.connect(memory="64MiB"), []

    def load():
        try:
            loaded = module.load_file(f"s3://{bucket}/later.safetensors", reader=reader)
            assert torch.equal(loaded["long"], made["long"])
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=load) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failed and len(ended) == 6 * 16


def test_some_names_take_their_bytes_alone(bucket, plain, gateway):
    made = {f"layer{at}": torch.full((500_000,), float(at)) for at in range(5)}
    plain.put_object(Bucket=bucket, Key="layers.safetensors", Body=save(made))
    before = gateway.metric("verbs3_lending_bytes_landed_total")
    loaded = verbs3.safetensors.load_file(f"s3://{bucket}/layers.safetensors", names=["layer3"])
    landed = gateway.metric("verbs3_lending_bytes_landed_total") - before
    assert torch.equal(loaded["layer3"], made["layer3"]) and list(loaded) == ["layer3"]
    assert 2_000_000 <= landed <= 2_000_000 + (256 << 10)
    with pytest.raises(KeyError, match="layer9"):
        verbs3.safetensors.load_file(f"s3://{bucket}/layers.safetensors", names=["layer9"])


def test_a_header_longer_than_the_first_read(bucket, plain):
    made = {f"tensor-{'x' * 200}-{at}": torch.full((3,), at) for at in range(2000)}
    plain.put_object(Bucket=bucket, Key="names.safetensors", Body=save(made))
    loaded = verbs3.safetensors.load_file(f"s3://{bucket}/names.safetensors")
    assert loaded.keys() == made.keys() and all(torch.equal(loaded[name], made[name]) for name in made)


def document(header, body=b""):
    header = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(header)) + header + body


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"short",
        struct.pack("<Q", 1 << 40) + b"{}",
        document(b"no json"),
        document([1, 2]),
        document({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}),
        document({"a": {"dtype": "F32", "shape": [1], "data_offsets": [-4, 0]}}, bytes(4)),
        document({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, bytes(4)),
        document({"a": {"dtype": "F33", "shape": [1], "data_offsets": [0, 4]}}, bytes(4)),
        document({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}, bytes(4)),
        document({"a": {"dtype": "F32", "shape": [1 << 60, 16], "data_offsets": [0, 4]}}, bytes(4)),
    ],
    ids=lambda body: body[8:80].decode("latin-1") or "none",
)
def test_what_is_no_safetensors_file_is_refused(bucket, plain, body):
    plain.put_object(Bucket=bucket, Key="wrong.safetensors", Body=body)
    with pytest.raises(ValueError):
        verbs3.safetensors.load_file(f"s3://{bucket}/wrong.safetensors")


def test_a_missing_file_is_s3s_error(bucket):
    with pytest.raises(verbs3.S3Error):
        verbs3.safetensors.load_file(f"s3://{bucket}/none.safetensors")
