#!/usr/bin/env bash
# From raw events to recommendations over HTTP, with the commands that a user would type. Called by `make demo`.
#   DATA     empty (a synthetic shop), a data set of `turret data fetch`, or the path of events
#   PREPARE  further options of `turret data prepare`, such as "--user customer --item sku --on-bad drop"
#   ONCE     stop after the answer
#   PORT     of the service (8000)
set -euo pipefail

port=${PORT:-8000}
url=http://127.0.0.1:$port
work=var/demo
service=

run() {
  printf '\n$ turret %s\n' "$*"
  turret "$@"
}

stop_service() {
  trap - EXIT INT TERM
  if [ -n "$service" ]; then
    kill -TERM "$service" 2>/dev/null || true
    wait "$service" || true
  fi
}
trap stop_service EXIT
trap 'stop_service; echo; exit 0' INT TERM

# Before the training, so that a taken port fails early. The admin calls have the next port.
for wanted in "$port" "$((port + 1))"; do
  if ! python -c "import socket; socket.create_server(('127.0.0.1', $wanted)).close()" 2>/dev/null; then
    echo "make demo: port $wanted is taken; stop its user, or choose another port: make demo PORT=8010" >&2
    exit 1
  fi
done

rm -rf "$work"
mkdir -p "$work"

known_set() {
  case "$1" in movielens-100k | movielens-1m | movielens-32m | online-retail) return 0 ;; esac
  return 1
}

if [ -z "${DATA:-}" ]; then
  source=$work/shop
  run data synth "$source"
elif known_set "$DATA"; then
  run data fetch "$DATA" --to var/data
  source=var/data/$DATA
  if [ "$DATA" = online-retail ]; then PREPARE=${PREPARE:---quantity quantity --on-bad drop}; fi
elif [ -e "$DATA" ]; then
  source=$DATA
  PREPARE=${PREPARE:---on-bad drop} # dropped rows are counted and shown
else
  echo "make demo: DATA=$DATA is neither a file or folder nor one of movielens-100k, movielens-1m," \
    "movielens-32m, online-retail." >&2
  exit 1
fi

# shellcheck disable=SC2086 # PREPARE holds several words
run data prepare "$source" --to "$work/prepared" ${PREPARE:-}
run train --data "$work/prepared" --run "$work/run" --experiment demo
run evaluate "$work/run"
run export "$work/run" --bundles "$work/bundles"

printf '\n$ turret serve --bundles %s --port %s &\n' "$work/bundles" "$port"
turret serve --bundles "$work/bundles" --port "$port" --store "sqlite:///$work/history.sqlite" &
service=$!

# The customers of the log are known to the service; the first of them is asked for.
run history load --data "$work/prepared" --store "sqlite:///$work/history.sqlite"
user=$(python -c "from turret.data.prepared import PreparedData; print(PreparedData.open('$work/prepared').users.id(0))")
run recommend --user "$user" --url "$url" --wait 30

if [ -z "${ONCE:-}" ]; then
  printf '\nOpen %s/#try?user=%s in a browser. The calls are described at %s/docs;\n' "$url" "$user" "$url"
  printf 'send one from another terminal:\n'
  printf '  curl -s %s/v1/recommend -H "Content-Type: application/json" -d %s\n' "$url" "'{\"user_id\": \"$user\", \"k\": 3}'"
  printf 'Ctrl-C stops it.\n'
  wait "$service"
fi
