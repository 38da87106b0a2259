"""The engines that engines.py compares: each opens its client once, then reads all objects of a set."""

import asyncio
import importlib.metadata
import io
import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from urllib.parse import urlsplit

REGION = "us-east-1"
THREADS = 8
MIB = 1 << 20


@dataclass(frozen=True)
class ObjectSet:
    """Where objects of one size are, and by what they are reached."""

    endpoint: str
    socket: str
    bucket: str
    keys: tuple[str, ...]
    size: int

    @property
    def bytes_in_all(self):
        return len(self.keys) * self.size

    @property
    def ranges(self):
        return [(self.bucket, key, (0, self.size)) for key in self.keys]

    @property
    def urls(self):
        return [f"s3://{self.bucket}/{key}" for key in self.keys]


def open_boto3(objects):
    import boto3

    client = boto3.client("s3", endpoint_url=objects.endpoint)
    return lambda: [_get_whole(client, objects.bucket, key) for key in objects.keys]


def open_boto3_threads(objects):
    """Objects at once; a single one by the transfer manager, in parts of 8 MiB."""
    import boto3
    from botocore.config import Config

    client = boto3.client("s3", endpoint_url=objects.endpoint, config=Config(max_pool_connections=16))
    pool = ThreadPoolExecutor(THREADS)

    def download():
        target = io.BytesIO()
        client.download_fileobj(objects.bucket, objects.keys[0], target)
        return [target.getbuffer()]

    def get_all():
        return list(pool.map(lambda key: _get_whole(client, objects.bucket, key), objects.keys))

    return download if len(objects.keys) == 1 else get_all


def open_obstore(objects):
    from obstore.store import S3Store

    store = S3Store(
        objects.bucket,
        endpoint=objects.endpoint,
        region=REGION,
        access_key_id=os.environ["AWS_ACCESS_KEY_ID"],
        secret_access_key=os.environ["AWS_SECRET_ACCESS_KEY"],
        virtual_hosted_style_request=False,
        client_options={"allow_http": True},
    )

    loop = asyncio.new_event_loop()

    async def get(key):
        return await (await store.get_async(key)).bytes_async()

    async def get_all(found):
        found += await asyncio.gather(*map(get, objects.keys))

    def read():
        # Not asyncio.run, nor by a result: Python 3.11 has it format a task's repr, with all bytes of its result.
        found = []
        loop.run_until_complete(get_all(found))
        return found

    return read


def open_s3torchconnector(objects):
    from s3torchconnector import S3ClientConfig, S3MapDataset

    dataset = S3MapDataset.from_objects(
        objects.urls,
        region=REGION,
        endpoint=objects.endpoint,
        s3client_config=S3ClientConfig(force_path_style=True),
    )
    return lambda: [dataset[at].read() for at in range(len(dataset))]


def open_model_streamer(objects):
    os.environ["AWS_ENDPOINT_URL"] = objects.endpoint
    os.environ["AWS_REGION"] = REGION
    os.environ["RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING"] = "0"
    from runai_model_streamer import FileStreamer
    from runai_model_streamer.file_streamer import FileChunks

    streamer = FileStreamer().__enter__()

    def read():
        streamer.stream_files([FileChunks.contiguous(at, url, 0, [objects.size]) for at, url in enumerate(objects.urls)])
        found = {at: tensor.numpy() for at, _, tensor in streamer.get_chunks()}
        return [found[at] for at in range(len(objects.keys))]

    return read


def open_nixl(objects):
    return _open_nixl(objects, {})


def open_nixl_crt(objects):
    return _open_nixl(objects, {"crtMinLimit": str(8 * MIB)})


def _open_nixl(objects, more):
    import time

    import numpy

    # Not `nixl`: it takes the wheel for CUDA 13 where torch is for that, whose plugin wants libcuobjclient.so.1.
    # No package that pip installs beside it has that.
    from nixl_cu12._api import nixl_agent, nixl_agent_config

    agent = nixl_agent("engines", nixl_agent_config(backends=[]))
    agent.create_backend(
        "OBJ",
        {
            "bucket": objects.bucket,
            "endpoint_override": objects.endpoint,
            "scheme": urlsplit(objects.endpoint).scheme,
            "region": REGION,
            "access_key": os.environ["AWS_ACCESS_KEY_ID"],
            "secret_key": os.environ["AWS_SECRET_ACCESS_KEY"],
            "use_virtual_addressing": "false",
        }
        | more,
    )
    memory = numpy.zeros(objects.bytes_in_all, numpy.uint8)
    places = [memory[at * objects.size :][: objects.size] for at in range(len(objects.keys))]
    agent.register_memory([(memory.ctypes.data, memory.nbytes, 0, "")], "DRAM", backends=["OBJ"])
    named = [(0, objects.size, at, key) for at, key in enumerate(objects.keys)]
    agent.register_memory(named, "OBJ", backends=["OBJ"])
    here = agent.get_xfer_descs([(place.ctypes.data, objects.size, 0) for place in places], "DRAM")
    there = agent.get_xfer_descs([(0, objects.size, at) for at in range(len(objects.keys))], "OBJ")

    def read():
        handle = agent.initialize_xfer("READ", here, there, "engines", backends=["OBJ"])
        state = agent.transfer(handle)
        while state == "PROC":
            time.sleep(0.0002)  # A loop without a pause would take the core that the reads need.
            state = agent.check_xfer_state(handle)
        agent.release_xfer_handle(handle)
        if state != "DONE":
            raise RuntimeError(f"the transfer ended as {state}")
        return places

    return read


def open_lmcache(objects):
    """LMCache's connector names a bucket by the host alone, so the endpoint has to be a name, not an address."""
    os.environ.setdefault("LMCACHE_LOG_LEVEL", "WARNING")
    os.environ.setdefault("LMCACHE_TRACK_USAGE", "false")
    import threading

    if urlsplit(objects.endpoint).hostname.replace(".", "").isdigit():
        raise ValueError("it has no path style: give an ENDPOINT by name, see gateway.domains")

    import torch
    from lmcache.v1.config import LMCacheEngineConfig
    from lmcache.v1.metadata import LMCacheMetadata
    from lmcache.v1.storage_backend.connector import CreateConnector
    from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend

    tokens = 256
    config = LMCacheEngineConfig.from_defaults(
        chunk_size=tokens,
        max_local_cpu_size=2 * objects.bytes_in_all / (1 << 30),
        extra_config={
            "s3_region": REGION,
            "disable_tls": urlsplit(objects.endpoint).scheme == "http",
            "s3_prefer_http2": False,
            "s3_num_io_threads": THREADS,
            "save_chunk_meta": False,
            "aws_access_key_id": os.environ["AWS_ACCESS_KEY_ID"],
            "aws_secret_access_key": os.environ["AWS_SECRET_ACCESS_KEY"],
        },
    )
    # One layer of keys and values in two bytes: a chunk is as long as an object.
    shape = (1, 2, tokens, 1, objects.size // (2 * tokens * 2))
    metadata = LMCacheMetadata(
        model_name="engines", world_size=1, local_world_size=1, worker_id=0, local_worker_id=0,
        kv_dtype=torch.bfloat16, kv_shape=shape, chunk_size=tokens,
    )  # fmt: skip
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    backend = LocalCPUBackend(config, metadata, dst_device="cpu")
    address = f"s3://{objects.bucket}.{urlsplit(objects.endpoint).netloc}"
    connector = CreateConnector(address, loop, backend, config, metadata)
    keys = [_ChunkKey(key) for key in objects.keys]
    held = []

    def read():
        while held:
            held.pop().ref_count_down()
        found = asyncio.run_coroutine_threadsafe(connector.batched_get(keys), loop).result()
        if None in found:
            raise RuntimeError(f"{found.count(None)} of {len(keys)} chunks were not there, says the connector")
        held.extend(found)
        return [memory.byte_array for memory in found]

    return read


@dataclass(frozen=True)
class _ChunkKey:
    """Stands for LMCache's CacheEngineKey, of which a connector asks the name alone."""

    name: str

    def to_string(self):
        return self.name


def open_verbs3_client(objects):
    import verbs3

    client = verbs3.client("s3", endpoint_url=objects.endpoint, socket=objects.socket, memory="256MiB")
    return lambda: [_get_whole(client, objects.bucket, key) for key in objects.keys]


def open_verbs3_read(objects):
    reader = _connect(objects)
    return lambda: [reader.read(*each) for each in objects.ranges]


def open_verbs3_read_many(objects):
    """Many objects at once; a single one in ranges of 4 MiB, as `read_into` does, but without its copy."""
    reader = _connect(objects)
    ranges = objects.ranges
    if len(ranges) == 1:
        starts = range(0, objects.size, 4 * MIB)
        ranges = [(objects.bucket, objects.keys[0], (at, min(at + 4 * MIB, objects.size))) for at in starts]

    def read():
        found = dict(reader.read_many(ranges))
        return [found[at] for at in range(len(ranges))]

    return read


def _connect(objects):
    import verbs3

    return verbs3.connect(objects.socket, memory=2 * objects.bytes_in_all)


def _get_whole(client, bucket, key):
    return client.get_object(Bucket=bucket, Key=key)["Body"].read()


# By name: the package whose version is shown, and what opens the engine.
ENGINES = {
    "boto3": ("boto3", open_boto3),
    f"boto3, {THREADS} threads": ("boto3", open_boto3_threads),
    "obstore": ("obstore", open_obstore),
    "s3torchconnector": ("s3torchconnector", open_s3torchconnector),
    "runai-model-streamer": ("runai-model-streamer", open_model_streamer),
    "NIXL OBJ": ("nixl-cu12", open_nixl),
    "NIXL OBJ, CRT": ("nixl-cu12", open_nixl_crt),
    "LMCache S3Connector": ("lmcache", open_lmcache),
    "verbs3.client": ("verbs3", open_verbs3_client),
    "verbs3 read": ("verbs3", open_verbs3_read),
    "verbs3 read_many": ("verbs3", open_verbs3_read_many),
}


def version_of(package):
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "none"
