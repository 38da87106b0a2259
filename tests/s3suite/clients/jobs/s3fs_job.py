"""s3fs (fsspec): BUCKET, then `put FOLDER` or `read`; prints the digests of what it found. Keys from the environment."""

import hashlib
import json
import os
import sys

import s3fs

fs = s3fs.S3FileSystem(key=os.environ["AWS_ACCESS_KEY_ID"], secret=os.environ["AWS_SECRET_ACCESS_KEY"], endpoint_url=os.environ["AWS_ENDPOINT_URL"],
                       client_kwargs={"region_name": os.environ["AWS_REGION"]}, default_block_size=5 << 20)
bucket, verb = sys.argv[1], sys.argv[2]
found = {}
if verb == "put":
    fs.put(sys.argv[3] + "/", f"{bucket}/tree/", recursive=True)
else:
    for path in fs.find(f"{bucket}/tree"):
        # Through the file object: read-ahead and ranges, as a data loader reads.
        with fs.open(path, "rb") as file:
            found[path.removeprefix(f"{bucket}/tree/")] = hashlib.sha256(file.read()).hexdigest()
print(json.dumps({"version": s3fs.__version__, "found": found}))
