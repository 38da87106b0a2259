"""Runs a job's steps in one process, since importing torch and its clients takes longer than the steps themselves.

One JSON list on a line of stdin, the endpoint's URL and the step's arguments; one JSON object on a line of stdout. What
libraries print goes to stderr.
"""

import json
import os
import sys


def serve(do) -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        url, *arguments = json.loads(line)
        os.environ["AWS_ENDPOINT_URL"] = os.environ["S3_ENDPOINT_URL"] = url
        print(json.dumps(do(*arguments)), file=answers, flush=True)
