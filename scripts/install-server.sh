#!/bin/sh
# Installs a server beside whatever this machine has: a package of another Debian and the libraries it needs, unpacked
# into a folder of its own. FOLDER/PROGRAM runs it with those libraries. Nothing else on the machine changes, and root is
# not needed: apt-get downloads with lists of its own, dpkg-deb unpacks.
#
#   scripts/install-server.sh NAME     installs unless that is done; prints the folder
#
#   NAME          PROGRAM   from
#   mysql         mysqld    Debian unstable: MySQL 9.7
#   mariadb-11.8  mariadbd  Debian 13: MariaDB 11.8
#   etcd-3.5      etcd      Debian 13: etcd 3.5
#
#   TOCSIN_NAME_DIR        the folder, with the name as in TOCSIN_MYSQL_DIR and TOCSIN_MARIADB_11_8_DIR.
#                          Default: /var/lib/tocsin-NAME for root, else ~/.cache/tocsin/NAME
#   TOCSIN_DEBIAN_MIRROR   where to download from. Default: http://deb.debian.org/debian
#   TOCSIN_DEBIAN_KEYRING  the keys that sign it. Default: those of the package debian-archive-keyring
#
# To upgrade a server, remove its folder first. A start that is interrupted leaves FOLDER.new, which the next start
# removes.
set -eu

mirror=${TOCSIN_DEBIAN_MIRROR:-http://deb.debian.org/debian}
keyring=${TOCSIN_DEBIAN_KEYRING:-/usr/share/keyrings/debian-archive-keyring.gpg}

say() { echo "install-server: $*" >&2; }

fail() {
	say "$*"
	exit 1
}

# Sets what is to be installed: title, suite, package, its program's path in the package, and the program's own options.
choose() {
	name=$1
	case "$name" in
	mysql) title="MySQL 9.7" suite=unstable package=mysql-server-core program=usr/sbin/mysqld ;;
	mariadb-11.8) title="MariaDB 11.8" suite=trixie package=mariadb-server-core program=usr/sbin/mariadbd ;;
	etcd-3.5) title="etcd 3.5" suite=trixie package=etcd-server program=usr/bin/etcd ;;
	*) fail "want mysql, mariadb-11.8 or etcd-3.5, not $name" ;;
	esac
	base=
	case "$program" in usr/sbin/*) base='--basedir="$root/usr"' ;; esac
	variable=TOCSIN_$(echo "$name" | tr 'a-z.-' 'A-Z__')_DIR
	eval "dir=\${$variable:-}"
}

# internal/devserver looks in the same folders.
default_dir() {
	if [ "$(id -u)" -eq 0 ]; then
		echo "/var/lib/tocsin-$name"
	else
		[ -n "${XDG_CACHE_HOME:-}${HOME:-}" ] || fail "HOME is not set: set $variable to a folder of yours"
		echo "${XDG_CACHE_HOME:-$HOME/.cache}/tocsin/$name"
	fi
}

installed() { [ -x "$dir/${program##*/}" ]; }

check_tools() {
	otherwise="install $title by other means and set $variable to the folder of its ${program##*/}"
	[ "$(uname -s)" = Linux ] || fail "this script is for Linux: $otherwise"
	for tool in apt-get dpkg dpkg-deb flock; do
		command -v "$tool" >/dev/null || fail "there is no $tool here: $otherwise"
	done
	[ -r "$keyring" ] || fail "$keyring is missing, and without it nothing from Debian can be checked: apt-get install debian-archive-keyring"
}

# The folder's parent is there and writable, and the folder itself does not hold something else.
check_dir() {
	mkdir -p "$(dirname "$dir")" 2>/dev/null && [ -w "$(dirname "$dir")" ] || fail "can't write to $(dirname "$dir"): set $variable to a folder of yours"
	[ ! -e "$dir" ] || rmdir "$dir" 2>/dev/null || fail "$dir exists and holds no ${program##*/}: remove it, or set $variable to another folder"
}

# apt-get with lists, a cache and a state of its own, in which nothing is installed.
apt() {
	apt-get -q -y \
		-o Dir::Etc::SourceList="$new/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null \
		-o Dir::State="$new/apt" -o Dir::State::Lists="$new/apt/lists" -o Dir::State::Status="$new/apt/status" \
		-o Dir::Cache="$new/apt" -o Dir::Cache::Archives="$new/apt/archives" \
		-o APT::Architecture="$(dpkg --print-architecture)" -o APT::Architectures="$(dpkg --print-architecture)" \
		-o APT::Sandbox::User= -o APT::Update::Error-Mode=any \
		-o Acquire::Languages=none -o Acquire::Retries=3 -o Acquire::http::Timeout=20 "$@"
}

download() {
	mkdir -p "$new/apt/lists/partial" "$new/apt/archives/partial"
	: >"$new/apt/status"
	echo "deb [signed-by=$keyring] $mirror $suite main" >"$new/apt/sources.list"
	for step in "update" "install --download-only --no-install-recommends $package"; do
		# shellcheck disable=SC2086 # one word an argument
		apt $step >"$new/apt/log" 2>&1 || {
			grep '^[EW]:' "$new/apt/log" >&2 || cat "$new/apt/log" >&2
			fail "could not download $package from $mirror: see above. Without a way there, set TOCSIN_DEBIAN_MIRROR to a mirror of Debian that you reach"
		}
	done
}

# Of some packages the server needs nothing but that its dependencies are met.
unpack() {
	for file in "$new"/apt/archives/*.deb; do
		case "${file##*/}" in perl* | libperl* | mysql-common* | mariadb-common*) continue ;; esac
		dpkg-deb -x "$file" "$new" || fail "could not unpack $file: is the disk full?"
	done
	rm -rf "$new/apt" "$new/usr/share/man" "$new/usr/share/locale"
}

# The server runs under its own loader, as its C library is newer than the machine's. exec keeps the process id.
write_wrapper() {
	cat >"$new/${program##*/}" <<END
#!/bin/sh
root=\$(cd "\${0%/*}" && pwd)
for loader in "\$root"/usr/lib64/ld-linux*.so.* "\$root"/usr/lib/ld-linux*.so.*; do
	[ -e "\$loader" ] && break
done
libs=\$(echo "\$root"/usr/lib/*-linux-gnu*)
exec "\$loader" --inhibit-cache --library-path "\$libs" --argv0 "\$root/$program" "\$root/$program" "\$@" $base
END
	chmod 755 "$new/${program##*/}"
}

# --no-defaults is the database servers'; etcd has neither it nor files of defaults.
version() {
	case "$base" in
	"") "$new/${program##*/}" --version ;;
	*) "$new/${program##*/}" --no-defaults --version ;;
	esac 2>&1
}

install() {
	new=$dir.new
	exec 9>"$dir.lock"
	flock 9 # another start of this script may be at it, and then it is done
	if installed; then return; fi
	rm -rf "$new"
	trap 'rm -rf "$new"' EXIT
	trap 'exit 130' INT TERM HUP
	umask 022 # the tests of root run servers of other users
	mkdir "$new"
	say "downloading Debian $suite's $package for $dir"
	download
	unpack
	write_wrapper
	says=$(version) || fail "the server does not run on this machine: $says"
	mv "$new" "$dir"
	says=$(echo "$says" | head -n 1)
	say "installed ${says#*Ver }"
}

main() {
	[ $# -eq 1 ] || fail "want one argument: mysql, mariadb-11.8 or etcd-3.5"
	choose "$1"
	[ -n "$dir" ] || dir=$(default_dir)
	case "$dir" in /*) ;; *) dir=$PWD/$dir ;; esac
	installed || {
		check_tools
		check_dir
		install
	}
	echo "$dir"
}

main "$@"
