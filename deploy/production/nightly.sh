#!/bin/sh
# Retrains every so many seconds, until the container stops: nightly.sh SECONDS
set -eu
case "${1:-}" in
  '' | *[!0-9]* | 0)
    echo "turret: TURRET_RETRAIN_SECONDS can't be '${1:-}'; give a number of seconds, such as 86400" >&2
    exit 2
    ;;
esac
trap 'kill "$!" 2>/dev/null; exit 0' TERM INT
while :; do
  # It records its decision, also a failure; the next run goes on with one that was interrupted.
  /bin/sh /deploy/service.sh &
  wait "$!" || true
  sleep "$1" &
  wait "$!" || true
done
