#!/usr/bin/env bash
#! Holds a coordinator's API against the OpenAPI document that it serves, by schemathesis: what it is asked follows from the document,
#! what is no request by it is refused, and every answer is one that it describes.
#
#   run.sh CLUSTER.toml ENV DIR     the file that `verbs3 dev` writes into its folder, and its S3 endpoint; DIR takes the document and
#                                   the report
#
# Fails where an operation had no request that was accepted. About half a minute. SEED=N asks other questions.
set -euo pipefail

HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
[ $# -eq 3 ] || { sed -n 's/^#   //p' "$0" >&2; exit 2; }
CLUSTER=$(readlink -f "$1") ENV=$(readlink -f "$2") DIR=$3
CLIENTS=$("$HERE/../testbed/venv.sh")
VENV=$("$HERE/../testbed/venv.sh" api)
mkdir -p "$DIR"
URL=$("$VENV/bin/python" "$HERE/proof.py" "$CLUSTER")
"$VENV/bin/python" "$HERE/proof.py" "$CLUSTER" /v1/openapi.json >"$DIR/served.json"
"$CLIENTS/bin/python" "$HERE/seed.py" "$ENV" >"$DIR/seeded.json"
PYTHONDONTWRITEBYTECODE=1 "$VENV/bin/python" "$HERE/tested.py" "$CLUSTER" "$DIR/served.json" "$DIR/seeded.json" >"$DIR/openapi.json"
# The same every time, unless another one is asked for: a suite that finds something new on a day when nothing was changed stops all.
SEED=${SEED:-1}
echo "api: SEED=$SEED"
cd "$DIR"
# Whether names are mounted the document can't say, so what it allows may be refused; other methods and missing proofs have tests
# of their own.
CHECKS=status_code_conformance,content_type_conformance,response_schema_conformance,negative_data_rejection,every_answer_is_proved,nothing_breaks
API_CLUSTER=$CLUSTER SCHEMATHESIS_HOOKS=$HERE/proof.py PYTHONDONTWRITEBYTECODE=1 \
  "$VENV/bin/st" run "$DIR/openapi.json" --url "$URL" --checks "$CHECKS" --phases examples,coverage,fuzzing \
  --max-examples "${EXAMPLES:-30}" --max-time "${SECONDS_MAX:-30}" --seed "$SEED" --request-timeout 60 \
  --suppress-health-check all --report json --report-json-path "$DIR/report.json"
"$VENV/bin/python" "$HERE/tested.py" check "$DIR/openapi.json" "$DIR/report.json"
