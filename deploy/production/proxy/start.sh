#!/bin/sh
# Starts nginx with TLS if there are certificates, else without.
set -eu
fail() {
  echo "turret: $*" >&2
  exit 1
}
tls=/run/secrets/tls
mkdir -p /tmp/nginx
cp /deploy/proxy/plain.conf /tmp/nginx/listen.conf
if [ -e $tls/fullchain.pem ] || [ -e $tls/privkey.pem ]; then
  for file in fullchain.pem privkey.pem; do
    [ -e $tls/$file ] || fail "TLS needs deploy/secrets/tls/fullchain.pem and privkey.pem, and $file is missing"
    [ -r $tls/$file ] || fail "the proxy can't read deploy/secrets/tls/$file as user $(id -u): chmod 444 it, in a" \
      "folder that only you can enter"
  done
  cp /deploy/proxy/tls.conf /tmp/nginx/listen.conf
fi
nginx -q -t -c /deploy/proxy/nginx.conf || fail "nginx refuses its configuration or the certificate, see above;" \
  "deploy/secrets/tls needs a PEM chain and its key"
exec nginx -c /deploy/proxy/nginx.conf -g 'daemon off;'
