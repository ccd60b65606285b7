#!/bin/sh
# Sets the broker's options from the variables of RabbitMQ's image and from mounted files, then runs the broker.
#
#   RABBITMQ_DEFAULT_USER, RABBITMQ_DEFAULT_PASS, RABBITMQ_DEFAULT_VHOST   like LEVERET_DEFAULT_…, which take precedence
#   …_FILE after any of these names, LEVERET_SSL_OPTIONS_PASSWORD_FILE     path of a file with the value, for secrets
#   /etc/leveret/leveret.yaml                                              the configuration, if the file exists
#   /etc/leveret/definitions.json                                          the definitions, if the file exists
set -eu
# Definitions contain password hashes, and the volume may also be mounted elsewhere.
umask 027

fail() {
    echo "leveret: $1" >&2
    exit 1
}

# value_of VARIABLE: prints the value of a variable, or the contents of the file that VARIABLE_FILE names.
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

# set_option VARIABLE [OTHER]: exports the variable with its own value, or else with the value of OTHER.
set_option() {
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

set_option LEVERET_DEFAULT_USER RABBITMQ_DEFAULT_USER
set_option LEVERET_DEFAULT_PASS RABBITMQ_DEFAULT_PASS
set_option LEVERET_DEFAULT_VHOST RABBITMQ_DEFAULT_VHOST
set_option LEVERET_SSL_OPTIONS_PASSWORD

if [ -z "${LEVERET_CONFIG_FILE:-}" ] && [ -e /etc/leveret/leveret.yaml ]; then
    export LEVERET_CONFIG_FILE=/etc/leveret/leveret.yaml
fi
if [ -z "${LEVERET_LOAD_DEFINITIONS:-}" ] && [ -e /etc/leveret/definitions.json ]; then
    export LEVERET_LOAD_DEFINITIONS=/etc/leveret/definitions.json
fi

# With options or a subcommand only, as in `docker run leveret --port 5673`, run the program leveret.
case ${1:-} in
    -* | check-config | config-reference) set -- leveret "$@" ;;
esac
exec "$@"
