"""runai-model-streamer, what vLLM loads weights with: a safetensors file of many tensors, loaded twice."""

import hashlib
import json
import struct

from client import boto
from data import MIB, made

# Around the streamer's own chunk of 2 MiB, and many small ones as a model's norms are.
TENSORS = {"embedding": 6 * MIB, "layer.0.weight": 2 * MIB, "layer.1.weight": 2 * MIB + 4096, "head": 9 * MIB} | {f"norm.{n}": 4096 for n in range(40)}


def safetensors() -> bytes:
    """The format by hand: length of the header, header, tensors one behind the other."""
    header, data = {}, b""
    for name, size in TENSORS.items():
        header[name] = {"dtype": "U8", "shape": [size], "data_offsets": [len(data), len(data) + size]}
        data += made(size, name)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def test_a_model_is_loaded_cold_and_hot(torch_job, writer, reader, bucket, job):
    boto(writer).put_object(Bucket=bucket, Key="model/model.safetensors", Body=safetensors())
    shown = job("runai-model-streamer", "", "a model loaded from safetensors")
    wanted = {name: hashlib.sha256(made(size, name)).hexdigest() for name, size in TENSORS.items()}
    load = torch_job("streamer_job.py", RUNAI_STREAMER_S3_USE_VIRTUAL_ADDRESSING="0", RUNAI_STREAMER_CONCURRENCY="4")
    for name in ("cold", "hot"):
        with getattr(shown, name)(sum(TENSORS.values())):
            done = load(reader, f"s3://{bucket}/model/model.safetensors")
        assert done["found"] == wanted
    shown.version = done["version"]
