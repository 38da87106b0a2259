"""mosaicml-streaming: `write REMOTE SAMPLES` makes shards there, `read REMOTE LOCAL` iterates them and gives their samples' digests."""

import hashlib

import streaming
from serving import serve


def do(verb: str, remote: str, argument: str) -> dict:
    found = {}
    if verb == "write":
        columns = {"number": "int", "bytes": "bytes"}
        with streaming.MDSWriter(out=remote, columns=columns, compression="zstd", hashes=["xxh64"], size_limit=1 << 20) as out:
            for number in range(int(argument)):
                out.write({"number": number, "bytes": hashlib.shake_256(str(number).encode()).digest(30_000 + number)})
    else:
        for sample in streaming.StreamingDataset(remote=remote, local=argument, batch_size=1, shuffle=True, validate_hash="xxh64"):
            found[str(sample["number"])] = hashlib.sha256(sample["bytes"]).hexdigest()
    return {"version": streaming.__version__, "found": found}


serve(do)
