#!/bin/sh
# Gives the broker what users of RabbitMQ's image are used to set, and becomes it.
#
#   RABBITMQ_DEFAULT_USER, RABBITMQ_DEFAULT_PASS, RABBITMQ_DEFAULT_VHOST   as LEVERET_DEFAULT_…, which come before them
#   …_FILE behind any of these, and LEVERET_SSL_OPTIONS_PASSWORD_FILE      the value stands in that file: a secret
#   /etc/leveret/leveret.yaml                                              the configuration, if it is there
#   /etc/leveret/definitions.json                                          definitions, if they are there
set -eu
# Definitions hold password hashes, and the volume may be mounted elsewhere too.
umask 027

fail() {
    echo "leveret: $1" >&2
    exit 1
}

# What a variable says, or the file that its _FILE names, without the line end behind it.
value_of() {
    eval "value=\${$1:-} file=\${$1_FILE:-}"
    if [ -n "$file" ]; then
        [ -z "$value" ] || fail "$1 and $1_FILE are both set; set one"
        [ -r "$file" ] || fail "$1_FILE names $file, which cannot be read"
        value=$(cat "$file")
        [ -n "$value" ] || fail "$1_FILE names $file, which is empty"
    fi
    printf "%s\n" "$value"
}

# take VARIABLE [OTHER]: sets the variable to what it says, or else the other one.
take() {
    variable=$1
    for source in "$@"; do
        found=$(value_of "$source")
        if [ -n "$found" ]; then
            export "$variable=$found"
            break
        fi
    done
    for source in "$@"; do
        unset "${source}_FILE"
    done
}

take LEVERET_DEFAULT_USER RABBITMQ_DEFAULT_USER
take LEVERET_DEFAULT_PASS RABBITMQ_DEFAULT_PASS
take LEVERET_DEFAULT_VHOST RABBITMQ_DEFAULT_VHOST
take LEVERET_SSL_OPTIONS_PASSWORD

if [ -z "${LEVERET_CONFIG_FILE:-}" ] && [ -e /etc/leveret/leveret.yaml ]; then
    export LEVERET_CONFIG_FILE=/etc/leveret/leveret.yaml
fi
if [ -z "${LEVERET_LOAD_DEFINITIONS:-}" ] && [ -e /etc/leveret/definitions.json ]; then
    export LEVERET_LOAD_DEFINITIONS=/etc/leveret/definitions.json
fi

# `docker run leveret --port 5673` and `docker run leveret check-config` mean the program leveret.
case ${1:-} in
    -* | check-config | config-reference) set -- leveret "$@" ;;
esac
exec "$@"
