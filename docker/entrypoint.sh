#!/bin/sh
# Gives the broker what users of RabbitMQ's image are used to set, and becomes it.
#
#   RABBITMQ_DEFAULT_USER, RABBITMQ_DEFAULT_PASS, RABBITMQ_DEFAULT_VHOST   as LEVERET_DEFAULT_…, which come before them
#   LEVERET_…_FILE, RABBITMQ_DEFAULT_…_FILE                                the value stands in that file: a secret
#   /etc/leveret/leveret.yaml                                              the configuration, if it is there
#   /etc/leveret/definitions.json                                          definitions, if they are there
set -eu

fail() {
    echo "leveret: $1" >&2
    exit 1
}

# What a secret's file says, without the line end behind it.
read_secret() {
    variable=$1 file=$2
    [ -r "$file" ] || fail "$variable names $file, which cannot be read"
    cat "$file"
}

for name in USER PASS VHOST; do
    ours=LEVERET_DEFAULT_$name theirs=RABBITMQ_DEFAULT_$name
    for variable in "$ours" "$theirs"; do
        eval "value=\${$variable:-} file=\${${variable}_FILE:-}"
        if [ -n "$file" ]; then
            [ -z "$value" ] || fail "$variable and ${variable}_FILE are both set; set one"
            value=$(read_secret "${variable}_FILE" "$file")
        fi
        if [ -n "$value" ]; then
            export "$ours=$value"
            break
        fi
    done
    unset "$theirs" "${theirs}_FILE" "${ours}_FILE"
done

if [ -z "${LEVERET_CONFIG_FILE:-}" ] && [ -e /etc/leveret/leveret.yaml ]; then
    export LEVERET_CONFIG_FILE=/etc/leveret/leveret.yaml
fi
if [ -z "${LEVERET_LOAD_DEFINITIONS:-}" ] && [ -e /etc/leveret/definitions.json ]; then
    export LEVERET_LOAD_DEFINITIONS=/etc/leveret/definitions.json
fi

# `docker run leveret --port 5673` means the broker with that option.
case ${1:-} in
    -*) set -- leveret "$@" ;;
esac
exec "$@"
