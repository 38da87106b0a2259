"""Objects for torch: data sets over keys and over tar shards, and checkpoints.

>>> import verbs3.torch
>>> shards = verbs3.torch.TarShards(["s3://train/shard-00.tar"])
>>> [sample["txt"] for sample in shards]
[b'sample 0', b'sample 1', b'sample 2', b'sample 3']
"""

from ._checkpoint import CheckpointReader, CheckpointWriter
from ._object_dataset import ObjectDataset
from ._tar_shards import TarShards

__all__ = ["CheckpointReader", "CheckpointWriter", "ObjectDataset", "TarShards"]
