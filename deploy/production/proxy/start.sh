#!/bin/sh
# Starts nginx with TLS if there are certificates, else without. TURRET_ADDRESS_RATE and TURRET_ADDRESS_REQUESTS limit an
# address; TURRET_LOAD_BALANCER names the addresses of proxies in front, whose X-Forwarded-For is trusted.
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
rate=${TURRET_ADDRESS_RATE:-200}
requests=${TURRET_ADDRESS_REQUESTS:-64}
for number in "$rate" "$requests"; do
  case $number in
    '' | *[!0-9]* | 0* | ???????*)
      fail "TURRET_ADDRESS_RATE and TURRET_ADDRESS_REQUESTS can't be '$number'; give a number from 1 to 999999"
      ;;
  esac
done
sed -e "s/rate=200r/rate=${rate}r/" -e "s/burst=400/burst=$((2 * rate))/" -e "s/address 64;/address $requests;/" \
  /deploy/proxy/limits.conf >/tmp/nginx/limits.conf
for address in ${TURRET_LOAD_BALANCER:-}; do echo "set_real_ip_from $address;"; done >>/tmp/nginx/limits.conf
[ -z "${TURRET_LOAD_BALANCER:-}" ] || echo "real_ip_header X-Forwarded-For;" >>/tmp/nginx/limits.conf
nginx -q -t -c /deploy/proxy/nginx.conf || fail "nginx refuses its configuration or the certificate, see above;" \
  "deploy/secrets/tls needs a PEM chain and its key, and TURRET_LOAD_BALANCER addresses such as 10.0.0.0/8"
exec nginx -c /deploy/proxy/nginx.conf -g 'daemon off;'
