#!/bin/sh
# boot-systemd.sh DIR: boots systemd as process 1 of namespaces of its own, as root. It sees this machine's files and network; what it
# writes to files goes to DIR, an empty directory, and none of this machine's units starts. It ends when this process is killed.
set -eu
if [ "${2:-}" != inside ]; then
	group=/sys/fs/cgroup/systemd
	[ -d "$group" ] || group=/sys/fs/cgroup
	mkdir -p "$group/tocsin-units"
	echo $$ >"$group/tocsin-units/cgroup.procs"
	exec unshare --kill-child --fork --pid --mount --cgroup --uts --ipc "$0" "$1" inside
fi

mount -t tmpfs tmpfs "$1"
root=$1/root
mkdir "$1/written" "$1/work" "$root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/written,workdir=$1/work" "$root"
cd "$root"
mount -t proc proc proc
mount -t tmpfs tmpfs run -o mode=755
mount -t tmpfs tmpfs tmp -o mode=1777
mount -t tmpfs tmpfs dev -o mode=755
mkdir dev/shm dev/pts run/before
mount -t devpts devpts dev/pts -o newinstance,ptmxmode=0666,mode=620
ln -s pts/ptmx dev/ptmx
for device in null zero full random urandom tty; do
	touch dev/$device
	mount --bind /dev/$device dev/$device
done
mount --bind /sys sys
if [ -d /sys/fs/cgroup/systemd ]; then
	mount -t tmpfs tmpfs sys/fs/cgroup -o mode=755
	mkdir sys/fs/cgroup/systemd
	mount -t cgroup cgroup sys/fs/cgroup/systemd -o none,name=systemd
else
	mount -t cgroup2 cgroup2 sys/fs/cgroup
fi
# The links say which units start beside others.
rm -rf etc/systemd/system etc/systemd/*.conf lib/systemd/system/*.wants usr/lib/systemd/system/*.wants
mkdir -p etc/systemd/system/multi-user.target.wants
ln -s /lib/systemd/system/systemd-journald.service etc/systemd/system/multi-user.target.wants/
pivot_root . run/before # in a chroot no service could have a user namespace
umount -l /run/before
mount --make-rshared / # as systemd expects it of a container: credentials are mounted by a child of its
exec env -i container=tocsin PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system --unit=multi-user.target
