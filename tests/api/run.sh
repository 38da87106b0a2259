#!/usr/bin/env bash
#! Holds a coordinator's API against the OpenAPI document that it serves, by schemathesis: what it is asked follows from the document,
#! what is no request by it is refused, and every answer is one that it describes.
#
#   run.sh CLUSTER.toml DIR     the file that `verbs3 dev` writes into its folder; DIR takes the document and the report
#
# About half a minute. SEED=N asks other questions.
set -euo pipefail

HERE=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
[ $# -eq 2 ] || { sed -n 's/^#   //p' "$0" >&2; exit 2; }
CLUSTER=$(readlink -f "$1") DIR=$2
VENV=$("$HERE/../testbed/venv.sh" api)
mkdir -p "$DIR"
URL=$("$VENV/bin/python" "$HERE/proof.py" "$CLUSTER")
"$VENV/bin/python" "$HERE/proof.py" "$CLUSTER" /v1/openapi.json >"$DIR/served.json"
# Without the proof: it is the hooks' to send, and what happens without one has tests of its own.
"$VENV/bin/python" -c 'import json, sys; document = json.load(sys.stdin); del document["security"]; print(json.dumps(document))' \
  <"$DIR/served.json" >"$DIR/openapi.json"
# The same every time, unless another one is asked for: a suite that finds something new on a day when nothing was changed stops all.
SEED=${SEED:-1}
echo "api: SEED=$SEED"
cd "$DIR"
# Whether names are mounted the document can't say, so what it allows may be refused; other methods and missing proofs have tests
# of their own.
CHECKS=status_code_conformance,content_type_conformance,response_schema_conformance,negative_data_rejection,every_answer_is_proved,nothing_breaks
API_CLUSTER=$CLUSTER SCHEMATHESIS_HOOKS=$HERE/proof.py PYTHONDONTWRITEBYTECODE=1 \
  exec "$VENV/bin/st" run "$DIR/openapi.json" --url "$URL" --checks "$CHECKS" --phases examples,coverage,fuzzing \
  --max-examples "${EXAMPLES:-30}" --max-time "${SECONDS_MAX:-30}" --seed "$SEED" --request-timeout 20 --warnings off \
  --suppress-health-check all --report json --report-json-path "$DIR/report.json"
