#!/bin/sh
# Runs `turret` with the address of the Redis; the password is in a file, and neither in a command line nor in the
# settings of the container.
set -eu
. /deploy/secret.sh
password=$(read_secret /run/secrets/redis/password)
export TURRET_STORE="redis://:$password@redis:6379/0"
# shellcheck disable=SC2086 # TURRET_COMMAND holds several words
exec turret ${TURRET_COMMAND:-} "$@"
