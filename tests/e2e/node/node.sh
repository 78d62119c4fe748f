#!/bin/sh
# The first process of a node, in namespaces of its own: real_cluster.py starts it as `node.sh NAME ADDRESS FOLDER`.
# Everything in them ends with the standard input, which is also at the end of a test that was killed. Then this program
# removes the cgroups and the data, in FOLDER/data; mounts and devices of the network go with their namespaces.
set -eu
name=$1 address=$2 folder=$3
group=gpugate-node-$$

# In each hierarchy of cgroup v1: the group of this process, below which a node has its own.
groups() {
  while IFS=: read -r _ controllers path; do
    controllers=${controllers#name=}
    [ -z "$controllers" ] || [ ! -d "/sys/fs/cgroup/$controllers$path" ] || echo "/sys/fs/cgroup/$controllers${path%/}"
  done < /proc/self/cgroup
}

remove_groups() {
  for left; do
    find "$left" -depth -type d -exec rmdir {} + 2> /dev/null || true
  done
}

if [ "${4:-}" != inside ]; then
  for parent in $(groups); do
    # What an earlier one left that was killed together with its node.
    for left in "$parent"/gpugate-node-*; do
      [ ! -d "$left" ] || [ -d "/proc/${left##*-}" ] || remove_groups "$left"
    done
    mkdir "$parent/$group"
    for file in cpuset.cpus cpuset.mems; do
      [ ! -f "$parent/$file" ] || cat "$parent/$file" > "$parent/$group/$file"
    done
  done
  own=$(groups | sed "s|$|/$group|")
  (
    for parent in $own; do sh -c "echo \$PPID > $parent/cgroup.procs"; done
    exec unshare --mount --pid --fork --kill-child --mount-proc --ipc --uts --cgroup \
      sh "$0" "$name" "$address" "$folder" inside
  ) || true
  # The kernel has killed all processes; it needs a moment to take them out of their groups.
  for _ in 1 2 3 4 5 6 7 8 9 10; do
    remove_groups $own
    left=
    for parent in $own; do [ ! -d "$parent" ] || left=$parent; done
    [ -n "$left" ] || break
    sleep 0.2
  done
  rm -rf "$folder/data"
  exit
fi

mount --make-rprivate /
hostname "$name"
mkdir -p "$folder/data"
cd "$folder/data"
mkdir containerd kubelet var var-work etc etc-work

# The kubelet sets these for the whole machine if they are different, even from here. With protectKernelDefaults it exits.
shield() {
  echo "$2" > "$(basename "$1")"
  mount --bind "$(basename "$1")" "/proc/sys/$1"
}
shield vm/overcommit_memory 1
shield vm/panic_on_oom 0
shield kernel/panic 10
shield kernel/panic_on_oops 1
shield kernel/keys/root_maxkeys 1000000
shield kernel/keys/root_maxbytes 25000000

hierarchies=$(sed -n 's/^[0-9]*:\([^:][^:]*\):.*/\1/p' /proc/self/cgroup)
umount -R /sys/fs/cgroup
mount -t tmpfs cgroup /sys/fs/cgroup
for controllers in $hierarchies; do
  mkdir "/sys/fs/cgroup/${controllers#name=}"
  case $controllers in name=*) controllers=none,$controllers ;; esac
  mount -t cgroup -o "$controllers" cgroup "/sys/fs/cgroup/${controllers#*name=}"
done

mount -t tmpfs run /run
mount -t overlay -o "lowerdir=/etc,upperdir=$PWD/etc,workdir=$PWD/etc-work" overlay /etc
mount -t overlay -o "lowerdir=/var,upperdir=$PWD/var,workdir=$PWD/var-work" overlay /var
rm -rf /var/run && ln -s /run /var/run
mkdir -p /var/lib/containerd /var/lib/kubelet /var/log/pods /run/cdi /run/nvidia/driver /etc/cdi /etc/ld.so.conf.d
mount --bind containerd /var/lib/containerd
mount --bind kubelet /var/lib/kubelet
mount --bind ../driver /run/nvidia/driver
mkdir -p /etc/nvidia-container-runtime
cp ../toolkit/* /etc/nvidia-container-runtime
echo /run/nvidia/driver/usr/lib64 > /etc/ld.so.conf.d/000-nvidia.conf
ldconfig 2> /dev/null
echo "$address $name" >> /etc/hosts
exec 3<&0
echo ready
# Wait for the end of the standard input; the shell reaps children of ended processes meanwhile.
cat <&3 > /dev/null &
wait $!
