#!/usr/bin/env bash
# Installs what the tests, the demo and the benchmarks need beside Rust, and nothing that is there.
#
#   install.sh                       build tools, Postgres, Java, Kafka
#   install.sh debezium              the same, and Debezium on Kafka Connect
#   install.sh postgres 14 16 ...    the same, and further Postgres versions
#
# Packages come from the distribution through apt, jars from Maven. Jars are kept in
# ${WALPOST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/walpost}. Safe to run again; a second run with
# nothing missing takes a fraction of a second.
set -euo pipefail

cache=${WALPOST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/walpost}
kafka_version=4.3.1
debezium_version=3.6.1.Final
declare -A postgres_versions=([14]=14.19.0 [15]=15.18.0 [16]=16.14.0 [17]=17.10.0 [18]=18.4.0)

say() { printf 'install: %s\n' "$*"; }
die() { printf 'install: %s\n' "$*" >&2; exit 1; }
have() { command -v "$1" >/dev/null 2>&1; }

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif have sudo; then
        sudo "$@"
    else
        die "needs root or sudo for: $*"
    fi
}

apt_updated=
apt_install() {
    have apt-get || die "no apt-get here; install the equivalent of these packages by hand: $*"
    if [ -z "$apt_updated" ]; then
        as_root apt-get update -qq
        apt_updated=1
    fi
    say "apt: $*"
    as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "$@" >/dev/null
}

java_is_recent() {
    local major
    have java || return 1
    major=$(java -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p')
    [ "${major:-0}" -ge 17 ]
}

postgres_bin() {
    if [ -n "${WALPOST_TEST_PG_BIN:-}" ]; then
        [ -x "$WALPOST_TEST_PG_BIN/postgres" ]
    else
        compgen -G '/usr/lib/postgresql/*/bin/postgres' >/dev/null
    fi
}

# The tests start their own servers; a cluster of the distribution's would only hold port 5432.
install_postgres() {
    if [ ! -e /etc/postgresql-common ]; then
        apt_install postgresql-common
        as_root sed -i 's/^#*create_main_cluster.*/create_main_cluster = false/' \
            /etc/postgresql-common/createcluster.conf
    fi
    apt_install postgresql-15
}

# The test starts its own; the distribution's is not to run.
install_pgbouncer() {
    apt_install pgbouncer
    if have systemctl; then as_root systemctl disable --now pgbouncer >/dev/null 2>&1 || true; fi
}

packages() {
    local missing=()
    have cmake || missing+=(cmake)
    have c++ || missing+=(g++)
    have cc || missing+=(gcc)
    have make || missing+=(make)
    have perl || missing+=(perl)
    have pkg-config || missing+=(pkg-config)
    have curl || missing+=(curl)
    have openssl || missing+=(openssl)
    # a wall clock that jumps, for `make torture`
    compgen -G '/usr/lib/*/faketime/libfaketimeMT.so.1' >/dev/null || missing+=(libfaketime)
    have setpriv || missing+=(util-linux)
    java_is_recent || missing+=(openjdk-17-jre-headless)
    if [ ! -e "$cache/kafka-$kafka_version/complete" ] || [ $# -gt 0 ]; then
        have mvn || missing+=(maven)
    fi
    if [ "${1:-}" = postgres ]; then
        have unzip || missing+=(unzip)
        have xz || missing+=(xz-utils)
    fi
    [ ${#missing[@]} = 0 ] || apt_install "${missing[@]}"
    postgres_bin || install_postgres
    [ -x /usr/sbin/pgbouncer ] || install_pgbouncer
}

# fetch NAME FOLDER ARTIFACT...: the artifacts and all they depend on, as jars in FOLDER.
# `complete` is written last, so that an interrupted download is taken up again.
fetch() {
    local name=$1 folder=$2
    shift 2
    [ -e "$folder/complete" ] && return
    say "Maven: $name into $folder"
    rm -rf "$folder"
    mkdir -p "$folder"
    {
        echo '<project><modelVersion>4.0.0</modelVersion>'
        echo '<groupId>walpost</groupId><artifactId>jars</artifactId><version>1</version><dependencies>'
        local artifact group id version
        for artifact in "$@"; do
            IFS=: read -r group id version <<<"$artifact"
            echo "<dependency><groupId>$group</groupId><artifactId>$id</artifactId><version>$version</version></dependency>"
        done
        echo '</dependencies></project>'
    } >"$folder/pom.xml"
    mvn -q -B -Dstyle.color=never -f "$folder/pom.xml" dependency:copy-dependencies -DincludeScope=runtime \
        -DoutputDirectory="$folder/libs" || die "Maven could not fetch $name"
    touch "$folder/complete"
}

kafka() {
    fetch "Kafka $kafka_version" "$cache/kafka-$kafka_version" \
        "org.apache.kafka:kafka_2.13:$kafka_version" "org.apache.kafka:kafka-tools:$kafka_version"
}

# Kafka's own jars hold Connect already; Debezium is a folder of plugins beside them.
debezium() {
    fetch "Debezium $debezium_version" "$cache/debezium-$debezium_version" \
        "io.debezium:debezium-connector-postgres:$debezium_version"
}

postgres() {
    local major=$1 version machine work
    version=${postgres_versions[$major]:-}
    [ -n "$version" ] || die "no Postgres $major here; known: ${!postgres_versions[*]}"
    local folder=$cache/postgres-$major
    [ "$(cat "$folder/complete" 2>/dev/null)" = "$version" ] && return
    case $(uname -m) in
        x86_64) machine=amd64 ;;
        aarch64) machine=arm64v8 ;;
        *) die "no Postgres $major binaries for $(uname -m)" ;;
    esac
    say "Maven: Postgres $version into $folder"
    work=$(mktemp -d)
    mvn -q -B -Dstyle.color=never dependency:copy -DoutputDirectory="$work" -Dartifact="io.zonky.test.postgres:embedded-postgres-binaries-linux-$machine:$version" ||
        die "Maven could not fetch Postgres $version"
    rm -rf "$folder"
    mkdir -p "$folder"
    unzip -q -o "$work"/*.jar '*.txz' -d "$work"
    tar -xJf "$work"/*.txz -C "$folder"
    rm -rf "$work"
    echo "$version" >"$folder/complete"
}

mkdir -p "$cache"
packages "$@"
kafka
case ${1:-} in
    '') ;;
    debezium) debezium ;;
    postgres)
        shift
        [ $# -gt 0 ] || die "usage: install.sh postgres VERSION..."
        for major in "$@"; do postgres "$major"; done
        ;;
    *) die "usage: install.sh [debezium | postgres VERSION...]" ;;
esac
