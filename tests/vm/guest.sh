# Process 1 of the second machine (busybox sh): pure cgroup v2, one network card, then pytest.
# /work/repo is the project, /work/task what this run is to do; the third disk takes what came of it.
export PATH=/bin HOME=/root LD_LIBRARY_PATH=$(cat /etc/library-path)
export PYTHONPATH=/work/repo PYTHONDONTWRITEBYTECODE=1 CI=true
. /work/task/environment

mount -t cgroup2 cgroup2 /sys/fs/cgroup
mkdir -p /dev/shm /out
echo 1 >/proc/sys/vm/overcommit_memory # tests map more addresses than this machine has memory
mount -t tmpfs shm /dev/shm
hostname second-kernel
ip link set lo up
ip link set eth0 up
ip address add 10.0.2.15/24 dev eth0

cd /work/repo
echo "second kernel: Linux $(uname -r), $(nproc) CPUs, controllers: $(cat /sys/fs/cgroup/cgroup.controllers); up after $(cut -d' ' -f1 /proc/uptime) s"
[ -z "$SLACKWATER_TEST_BROKER" ] || /venv/bin/python -m tests.vm.relay "$SLACKWATER_TEST_BROKER" &

xargs /venv/bin/python -m pytest --junit-xml=/out/junit.xml -o junit_family=xunit1 </work/task/arguments
echo $? >/out/exit
tar -c -C /out -f /dev/vdc .
sync
poweroff -f
