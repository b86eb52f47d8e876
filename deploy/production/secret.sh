# shellcheck shell=sh
# read_secret FILE prints a secret; a faulty one ends the container with a sentence.
read_secret() {
  fault=
  remedy="delete it, and deploy/setup makes another"
  if ! [ -e "$1" ]; then
    fault="is missing"
    remedy="deploy/setup makes it"
  elif ! [ -f "$1" ] || ! [ -r "$1" ]; then
    fault="can't be read by user $(id -u)"
    remedy="chmod 444 it, in a folder that only you can enter"
  else
    secret=$(cat "$1")
    case $secret in *[!A-Za-z0-9_-]*) fault="has characters other than letters, digits, - and _" ;; esac
    if [ ${#secret} -lt 16 ] || [ ${#secret} -gt 128 ]; then fault="has to have 16 to 128 characters"; fi
  fi
  if [ -n "$fault" ]; then
    echo "turret: the secret ${1#/run/secrets/} $fault. On the host it is in deploy/secrets (or TURRET_SECRETS);" \
      "$remedy" >&2
    return 1
  fi
  printf '%s\n' "$secret"
}
