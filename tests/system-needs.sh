#!/bin/sh
# Sees to what pip cannot install.
#
#   system-needs.sh python        Python 3.11+ that can make virtual environments
#   system-needs.sh java          a JDK 17+ and Maven, for the tests with the Java client
#   system-needs.sh find-python   prints the Python that will be used
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
        java)
            has_jdk || first_available openjdk-17-jdk-headless openjdk-21-jdk-headless
            has_maven || echo maven
            ;;
    esac
}

say_command() {
    if command -v apt-get >/dev/null 2>&1; then
        echo "sudo apt-get update && sudo apt-get install -y $(apt_packages "$1" | tr '\n' ' ')"
        return
    fi
    case $1 in
        python) dnf="python3.12" brew="python@3.12" ;;
        java) dnf="java-21-openjdk-devel maven" brew="openjdk@21 maven" ;;
    esac
    if command -v dnf >/dev/null 2>&1; then
        echo "sudo dnf install -y $dnf"
    else
        echo "brew install $brew"
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

case ${1:-} in
    python) need python "Python 3.11 or newer with its venv module" find_python ;;
    java) need java "a JDK 17 or newer and Maven" has_java ;;
    find-python) find_python ;;
    *)
        echo "usage: $0 python | java | find-python" >&2
        exit 2
        ;;
esac
