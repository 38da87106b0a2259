"""Puts objects into the store that the API is tested over, and has jobs run that are over; prints, as JSON, what there is.

    python seed.py ENV     the endpoint, as tests/s3suite/run.sh reads one; wants boto3

Knows no document: tested.py puts the names into it.
"""

import json
import sys

import boto3
from botocore.config import Config

BUCKET = "api-tested"
KEYS = ["k0", "k1", "k2", "folder/a b"]

with open(sys.argv[1]) as file:
    ENV = dict(line.rstrip("\n").split("=", 1) for line in file if "=" in line)
S3 = boto3.client(
    "s3",
    endpoint_url=ENV["ENDPOINT"],
    aws_access_key_id=ENV["ACCESS_KEY"],
    aws_secret_access_key=ENV["SECRET_KEY"],
    region_name="us-east-1",
    config=Config(s3={"addressing_style": "path"}),
)
try:
    S3.create_bucket(Bucket=BUCKET)
except S3.exceptions.BucketAlreadyOwnedByYou:
    pass
for number, key in enumerate(KEYS):
    S3.put_object(Bucket=BUCKET, Key=key, Body=bytes([number]) * 300_000)
print(json.dumps({"bucket": BUCKET, "keys": KEYS}))
