# shellcheck shell=bash disable=SC2034
# For deploy/backup and deploy/restore: `profile` is `production`, or `plain` for docker-compose.yml; .env selects it.
# tool ACTION runs deploy/production/pack.py in a container with the volumes of the service.
services=$(docker compose --profile admin config --services 2>/dev/null) || services=
case " ${services//$'\n'/ } " in
  *" admin "*) profile=production container=admin ;;
  *" service "*) profile=plain container=service ;;
  *) fail "docker compose finds no Compose file of Turret; COMPOSE_FILE in .env has to name deploy/production.yml or" \
    "docker-compose.yml" ;;
esac

tool() { docker compose run --rm -T --no-deps --entrypoint python "$container" -c "$(cat deploy/production/pack.py)" "$@"; }
