#!/bin/sh
# Installs what `make run`, `make test`, `make test-java`, `make test-node`, `make observe`, `make alerts` and `make bench-peers` need and is missing; says nothing if nothing is.
#
#   scripts/install-deps.sh run     MariaDB's server, etcd
#   scripts/install-deps.sh test    the servers, MariaDB's command line client and its programs for dumps and backups, a C compiler for the race detector, libfaketime, Prometheus, PostgreSQL, RabbitMQ, PHP and Python with drivers for MySQL, Python with one for RabbitMQ, Node.js, curl, kcat, Chromium
#   scripts/install-deps.sh test-java  MariaDB's server, etcd, a JDK with a driver for MySQL and a reader of JSON
#   scripts/install-deps.sh test-node  MariaDB's server, etcd, Node.js, npm
#   scripts/install-deps.sh observe MariaDB's server, etcd, Prometheus
#   scripts/install-deps.sh alerts  MariaDB's server, etcd, Prometheus, Alertmanager
#   scripts/install-deps.sh peers   the servers, PostgreSQL, Redis, beanstalkd
#
#   TOCSIN_TEST_SERVER   in place of MariaDB's server, one that scripts/install-server.sh installs
#
# It uses apt-get, as root or through sudo. Elsewhere it says what to install and exits 1. Go itself is never installed.
set -eu
cd "$(dirname "$0")/.."

say() { echo "install-deps: $*" >&2; }

fail() {
	say "$*"
	exit 1
}

# The oldest Go that builds this module, "1.26", from go.mod.
wanted_go() { sed -n 's/^go \([0-9]*\.[0-9]*\).*/\1/p' go.mod; }

check_go() {
	command -v go >/dev/null || fail "go not found in PATH: install Go $(wanted_go) or newer from https://go.dev/dl/"
	# Asked in this folder, a Go with a toolchain of its own choosing answers for the one that it would run.
	have=$(go env GOVERSION 2>/dev/null) || have=$(GOTOOLCHAIN=local go version | awk '{ print $3 }')
	echo "${have#go} $(wanted_go)" | awk '{
		split($1, have, "."); split($2, want, ".")
		exit !(have[1] > want[1] || have[1] == want[1] && have[2] + 0 >= want[2] + 0)
	}' || fail "$have is too old: install Go $(wanted_go) or newer from https://go.dev/dl/"
}

# The server that is to be used in place of the system's, by its name in scripts/install-server.sh; "" if none is.
other_server() { [ "${TOCSIN_TEST_SERVER:-mariadb}" = mariadb ] || echo "$TOCSIN_TEST_SERVER"; }

# Finds a program in PATH, and where an ordinary user's PATH does not look: the same folders as internal/devserver.
find_program() {
	(
		PATH="$PATH:/usr/sbin:/usr/local/sbin:/usr/libexec:/usr/local/mysql/bin:/opt/homebrew/bin"
		command -v "$1"
	) >/dev/null
}

has_server() { find_program mariadbd || find_program mysqld; }

# TOCSIN_ETCD names another etcd than the one in PATH.
has_etcd() { [ -n "${TOCSIN_ETCD:-}" ] || find_program etcd; }

has_client() { command -v mariadb >/dev/null; }

has_dump() { command -v mariadb-dump >/dev/null; }

has_backup() { command -v mariadb-backup >/dev/null; }

# A compiler without the C library's headers is of no use.
has_compiler() {
	cc=$(go env CC)
	command -v "${cc%% *}" >/dev/null && echo '#include <stdlib.h>' | ${cc} -E - >/dev/null 2>&1
}

# Some tests run a server whose clock is wrong.
has_faketime() { [ -n "$(find /usr/lib -name libfaketimeMT.so.1 2>/dev/null | head -n 1)" ]; }

has_prometheus() { find_program prometheus; }

has_alertmanager() { find_program prometheus-alertmanager || find_program alertmanager; }

has_php() { command -v php >/dev/null && php -m | grep -q '^pdo_mysql$'; }

# Debian's Python has Debian's modules, another one in PATH may not: the same places as docs/languages_test.go.
has_pymysql() { python3 -c 'import pymysql' 2>/dev/null || /usr/bin/python3 -c 'import pymysql' 2>/dev/null; }

has_pika() { python3 -c 'import pika' 2>/dev/null || /usr/bin/python3 -c 'import pika' 2>/dev/null; }

has_node() { command -v node >/dev/null; }

# Debian's program in PATH becomes the user rabbitmq: the same places as internal/devserver.
has_rabbitmq() { [ -e /usr/lib/rabbitmq/bin/rabbitmq-server ] || find_program rabbitmq-server; }

has_curl() { command -v curl >/dev/null; }

has_kcat() { command -v kcat >/dev/null; }

# The same names as api/console/chromium_test.go.
has_chromium() { command -v chromium >/dev/null || command -v chromium-browser >/dev/null || command -v google-chrome >/dev/null; }

has_npm() { command -v npm >/dev/null; }

has_jdk() { command -v javac >/dev/null; }

has_jdbc() { [ -e /usr/share/java/mariadb-java-client.jar ]; }

has_gson() { [ -e /usr/share/java/gson.jar ]; }

# In PATH, or among Debian's PostgreSQL versions: the same places as internal/devserver.
has_peer() { command -v "$1" >/dev/null || [ -n "$(find /usr/lib/postgresql/*/bin /usr/sbin /usr/local/sbin /usr/local/bin -name "$1" 2>/dev/null | head -n 1)" ]; }

# What is missing for $1, as names of Debian packages.
missing() {
	[ -n "$(other_server)" ] || has_server || echo mariadb-server-core
	has_etcd || echo etcd-server
	case $1 in test | observe | alerts) has_prometheus || echo prometheus ;; esac
	[ "$1" != alerts ] || has_alertmanager || echo prometheus-alertmanager
	if [ "$1" = test ]; then
		has_client || echo mariadb-client-core
		has_dump || echo mariadb-client
		has_backup || echo mariadb-backup
		has_compiler || echo gcc libc6-dev
		has_faketime || echo libfaketime
		has_peer postgres || echo postgresql
		has_rabbitmq || echo rabbitmq-server
		has_php || echo php-cli php-mysql
		has_pymysql || echo python3-pymysql
		has_pika || echo python3-pika
		has_node || echo nodejs
		has_curl || echo curl
		has_kcat || echo kcat
		has_chromium || echo chromium
	fi
	if [ "$1" = test-java ]; then
		has_jdk || echo default-jdk-headless
		has_jdbc || echo libmariadb-java
		has_gson || echo libgoogle-gson-java
	fi
	if [ "$1" = test-node ]; then
		has_node || echo nodejs
		has_npm || echo npm
	fi
	if [ "$1" = peers ]; then
		has_peer postgres || echo postgresql
		has_peer redis-server || echo redis-server
		has_peer beanstalkd || echo beanstalkd
	fi
}

# Runs a command as root.
as_root() {
	if [ "$(id -u)" -eq 0 ]; then
		"$@"
	elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
		sudo -n "$@"
	elif command -v sudo >/dev/null && [ -t 0 ]; then
		sudo "$@"
	else
		return 1
	fi
}

apt() { as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@" >&2; }

known() { [ -n "$(apt-cache search --names-only "^$1\$" 2>/dev/null)" ]; }

# Releases before Debian 12 and Ubuntu 24.04 have a version in the name: mariadb-server-core-10.6.
package_name() {
	if known "$1"; then
		echo "$1"
	else
		apt-cache search --names-only "^$1-[0-9.]+\$" 2>/dev/null | awk '{ print $1 }' | sort -V | tail -n 1 | grep . || echo "$1"
	fi
}

package_names() { for name in "$@"; do package_name "$name"; done; }

# Debian's package postgresql makes a database cluster and runs it, unless this file of postgresql-common says otherwise. It
# says so for as long as this script runs.
cluster_conf=/etc/postgresql-common/createcluster.conf
without_cluster() {
	install postgresql-common && as_root cp -p "$cluster_conf" "$cluster_conf.kept" || return
	trap 'as_root mv "$cluster_conf.kept" "$cluster_conf"' EXIT
	as_root sh -c "echo 'create_main_cluster = false' >>$cluster_conf"
}

# Lists that are empty or out of date show as an unknown package or a failed download: fetch them then, not each time.
install() {
	case " $* " in *" postgresql "*) without_cluster || return ;; esac
	for name in "$@"; do
		[ -n "$(apt-cache search --names-only "^$name(-[0-9.]+)?\$" 2>/dev/null)" ] || { apt update && break; }
	done
	# shellcheck disable=SC2046 # one word a package
	apt install -y --no-install-recommends $(package_names "$@") && return
	# shellcheck disable=SC2046
	apt update && apt install -y --no-install-recommends $(package_names "$@")
}

# Says that package $1 started a service $2 on port $3, if it did.
tell_service() {
	if systemctl is-active --quiet "$2" 2>/dev/null; then
		say "the package $1 also started a service on port $3; if you don't need it: systemctl disable --now $2"
	fi
}

# The target of the Makefile that wants $1.
target() { if [ "$1" = peers ]; then echo bench-peers; else echo "$1"; fi; }

main() {
	case "${1:-test}" in run | test | test-java | test-node | peers | observe | alerts) ;; *) fail "want run, test, test-java, test-node, peers, observe or alerts, not $1" ;; esac
	check_go
	[ -z "$(other_server)" ] || scripts/install-server.sh "$(other_server)" >/dev/null
	# shellcheck disable=SC2046 # one word a package
	set -- "${1:-test}" $(missing "${1:-test}")
	goal=$1
	shift
	[ $# -gt 0 ] || return 0
	command -v apt-get >/dev/null || fail "missing for make $(target "$goal"), and there is no apt-get here: install $* (named as in Debian), e.g. from https://mariadb.org/download/, https://etcd.io/docs/latest/install/ and https://prometheus.io/download/"
	as_root true || fail "missing for make $(target "$goal"), and only root may install it: apt-get install --no-install-recommends $*"
	say "apt-get install $*"
	added=" $* "
	install "$@" || fail "could not install $*: see above"
	# shellcheck disable=SC2046
	set -- $(missing "$goal")
	[ $# -eq 0 ] || fail "installed, and still not found: $*"
	# Tocsin starts servers of its own, on other ports.
	case $added in *" etcd-server "*) tell_service etcd-server etcd 2379 ;; esac
	case $added in *" rabbitmq-server "*) tell_service rabbitmq-server rabbitmq-server 5672 ;; esac
	case $added in *" prometheus "*) tell_service prometheus prometheus 9090 ;; esac
	case $added in *" prometheus-alertmanager "*) tell_service prometheus-alertmanager prometheus-alertmanager 9093 ;; esac
}

main "$@"
