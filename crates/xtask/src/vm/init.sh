#!/bin/busybox sh
# The first program of the machine: its root is this host's own, read-only, with memory over it.
b=/bin/busybox
$b mount -t proc proc /proc
$b mount -t sysfs sys /sys
$b mount -t devtmpfs dev /dev
for module in $($b cat /modules/order); do
    $b insmod "/modules/$module" || echo "the module $module is missing"
done
$b mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=262144,posixacl host /lower || $b poweroff -f
$b mount -t tmpfs -o mode=755 over /over
$b mkdir /over/upper /over/work
$b mount -t overlay -o lowerdir=/lower,upperdir=/over/upper,workdir=/over/work root /root || $b poweroff -f
for directory in proc sys dev; do
    $b mount --move "/$directory" "/root/$directory"
done
exec $b switch_root /root /bin/sh "$($b sed -n 's/.* place=\([^ ]*\).*/\1/p' /root/proc/cmdline)/inside.sh"
