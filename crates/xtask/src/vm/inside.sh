# Runs the tests that the file `tests` names, each in a process of its own, and says what came of each.
place=$(sed -n 's/.* place=\([^ ]*\).*/\1/p' /proc/cmdline)
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TMPDIR=/run/disk/tmp
nobody=65534
seconds=300
mkdir -p /dev/pts /dev/shm
mount -t devpts pts /dev/pts
mount -t tmpfs shm /dev/shm
mount -t tmpfs -o mode=755 run /run
mkdir /run/disk
mount -t ext4 /dev/vda /run/disk
mkdir -m 1777 /run/disk/tmp
# What is in memory here lies under an overlay, which can hold no layer of another one.
mount --bind /run/disk/tmp /tmp
ip link set lo up
mount -t cgroup2 cgroup /sys/fs/cgroup
groups=/sys/fs/cgroup/delegated
echo '+cpu +memory +pids' > /sys/fs/cgroup/cgroup.subtree_control
mkdir "$groups"
echo '+cpu +memory +pids' > "$groups/cgroup.subtree_control"
chown "$nobody:$nobody" "$groups" "$groups"/cgroup.procs "$groups"/cgroup.subtree_control "$groups"/cgroup.threads
mkdir /run/disk/bin /run/disk/home
chown "$nobody:$nobody" /run/disk/home
cp "$place"/bin/* /run/disk/bin/
cd /run/disk/bin || exit

# A user's own part of the tree, with nobody in it but whoever runs the test.
delegated() {
    number=$((number + 1))
    mkdir "$groups/$number"
    chown -R "$nobody:$nobody" "$groups/$number"
    timeout -s KILL "$seconds" sh -c 'echo $$ > "$0"; shift; exec "$@"' "$groups/$number/cgroup.procs" - \
        setpriv "--reuid=$nobody" "--regid=$nobody" --clear-groups env HOME=/run/disk/home "$@"
}

root() {
    timeout -s KILL "$seconds" "$@"
}

number=0
echo "machine: Linux $(uname -r), $(sed -n 's/.* cgroup //p' /proc/mounts | head -n 1), $(cat /sys/fs/cgroup/cgroup.controllers)"
while read -r who program test; do
    begun=$(cut -d. -f1 /proc/uptime)
    word=passed
    "$who" "./$program" --exact "$test" --include-ignored --nocapture > /run/log 2>&1 < /dev/null || word=failed
    echo "machine: $word $who $program $test in $(($(cut -d. -f1 /proc/uptime) - begun)) s"
    [ "$word" = passed ] || tail -n 30 /run/log
done < "$place/tests"
echo "machine: end"
echo o > /proc/sysrq-trigger
sleep 60
