#!/bin/sh
# Starts the Redis with the password of a file, as the user 999. With a word: `healthy` is the health check, `cli ...` a
# client; `empty`, `clear` and `load` are for deploy/restore.
set -eu
as_redis() { setpriv --reuid=999 --regid=999 --clear-groups "$@"; }

# Makes an append-only file of the snapshot on standard input: a Redis that has to append ignores a snapshot.
load() {
  chown -R 0:0 /data
  cat >/data/dump.rdb
  chown -R 999:999 /data
  as_redis redis-server --port 0 --unixsocket /data/load.sock --dir /data --appendonly no --save '' \
    --logfile /data/load.log &
  server=$!
  local_cli() { as_redis redis-cli -s /data/load.sock "$@" 2>/dev/null; }
  until [ "$(local_cli ping)" = PONG ]; do
    if ! kill -0 $server 2>/dev/null; then
      tail -n 2 /data/load.log >&2
      exit 1
    fi
    sleep 0.2
  done
  local_cli config set appendonly yes >/dev/null
  while local_cli info persistence | grep -qE 'aof_rewrite_(in_progress|scheduled):1'; do sleep 0.2; done
  local_cli info persistence | grep -q aof_last_bgrewrite_status:ok
  local_cli shutdown nosave || true
  wait $server || true
  chown -R 0:0 /data
  rm -f /data/dump.rdb /data/load.log /data/load.sock
  chown -R 999:999 /data
}

case "${1:-}" in
  empty)
    # 3: it holds something; other statuses are errors.
    content=$(ls -A /data)
    [ -z "$content" ] || exit 3
    exit
    ;;
  clear)
    # Without further capabilities root may only remove its own.
    chown -R 0:0 /data
    find /data -mindepth 1 -delete
    exit
    ;;
  load)
    load
    exit
    ;;
esac

. /deploy/secret.sh
password=$(read_secret /run/secrets/redis/password)
case "${1:-}" in
  healthy) REDISCLI_AUTH=$password redis-cli ping | grep -qx PONG ;;
  cli)
    shift
    REDISCLI_AUTH=$password exec redis-cli --no-auth-warning "$@"
    ;;
  *)
    chown -R 999:999 /data
    exec setpriv --reuid=999 --regid=999 --clear-groups redis-server - --bind 0.0.0.0 "$@" <<CONFIGURATION
requirepass $password
CONFIGURATION
    ;;
esac
