#!/bin/sh
# A machine in namespaces: `hold` makes its disk and keeps it until standard input ends, `boot` boots systemd from it.
# What a container manager provides to systemd is written down at https://systemd.io/CONTAINER_INTERFACE.
set -eu

hold() { # BASE WORK
    mount -t tmpfs -o mode=755 tmpfs "$2"
    cd "$2"
    mkdir upper scratch root cgroup
    # Nothing that a test does reaches the base, and all of it survives a reboot.
    mount -t overlay -o "lowerdir=$1,upperdir=upper,workdir=scratch" overlay root
    mount -t cgroup2 cgroup2 cgroup
    echo held
    exec cat >/dev/null
}

boot() { # WORK NAME
    cd "$1"
    mkdir "cgroup/$2"
    echo 0 >"cgroup/$2/cgroup.procs"
    # Only now, so that the cgroup namespace begins at the cgroup just entered.
    exec unshare --mount --propagation private --pid --uts --ipc --net --cgroup --fork --kill-child sh "$0" init "$1/root"
}

init() { # ROOT
    mount --bind "$1" "$1" # what is pivoted to has to be a mount of this namespace
    cd "$1"
    mount -t tmpfs -o mode=755,nosuid,nodev tmpfs run
    mkdir -p run/host/proc run/host/old
    chmod 700 run/host
    # The machine's own /proc has parts that are covered, and the kernel allows no user namespace a fresh /proc then,
    # unless a whole one is visible somewhere.
    mount -t proc proc run/host/proc
    mount -t proc -o nosuid,nodev,noexec proc proc
    # No kernel setting of the host is changed from here. Limits of namespaces are the namespace's own.
    mount --bind proc/sys proc/sys
    mount --bind proc/sys/user proc/sys/user
    mount -o remount,bind,ro proc/sys
    cat /proc/sys/kernel/random/uuid >run/host/boot_id
    mount --bind run/host/boot_id proc/sys/kernel/random/boot_id
    mount -t sysfs -o ro,nosuid,nodev,noexec sysfs sys
    mount -t cgroup2 -o nosuid,nodev,noexec cgroup2 sys/fs/cgroup
    mount -t tmpfs -o mode=755,nosuid tmpfs dev
    for name in null zero full random urandom tty; do
        touch "dev/$name"
        mount --bind "/dev/$name" "dev/$name"
    done
    mkdir dev/pts dev/shm
    mount -t devpts -o newinstance,ptmxmode=0666,mode=620,gid=5 devpts dev/pts
    mount -t tmpfs -o mode=1777 tmpfs dev/shm
    ln -s pts/ptmx dev/ptmx
    ln -s /proc/self/fd dev/fd
    for number in 0 1 2; do
        ln -s "fd/$number" "dev/$(echo stdin stdout stderr | cut -d ' ' -f $((number + 1)))"
    done
    pivot_root . run/host/old
    cd /
    umount -l /run/host/old
    # The clock, the modules and the log of the kernel are the host's.
    exec env -i container=substrat-test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
        setpriv --bounding-set -sys_time,-sys_module,-sys_rawio,-syslog /sbin/init
}

"$@"
