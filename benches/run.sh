#!/usr/bin/env bash
# Builds the release binary and measures: first the router alone, then the whole, between a real
# Postgres and a real Kafka that are started for it. benches/README.md says how to read the output.
#
#   BENCH_PARTS=throughput,formats,latency   what to measure
#   BENCH_ROWS=N                             rows of each backlog
#   BENCH_ROUNDS=N                           how often each contender reads it (default 3)
#   BENCH_LATENCY_SECONDS=N                  how long each rate is kept (default 10)
#   BENCH_PROPERTIES="name=value ..."       further connector properties for walpost
#   BENCH_DEBEZIUM=1                         Debezium on Kafka Connect beside it
set -euo pipefail
cd "$(dirname "$0")/.."

export WALPOST_CACHE=${WALPOST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/walpost}
cargo=${CARGO:-cargo}

tests/services/install.sh
if [ "${BENCH_DEBEZIUM:-0}" != 0 ]; then tests/services/install.sh debezium; fi

"$cargo" bench --locked --quiet --bench route

# The test kit's Kafka is tuned to start fast; this one shall run as it would in production.
export _JAVA_OPTIONS="-XX:-UseSerialGC -XX:+UseG1GC -XX:TieredStopAtLevel=4 -Xmx1g"
"$cargo" bench --locked --quiet --bench e2e
