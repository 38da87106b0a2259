"""s3torchconnector: `save PREFIX` writes a checkpoint and samples, `load PREFIX` reads and compares them."""

import hashlib
import os

import torch
from s3torchconnector import S3Checkpoint, S3ClientConfig, S3MapDataset, __version__
from s3torchconnector._s3client import S3Client
from serving import serve


def sample(number: int) -> bytes:
    return hashlib.shake_256(f"sample {number}".encode()).digest(150_000 + 17 * number)


def state() -> dict:
    torch.manual_seed(7)
    return {"weight": torch.randn(1500, 1500), "step": 12}


def do(verb: str, prefix: str) -> dict:
    config = S3ClientConfig(force_path_style=True)
    region, endpoint = os.environ["AWS_REGION"], os.environ["AWS_ENDPOINT_URL"]
    checkpoint = S3Checkpoint(region, endpoint=endpoint, s3client_config=config)
    found = {}
    if verb == "save":
        with checkpoint.writer(f"{prefix}/checkpoint.pt") as out:
            torch.save(state(), out)
        bucket, folder = prefix.removeprefix("s3://").split("/", 1)
        client = S3Client(region, endpoint=endpoint, s3client_config=config)
        for number in range(20):
            with client.put_object(bucket, f"{folder}/samples/{number:02d}") as out:
                out.write(sample(number))
    else:
        with checkpoint.reader(f"{prefix}/checkpoint.pt") as file:
            loaded = torch.load(file, weights_only=True)
        assert loaded["step"] == 12 and torch.equal(loaded["weight"], state()["weight"]), "another checkpoint came back"
        dataset = S3MapDataset.from_prefix(f"{prefix}/samples/", region=region, endpoint=endpoint, s3client_config=config)
        for each in torch.utils.data.DataLoader(dataset, batch_size=None, shuffle=True):
            number, data = int(each.key.rsplit("/", 1)[1]), each.read()
            assert data == sample(number), f"sample {number} came back otherwise"
            found[str(number)] = len(data)
    return {"version": __version__, "found": found}


serve(do)
