#!/bin/sh
# Installs MySQL 9.7 beside whatever server this machine has: Debian unstable's mysql-server-core and the libraries it
# needs, unpacked into one folder. FOLDER/mysqld runs the server with those libraries. Nothing else on the machine
# changes, and root is not needed: apt-get downloads with lists of its own, dpkg-deb unpacks.
#
#   scripts/install-mysql.sh          installs unless that is done; prints the folder
#
#   TOCSIN_MYSQL_DIR      the folder. Default: /var/lib/tocsin-mysql for root, else ~/.cache/tocsin/mysql
#   TOCSIN_MYSQL_MIRROR   where to download from. Default: http://deb.debian.org/debian
#   TOCSIN_MYSQL_KEYRING  the keys that sign it. Default: those of the package debian-archive-keyring
#
# To upgrade to the latest MySQL of Debian unstable, remove the folder first. A start that is interrupted leaves
# FOLDER.new, which the next start removes.
set -eu

dir=${TOCSIN_MYSQL_DIR:-}
mirror=${TOCSIN_MYSQL_MIRROR:-http://deb.debian.org/debian}
package=mysql-server-core
keyring=${TOCSIN_MYSQL_KEYRING:-/usr/share/keyrings/debian-archive-keyring.gpg}

say() { echo "install-mysql: $*" >&2; }

fail() {
	say "$*"
	exit 1
}

# internal/devserver looks in the same folders.
default_dir() {
	if [ "$(id -u)" -eq 0 ]; then
		echo /var/lib/tocsin-mysql
	else
		[ -n "${XDG_CACHE_HOME:-}${HOME:-}" ] || fail "HOME is not set: set TOCSIN_MYSQL_DIR to a folder of yours"
		echo "${XDG_CACHE_HOME:-$HOME/.cache}/tocsin/mysql"
	fi
}

installed() { [ -x "$dir/mysqld" ]; }

check_tools() {
	[ "$(uname -s)" = Linux ] || fail "this script is for Linux: install MySQL 9.7 from https://dev.mysql.com/downloads/mysql/ and set TOCSIN_MYSQL_DIR to the folder of its mysqld"
	for tool in apt-get dpkg dpkg-deb flock; do
		command -v "$tool" >/dev/null || fail "there is no $tool here: install MySQL 9.7 from https://dev.mysql.com/downloads/mysql/ and set TOCSIN_MYSQL_DIR to the folder of its mysqld"
	done
	[ -r "$keyring" ] || fail "$keyring is missing, and without it nothing from Debian can be checked: apt-get install debian-archive-keyring"
}

# The folder's parent is there and writable, and the folder itself does not hold something else.
check_dir() {
	mkdir -p "$(dirname "$dir")" 2>/dev/null && [ -w "$(dirname "$dir")" ] || fail "can't write to $(dirname "$dir"): set TOCSIN_MYSQL_DIR to a folder of yours"
	[ ! -e "$dir" ] || rmdir "$dir" 2>/dev/null || fail "$dir exists and holds no mysqld: remove it, or set TOCSIN_MYSQL_DIR to another folder"
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
	echo "deb [signed-by=$keyring] $mirror unstable main" >"$new/apt/sources.list"
	for step in "update" "install --download-only --no-install-recommends $package"; do
		# shellcheck disable=SC2086 # one word an argument
		apt $step >"$new/apt/log" 2>&1 || {
			grep '^[EW]:' "$new/apt/log" >&2 || cat "$new/apt/log" >&2
			fail "could not download $package from $mirror: see above. Without a way there, set TOCSIN_MYSQL_MIRROR to a mirror of Debian that you reach"
		}
	done
}

# Of some packages the server needs nothing but that its dependencies are met.
unpack() {
	for file in "$new"/apt/archives/*.deb; do
		case "${file##*/}" in perl* | libperl* | mysql-common*) continue ;; esac
		dpkg-deb -x "$file" "$new" || fail "could not unpack $file: is the disk full?"
	done
	rm -rf "$new/apt" "$new/usr/share/man" "$new/usr/share/locale"
}

# The server runs under its own loader, as its C library is newer than the machine's. exec keeps the process id.
write_wrapper() {
	cat >"$new/mysqld" <<'END'
#!/bin/sh
root=$(cd "${0%/*}" && pwd)
for loader in "$root"/usr/lib64/ld-linux*.so.* "$root"/usr/lib/ld-linux*.so.*; do
	[ -e "$loader" ] && break
done
libs=$(echo "$root"/usr/lib/*-linux-gnu*)
exec "$loader" --inhibit-cache --library-path "$libs" --argv0 "$root/usr/sbin/mysqld" "$root/usr/sbin/mysqld" "$@" --basedir="$root/usr"
END
	chmod 755 "$new/mysqld"
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
	say "downloading Debian unstable's $package (60 MB) for $dir"
	download
	unpack
	write_wrapper
	version=$("$new/mysqld" --no-defaults --version 2>&1) || fail "the server does not run on this machine: $version"
	mv "$new" "$dir"
	say "installed ${version#*Ver }"
}

main() {
	[ $# -eq 0 ] || fail "it takes no arguments; the folder is TOCSIN_MYSQL_DIR"
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
