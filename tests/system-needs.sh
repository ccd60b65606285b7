#!/bin/sh
# Sees to what pip cannot install.
#
#   system-needs.sh python        Python 3.11+ that can make virtual environments
#   system-needs.sh java          a JDK 17+ and Maven, for the tests with the Java client
#   system-needs.sh chromium      Chromium, for the tests of the UI
#   system-needs.sh etcd          etcd, for the tests of replication
#   system-needs.sh slapd         slapd of OpenLDAP, for the tests of LDAP
#   system-needs.sh helm          Helm, for the tests of the chart: built by Go, where that is there, into .venv/cache
#   system-needs.sh go            Go, for the tests with rabbit-hole
#   system-needs.sh docker        Docker's daemon and debootstrap, for the tests of the image
#   system-needs.sh offer WHAT    the same, but is content if it may not install it
#   system-needs.sh has WHAT      whether java, jdk, chromium, etcd, slapd, helm, go or docker is there
#   system-needs.sh how WHAT …    prints the command that installs all of these
#   system-needs.sh find-python   prints the Python that will be used
#   system-needs.sh find-chromium prints the Chromium that will be used
#   system-needs.sh rabbitmqadmin FILE
#                                 RabbitMQ's command line tool for its HTTP API, of which FILE becomes a copy; status 3
#                                 where there is neither the tool nor apt-get to fetch it with
#
# Missing on Debian or Ubuntu as root: installs it. Elsewhere: prints the command that would, and fails.
set -eu

is_new_python() {
    "$1" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

find_python() {
    for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
        if is_new_python "$candidate"; then
            echo "$candidate"
            return
        fi
    done
    return 1
}

# Maven runs the JDK of JAVA_HOME where that is set, else the one on the path.
has_jdk() {
    javac=javac
    if [ -n "${JAVA_HOME:-}" ]; then javac=$JAVA_HOME/bin/javac; fi
    version=$("$javac" -version 2>&1) || return 1
    major=$(echo "$version" | sed -n 's/^javac \([0-9]*\).*/\1/p')
    [ "${major:-0}" -ge 17 ]
}

has_maven() {
    command -v mvn >/dev/null 2>&1
}

has_java() {
    has_jdk && has_maven
}

# The first one has no window to draw, and takes a third less time.
find_chromium() {
    for candidate in chromium-headless-shell chromium chromium-browser google-chrome; do
        if command -v "$candidate"; then return; fi
    done
    return 1
}

has_etcd() {
    command -v etcd >/dev/null 2>&1 && command -v etcdctl >/dev/null 2>&1
}

# It is not on the path of everybody.
has_slapd() {
    PATH=$PATH:/usr/sbin:/usr/local/sbin:/usr/libexec
    command -v slapd >/dev/null 2>&1
}

# Where the tests look for it, too.
helm_cache=.venv/cache

has_go() {
    command -v go >/dev/null 2>&1
}

has_helm() {
    command -v helm >/dev/null 2>&1 || [ -x "$helm_cache/helm" ]
}

build_helm() {
    if ! command -v go >/dev/null 2>&1; then
        echo "Leveret's chart is tested with Helm. Install it, or Go 1.24 or newer, which builds it." >&2
        exit 1
    fi
    echo "Building Helm with Go; this takes minutes, once." >&2
    mkdir -p "$helm_cache"
    GOBIN=$(cd "$helm_cache" && pwd) go install helm.sh/helm/v3/cmd/helm@v3.19.0
}

has_docker() {
    # The daemon and debootstrap are not on the path of everybody.
    PATH=$PATH:/usr/sbin
    for program in docker dockerd debootstrap; do
        command -v "$program" >/dev/null 2>&1 || return 1
    done
}

# The first of the named packages that this release of the distribution has.
first_available() {
    for package in "$@"; do
        if apt-cache show "$package" >/dev/null 2>&1; then
            echo "$package"
            return
        fi
    done
    echo "$1"
}

apt_packages() {
    case $1 in
        python)
            if command -v python3 >/dev/null 2>&1 && ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
                python=$(first_available python3.13 python3.12 python3.11)
                echo "$python $python-venv"
            else
                echo "python3 python3-venv"
            fi
            ;;
        jdk) first_available openjdk-17-jdk-headless openjdk-21-jdk-headless ;;
        java)
            has_jdk || first_available openjdk-17-jdk-headless openjdk-21-jdk-headless
            has_maven || echo maven
            ;;
        chromium) first_available chromium-headless-shell chromium chromium-browser ;;
        etcd) echo "etcd-server etcd-client" ;;
        slapd) echo slapd ;;
        helm | go) echo golang-go ;;
        docker) echo "docker.io debootstrap" ;;
    esac
}

dnf_packages() {
    case $1 in
        python) echo python3.12 ;;
        jdk) echo java-21-openjdk-devel ;;
        java) echo java-21-openjdk-devel maven ;;
        slapd) echo openldap-servers ;;
        go) echo golang ;;
        docker) echo moby-engine debootstrap ;;
        *) echo "$1" ;;
    esac
}

brew_packages() {
    case $1 in
        python) echo python@3.12 ;;
        jdk) echo openjdk@21 ;;
        java) echo openjdk@21 maven ;;
        slapd) echo openldap ;;
        *) echo "$1" ;;
    esac
}

# Prints each package once that `$1_packages` names for the programs.
all_packages() {
    manager=$1
    shift
    for each in "$@"; do "${manager}_packages" "$each"; done | tr ' ' '\n' | awk 'NF && !seen[$0]++' | paste -sd ' ' -
}

say_command() {
    if command -v apt-get >/dev/null 2>&1; then
        echo "sudo apt-get update && sudo apt-get install -y $(all_packages apt "$@")"
    elif command -v dnf >/dev/null 2>&1; then
        echo "sudo dnf install -y $(all_packages dnf "$@")"
    else
        echo "brew install $(all_packages brew "$@")"
    fi
}

need() {
    what=$1 description=$2 check=$3
    if "$check" >/dev/null; then return; fi
    if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then
        echo "Installing $description with apt-get."
        apt-get update -qq
        # Each word is a package.
        # shellcheck disable=SC2046
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(apt_packages "$what")
        if "$check" >/dev/null; then return; fi
    fi
    {
        echo "Leveret needs $description. Install it, for example with:"
        echo "    $(say_command "$what")"
        if [ "$what" = java ] && [ -n "${JAVA_HOME:-}" ]; then echo "(JAVA_HOME is $JAVA_HOME.)"; fi
    } >&2
    exit 1
}

has() {
    case $1 in
        java) has_java ;;
        jdk) has_jdk ;;
        chromium) find_chromium >/dev/null ;;
        etcd) has_etcd ;;
        slapd) has_slapd ;;
        helm) has_helm ;;
        go) has_go ;;
        docker) has_docker ;;
    esac
}

# Where it may not be installed, the tests leave out what needs it, and say so.
offer() {
    if has "$1"; then return; fi
    if [ "$1" = helm ]; then
        if command -v go >/dev/null 2>&1; then sh "$0" helm || :; fi
        return
    fi
    if command -v apt-get >/dev/null 2>&1 && [ "$(id -u)" = 0 ]; then sh "$0" "$1" || :; fi
}

is_python_script() {
    head -n 1 "$1" | grep -q '^#!.*python'
}

# Extracts the tool from the package, which is not installed: only the script is needed.
fetch_rabbitmqadmin() {
    directory=$(mktemp -d)
    # apt-get fetches as a user of its own where it can.
    chmod 755 "$directory"
    if (
        cd "$directory"
        apt-get download -q rabbitmq-server || {
            # Nobody may have asked for the lists of packages yet.
            [ "$(id -u)" = 0 ] && apt-get update -q && apt-get download -q rabbitmq-server
        }
        dpkg-deb -x rabbitmq-server_*.deb unpacked
    ) >"$directory/log" 2>&1; then
        for found in "$directory/unpacked/usr/bin/rabbitmqadmin" \
            "$directory"/unpacked/usr/lib/rabbitmq/lib/*/plugins/rabbitmq_management-*/priv/www/cli/rabbitmqadmin; do
            if [ -f "$found" ] && is_python_script "$found"; then
                keep_script "$found" "$1"
                rm -rf "$directory"
                return
            fi
        done
        echo "The package rabbitmq-server of this release has no rabbitmqadmin in Python." >"$directory/log"
    fi
    cat "$directory/log" >&2
    rm -rf "$directory"
    return 1
}

# Several may do it at once: the copy appears whole.
keep_script() {
    mkdir -p "$(dirname "$2")"
    cp "$1" "$2.$$"
    mv "$2.$$" "$2"
}

need_rabbitmqadmin() {
    if [ -f "$1" ]; then return; fi
    installed=$(command -v rabbitmqadmin || true)
    if [ -n "$installed" ] && is_python_script "$installed"; then
        keep_script "$installed" "$1"
    elif command -v apt-get >/dev/null 2>&1 && command -v dpkg-deb >/dev/null 2>&1; then
        echo "Fetching rabbitmqadmin, for the tests, out of the package rabbitmq-server with apt-get." >&2
        if ! fetch_rabbitmqadmin "$1"; then
            echo "The tests need rabbitmqadmin: see above, or put it on the path." >&2
            exit 1
        fi
    else
        echo "There is no rabbitmqadmin on the path and no apt-get to fetch it with: the tests with it are skipped." >&2
        exit 3
    fi
}

case ${1:-} in
    rabbitmqadmin) need_rabbitmqadmin "${2:?usage: $0 rabbitmqadmin FILE}" ;;
    python) need python "Python 3.11 or newer with its venv module" find_python ;;
    java) need java "a JDK 17 or newer and Maven" has_java ;;
    chromium) need chromium "Chromium" find_chromium ;;
    etcd) need etcd "etcd" has_etcd ;;
    slapd) need slapd "slapd of OpenLDAP" has_slapd ;;
    helm) has_helm || build_helm ;;
    go) need go Go has_go ;;
    docker) need docker "Docker and debootstrap" has_docker ;;
    offer) offer "${2:?usage: $0 offer WHAT}" ;;
    has) has "${2:?usage: $0 has WHAT}" ;;
    how)
        shift
        say_command "$@"
        ;;
    find-python) find_python ;;
    find-chromium) find_chromium ;;
    *)
        echo "usage: $0 python | java | chromium | etcd | slapd | helm | go | docker | find-python | find-chromium | rabbitmqadmin FILE" >&2
        exit 2
        ;;
esac
