#!/usr/bin/env python3
"""Compares ways from an object to a GPU: boto3, lent memory, and lent memory that CUDA pins. Needs a GPU, and torch for it.

    gpu_reads.py ENDPOINT SOCKET BUCKET [--gib N] [--rounds N] [--samples N]     keys by the environment

Every byte is compared on the GPU with what was put. Prints GB/s of whole weights, in turns, beside a copy of pinned memory
that is there already; then samples/s of a DataLoader. Not run in CI: it has no GPU.
"""

import argparse
import io
import json
import os
import statistics
import time

import boto3
import torch
from torch.utils.data import DataLoader, Dataset

import verbs3
import verbs3.safetensors
import verbs3.torch

SAMPLE_BYTES = 128 << 10
TENSOR_BYTES = 64 << 20


def make_weights(tensors):
    """A safetensors file of random bytes, where its tensors begin, and the tensors on the GPU."""
    held = torch.randint(0, 256, (tensors, TENSOR_BYTES), dtype=torch.uint8, device="cuda")
    places = {
        f"tensor-{at}": {"dtype": "U8", "shape": [TENSOR_BYTES], "data_offsets": [at * TENSOR_BYTES, (at + 1) * TENSOR_BYTES]}
        for at in range(tensors)
    }
    header = json.dumps(places).encode()
    header += b" " * (-len(header) % 8)
    body = len(header).to_bytes(8, "little") + header + held.cpu().numpy().tobytes()
    return body, 8 + len(header), held


def must_be_equal(loaded, held):
    for at in range(len(held)):
        if not torch.equal(loaded[f"tensor-{at}"], held[at]):
            raise SystemExit(f"tensor {at} is not what was put")


def seconds_of(call):
    torch.cuda.synchronize()
    start = time.perf_counter()
    result = call()
    torch.cuda.synchronize()
    return time.perf_counter() - start, result


def compare_weights(arguments, plain):
    body, base, held = make_weights(arguments.gib * (1 << 30) // TENSOR_BYTES)
    plain.upload_fileobj(io.BytesIO(body), arguments.bucket, "bench.safetensors")
    size = len(body)
    url = f"s3://{arguments.bucket}/bench.safetensors"
    paged = verbs3.connect(arguments.socket, memory="256MiB")
    pinned = verbs3.connect(arguments.socket, memory="256MiB", pin_for="cuda")
    page_locked = torch.empty(TENSOR_BYTES, dtype=torch.uint8, pin_memory=True)
    target = torch.empty(TENSOR_BYTES, dtype=torch.uint8, device="cuda")

    def by_boto3():
        whole = bytearray(size)
        view = memoryview(whole)
        # The transfer manager's threads, into memory that is there: the fastest that boto3 has.
        class Target(io.RawIOBase):
            at = 0

            def seekable(self):
                return True

            def writable(self):
                return True

            def seek(self, offset, whence=0):
                self.at = offset
                return offset

            def tell(self):
                return self.at

            def write(self, data):
                view[self.at : self.at + len(data)] = data
                self.at += len(data)
                return len(data)

        plain.download_fileobj(arguments.bucket, "bench.safetensors", Target())
        flat = torch.frombuffer(whole, dtype=torch.uint8)
        count = len(held)
        return {f"tensor-{at}": flat[base + at * TENSOR_BYTES : base + (at + 1) * TENSOR_BYTES].cuda() for at in range(count)}

    def to_cpu_and_over():
        loaded = verbs3.safetensors.load_file(url, reader=paged)
        return {name: tensor.cuda() for name, tensor in loaded.items()}

    def copy_alone():
        for _ in range(len(held)):
            target.copy_(page_locked, non_blocking=True)

    ways = {
        "boto3, then .cuda()": by_boto3,
        "load_file, then .cuda()": to_cpu_and_over,
        "load_file to the GPU": lambda: verbs3.safetensors.load_file(url, device="cuda", reader=paged),
        "the same, pinned": lambda: verbs3.safetensors.load_file(url, device="cuda", reader=pinned),
        "pinned memory alone": copy_alone,
    }
    taken = {way: [] for way in ways}
    for way, call in ways.items():
        _, loaded = seconds_of(call)
        if loaded:
            must_be_equal(loaded, held)
        del loaded
    for _ in range(arguments.rounds):
        for way, call in ways.items():
            cpu = time.process_time()
            seconds, loaded = seconds_of(call)
            taken[way].append((seconds, time.process_time() - cpu))
            if loaded:
                must_be_equal(loaded, held)
            del loaded
    for way, times in taken.items():
        seconds = [one for one, _ in times]
        rates = f"{size / max(seconds) / 1e9:.2f}–{size / min(seconds) / 1e9:.2f}"
        cpu = statistics.mean(one for _, one in times)
        print(f"{way:<26}{size / statistics.median(seconds) / 1e9:>8.2f} GB/s ({rates}), {cpu:.2f} s of CPU", flush=True)


class BotoSamples(Dataset):
    """What a training script has without the package: a client for each worker."""

    def __init__(self, endpoint, bucket, keys):
        self.endpoint, self.bucket, self.keys = endpoint, bucket, keys
        # A client that a child has from its parent would share the parent's connections.
        self.client, self.process = None, None

    def __len__(self):
        return len(self.keys)

    def __getitem__(self, at):
        if self.process != os.getpid():
            self.process = os.getpid()
            self.client = boto3.client("s3", endpoint_url=self.endpoint)
        body = self.client.get_object(Bucket=self.bucket, Key=self.keys[at])["Body"].read()
        return torch.frombuffer(bytearray(body), dtype=torch.uint8)


def as_tensor(view):
    return torch.frombuffer(bytearray(view), dtype=torch.uint8)


def compare_loaders(arguments, plain):
    wanted = []
    keys = [f"samples/{at:06}" for at in range(arguments.samples)]
    for key in keys:
        body = os.urandom(SAMPLE_BYTES)
        wanted.append(sum(body))
        plain.put_object(Bucket=arguments.bucket, Key=key, Body=body)
    os.environ["VERBS3_SOCKET"] = arguments.socket
    ours = verbs3.torch.ObjectDataset([f"s3://{arguments.bucket}/{key}" for key in keys], transform=as_tensor)
    ways = {"boto3": BotoSamples(arguments.endpoint, arguments.bucket, keys), "ObjectDataset": ours}
    for workers in (0, 1, 4, 8):
        rates = {way: [] for way in ways}
        loaders = {
            way: DataLoader(
                data, batch_size=64, num_workers=workers, pin_memory=True, persistent_workers=workers > 0
            )
            for way, data in ways.items()
        }
        # The first epoch starts the workers and warms; the others are in turns.
        for epoch in range(1 + arguments.rounds):
            for way, loader in loaders.items():
                start, sums = time.perf_counter(), []
                for batch in loader:
                    sums.append(batch.cuda(non_blocking=True).sum(dim=1, dtype=torch.int64))
                found = torch.cat(sums).tolist()
                if found != wanted:
                    raise SystemExit(f"{way} with {workers} workers: not what was put")
                if epoch:
                    rates[way].append(len(keys) / (time.perf_counter() - start))
        shown = ", ".join(f"{way} {statistics.median(each):,.0f}" for way, each in rates.items())
        ratio = statistics.median(rates["ObjectDataset"]) / statistics.median(rates["boto3"])
        print(f"{workers} workers, samples/s on the GPU: {shown}; {ratio:.1f} times", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("endpoint")
    parser.add_argument("socket")
    parser.add_argument("bucket")
    parser.add_argument("--gib", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--samples", type=int, default=4096)
    arguments = parser.parse_args()
    plain = boto3.client("s3", endpoint_url=arguments.endpoint)
    print(torch.cuda.get_device_name(), "torch", torch.__version__)
    compare_weights(arguments, plain)
    compare_loaders(arguments, plain)


if __name__ == "__main__":
    main()
