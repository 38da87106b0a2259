"""s3torchconnector over its own client (the AWS common runtime): a checkpoint saved and loaded, a dataset read shuffled."""

SAMPLES = {str(number): 150_000 + 17 * number for number in range(20)}
CHECKPOINT_BYTES = 1500 * 1500 * 4


def test_a_checkpoint_and_a_dataset_cold_and_hot(torch_job, writer, reader, bucket, job):
    shown = job("s3torchconnector", "", "a checkpoint and a shuffled dataset")
    step = torch_job("connector_job.py")
    shown.version = step(writer, "save", f"s3://{bucket}/run")["version"]
    for name in ("cold", "hot"):
        with getattr(shown, name)(CHECKPOINT_BYTES + sum(SAMPLES.values())):
            assert step(reader, "load", f"s3://{bucket}/run")["found"] == SAMPLES
