"""What a client finds in its environment alone: CLIENT FILE. FILE has the environments, by name; prints which ones could read.

Each is tried in a forked child. The object is called as the environment; one whose name begins with `put` is written.
"""

import importlib
import json
import os
import signal
import sys
from pathlib import Path

BUCKET = "train"
MODULES = {"boto3": "boto3", "awscli": "awscli.clidriver", "s3fs": "s3fs", "pyarrow": "pyarrow.fs", "s3torchconnector": "s3torchconnector"}


def try_boto3(library, key):
    s3 = library.client("s3")
    if key.startswith("put"):
        s3.put_object(Bucket=BUCKET, Key=key, Body=b"hello")
    else:
        assert s3.get_object(Bucket=BUCKET, Key=key)["Body"].read() == b"hello"


def try_awscli(library, key):
    operation, body = ("put-object", ["--body", "hello"]) if key.startswith("put") else ("get-object", ["/dev/stderr"])
    Path("hello").write_text("hello")
    driver = library.create_clidriver()
    assert driver.main(["s3api", operation, "--bucket", BUCKET, "--key", key, *body]) == 0


def try_s3fs(library, key):
    files = library.S3FileSystem()
    if key.startswith("put"):
        files.pipe_file(f"{BUCKET}/{key}", b"hello")
    else:
        assert files.cat_file(f"{BUCKET}/{key}") == b"hello"


def try_pyarrow(library, key):
    files, path = library.FileSystem.from_uri(f"s3://{BUCKET}/{key}?allow_delayed_open=true")
    if key.startswith("put"):
        with files.open_output_stream(path) as out:
            out.write(b"hello")
    else:
        assert files.open_input_stream(path).read() == b"hello"


def try_s3torchconnector(library, key):
    config = library.S3ClientConfig(force_path_style=True)
    if key.startswith("put"):
        with library.S3Checkpoint("us-east-1", s3client_config=config).writer(f"s3://{BUCKET}/{key}") as out:
            out.write(b"hello")
    else:
        dataset = library.S3MapDataset.from_objects([f"s3://{BUCKET}/{key}"], region="us-east-1", s3client_config=config)
        assert dataset[0].read() == b"hello"


def try_in_child(key, variables):
    child = os.fork()
    if child == 0:
        status = 1
        try:
            # The common runtime tries for a minute where it distrusts a certificate.
            signal.alarm(20)
            os.environ.clear()
            os.environ.update(variables)
            globals()[f"try_{client}"](importlib.import_module(MODULES[client]), key)
            status = 0
        except BaseException as error:
            print(f"{key}: {type(error).__name__}: {error}"[:500], file=sys.stderr, flush=True)
        os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


client, environments = sys.argv[1], json.loads(Path(sys.argv[2]).read_text())
# These look at variables, or set one, when they are imported.
if client not in ("pyarrow", "awscli"):
    importlib.import_module(MODULES[client])
print(json.dumps({key: try_in_child(key, variables) for key, variables in environments.items()}))
