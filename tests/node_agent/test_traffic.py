"""The uplink's token-bucket tree on this kernel, in a network namespace of the test's own."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents.isolation.network import BE_CLASS, ONLINE_CLASS
from node_agent.actuators.acts import Acts, tc
from node_agent.actuators.beneath import UnsafePath
from node_agent.actuators.failure import Named
from node_agent.actuators.knobs.bandwidths import Bandwidths, tree_of
from node_agent.actuators.knobs.net_classid import NetClassid
from node_agent.actuators.traffic import Traffic, line_of, rate_of, sayable, uplink
from node_agent.cgroup.layout import Layout
from node_agent.isolation import NOTHING, Isolation, release_kept
from node_agent.journal import Journal
from schemas.records import IsolationSettings
from tests.node_agent.isolation_trees import BE_POD, LS_POD, census, layout, make_tree
from tests.node_agent.trees import Crash
from tests.support import unavailable

S = 1_000_000
NEW_NETWORK, NEW_MOUNTS, PRIVATE = 0x40000000, 0x00020000, 1 << 18 | 1 << 14
DEVICE = "up0"
ROUTE = "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
WHOLE = 1_000_000_000


def share(minor: int, turn: int, least: int, most: int) -> dict[str, int]:
    return {
        "minor": minor, "turn": turn, "egress_min_bit_per_s": least, "egress_max_bit_per_s": most,
    }  # fmt: skip


ASKED = IsolationSettings(
    bandwidths={
        "ALL": share(1, 0, WHOLE, WHOLE),
        "LS": share(ONLINE_CLASS, 1, 500_000_000, 600_000_000),
        "BE": share(BE_CLASS, 2, 8_000, 333_330_000),
    }
)
TREE = "1:1 root 0 1000000000 1000000000\n1:3 1:1 1 500000000 1000000000\n1:4 1:1 2 8000 333330000"


class Played:
    """The real `tc`; where the kernel has no classifier by group, that alone is played.

    Fails (``error``) or is gone (``at`` alone, ``before`` it is done or after) at the n-th change.
    """

    def __init__(self, at: int = 0, error: OSError | None = None, *, before: bool = False) -> None:
        self.at, self.error, self.before, self.count = at, error, before, 0
        self.filtered = False

    def __call__(self, arguments: Sequence[str]) -> str:
        if arguments[1] == "show":
            return self._run(arguments)
        self.count += 1
        if self.count == self.at and self.error is not None:
            raise self.error
        if self.count == self.at and self.before:
            raise Crash
        said = self._run(arguments)
        if self.count == self.at:
            raise Crash
        return said

    def _run(self, arguments: Sequence[str]) -> str:
        if arguments[0] != "filter":
            if arguments[:2] == ["qdisc", "del"]:
                self.filtered = False
            return tc(arguments)
        try:
            said = tc(arguments)
        except Named:
            self.filtered = arguments[1] == "add"
            return ""
        return said or ("filter parent 1: protocol all cgroup chain 0" if self.filtered else "")


def in_private(flags: int, body: Callable[[], None]) -> None:
    """Run it in a child with namespaces of its own; what it raises fails the test."""
    if os.geteuid() != 0:
        unavailable("namespaces need root")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.unshare(flags):
                os.write(writing, b"refused")
            else:
                body()
        except (Exception, Crash):  # noqa: BLE001  (told to the parent)
            os.write(writing, traceback.format_exc().encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as said:
        text = said.read()
    os.waitpid(child, 0)
    if text == "refused":
        unavailable("this kernel gives no namespace")
    assert not text, text


def in_network(body: Callable[[], None]) -> None:
    def made() -> None:
        for words in (
            f"ip link add {DEVICE} type veth peer name up1", f"ip link set {DEVICE} up",
            "ip link set up1 up",
        ):  # fmt: skip
            subprocess.run(words.split(), check=True)
        body()

    in_private(NEW_NETWORK, made)


def queues() -> str:
    """All of the device's queues and classes."""
    return tc(["qdisc", "show", "dev", DEVICE]) + tc(["class", "show", "dev", DEVICE])


def started(folder: Path, played: Played, name: str = "s") -> Isolation:
    """One start of an agent whose uplink is the test's device."""
    mount = folder / "cgroup"
    if not mount.exists():
        make_tree(mount, 1)
        (mount / "proc/net").mkdir(parents=True)
        (mount / "proc/net/route").write_text(
            f"{ROUTE}{DEVICE}\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
        )
    journal = Journal(folder / name, "k" * 32, fsync="never")
    journal.boot("b", 1)
    made = Isolation(journal, [Bandwidths()])
    made.follow(census(), layout(mount, 1), os.write, Acts(tc=played))
    return made


def restored(folder: Path, name: str = "s") -> list[str]:
    journal = Journal(folder / name, "k" * 32, fsync="never")
    acts = Acts(tc=Played())
    refused = release_kept(layout(folder / "cgroup", 1), journal, [Bandwidths()], os.write, acts)
    assert journal.state.kept == {} or refused
    journal.close()
    return refused


def tree(played: Played) -> str:
    seen = Traffic("/proc/net", played).look(DEVICE, ())
    assert seen is not None
    return seen[1]["tree"]


def test_the_tree_is_made_once_and_given_back(tmp_path: Path) -> None:
    def body() -> None:
        before, played = queues(), Played()
        made = started(tmp_path, played)
        made.obey(ASKED)
        made.beat(0)
        assert made.outcome() == ("applied", "")
        assert tree(played) == TREE + "\nfilter"
        count = played.count
        made.beat(S)
        assert played.count == count
        less = {name: each for name, each in ASKED.bandwidths.items() if name != "BE"}
        made.obey(IsolationSettings(bandwidths=less))
        made.beat(2 * S)
        assert tree(played) == "\n".join(TREE.splitlines()[:2]) + "\nfilter"
        made.obey(NOTHING)
        made.beat(3 * S)
        assert queues() == before
        assert made.keeper.drift == 0

    in_network(body)


def test_what_is_not_marked_goes_by_the_online_class(tmp_path: Path) -> None:
    def body() -> None:
        made = started(tmp_path, Played())
        made.obey(ASKED)
        made.beat(0)
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as raw:
            raw.bind((DEVICE, 0))
            for _ in range(20):
                raw.send(b"\xff" * 12 + b"\x88\xb5" + b"x" * 100)
        said = tc(["-s", "class", "show", "dev", DEVICE]).split("class htb ")
        (online,) = (each for each in said if each.startswith("1:3 "))
        assert int(online.partition(" bytes ")[2].split()[0]) >= 20
        assert made.release() == []

    in_network(body)


def test_s4_a_strangers_queue_is_left_alone_and_said(tmp_path: Path) -> None:
    def body() -> None:
        tc(f"qdisc add dev {DEVICE} root tbf rate 1gbit burst 1mb latency 50ms".split())
        before, played = queues(), Played()
        made = started(tmp_path, played)
        made.obey(ASKED)
        made.beat(0)
        assert made.outcome() == ("failed", "failed:bandwidths:foreign_qdisc")
        assert (queues(), played.count) == (before, 0)
        tc(f"qdisc del dev {DEVICE} root".split())
        made.keeper.surfaces["traffic"] = Traffic(str(tmp_path / "cgroup/proc/net"), played)  # type: ignore[index]
        made.beat(31 * S)
        assert made.outcome() == ("applied", "")
        tc(f"qdisc replace dev {DEVICE} root tbf rate 1gbit burst 1mb latency 50ms".split())
        theirs = queues()
        made.keeper.surfaces["traffic"] = Traffic(str(tmp_path / "cgroup/proc/net"), played)  # type: ignore[index]
        made.beat(33 * S)
        assert made.outcome() == ("failed", "failed:bandwidths:foreign_qdisc")
        assert made.release() == []
        assert queues() == theirs

    in_network(body)


def test_a_strangers_change_of_ours_is_put_right_and_all_goes_in_the_end(tmp_path: Path) -> None:
    def body() -> None:
        before, played = queues(), Played()
        made = started(tmp_path, played)
        made.obey(ASKED)
        made.beat(0)
        change = f"class change dev {DEVICE} parent 1:1 classid 1:4 htb rate 1gbit ceil 1gbit"
        for words in (change, f"qdisc del dev {DEVICE} root"):
            tc(words.split())
            made.keeper.surfaces["traffic"] = Traffic(str(tmp_path / "cgroup/proc/net"), played)  # type: ignore[index]
            made.beat((made.keeper._checked_us or 0) + S)
            assert tree(played).startswith(TREE)
        assert made.release() == []
        assert queues() == before

    in_network(body)


def test_without_a_classifier_all_is_put_back(tmp_path: Path) -> None:
    def body() -> None:
        before = queues()
        refusal = Named(2, "no_classifier", "tc: no")
        made = started(tmp_path, Played(5, refusal))  # the queue, three classes, the filter
        made.obey(ASKED)
        made.beat(0)
        assert made.outcome() == ("failed", "failed:bandwidths:no_classifier")
        assert queues() == before
        made.close()
        assert restored(tmp_path) == []

    in_network(body)


def test_r10_killed_at_every_command_the_device_is_as_it_was(tmp_path: Path) -> None:
    def body() -> None:
        before, at, crashed = queues(), 0, True
        while crashed:
            at += 1
            name, crashed = f"s{at}", False
            made = started(tmp_path, Played(at // 2 + 1, before=bool(at % 2)), name)
            try:
                made.obey(ASKED)
                made.beat(0)
                made.obey(NOTHING)
                made.beat(S)
            except Crash:
                crashed = True
            made._journal.close()
            if at % 3:
                assert restored(tmp_path, name) == []
            else:
                again = started(tmp_path, Played(), name)
                again.beat(0)
                again._journal.close()
            assert queues() == before, f"killed at {at}"
        assert at > 10

    in_network(body)


def test_a_tree_that_nobody_remembers_is_cleaned(tmp_path: Path) -> None:
    def body() -> None:
        before = queues()
        made = started(tmp_path, Played())
        made.obey(ASKED)
        made.beat(0)
        assert queues() != before
        started(tmp_path, Played(), "another")
        assert queues() == before

    in_network(body)


@pytest.mark.parametrize("rate", [8_000, 333_330_000, 999_999_000, 1_234_567_890, 7 * 10**12 + 1])
def test_a_rate_is_read_back_as_it_was_written(tmp_path: Path, rate: int) -> None:
    def body() -> None:
        wanted = line_of("1:1", "root", 0, sayable(rate), sayable(rate))
        traffic = Traffic("/proc/net", Played())
        traffic.write(DEVICE, "root", "ours", None)
        traffic.write(DEVICE, "tree", wanted, None)
        assert tree(Played()) == wanted

    in_network(body)


@given(st.integers(8_000, 10**13))
def test_a_sayable_rate_is_no_more_and_hardly_less(rate: int) -> None:
    assert rate * 999 // 1000 <= sayable(rate) + 1000
    assert sayable(rate) <= rate
    assert sayable(sayable(rate)) == sayable(rate)


def test_rates_as_tc_says_them() -> None:
    assert [rate_of(t) for t in ("8Kbit", "333330Kbit", "1Gbit", "7bit", "2Tbit")] == [
        8_000, 333_330_000, 10**9, 7, 2 * 10**12,
    ]  # fmt: skip


def test_online_pods_are_promised_and_never_bounded() -> None:
    found = tree_of(ASKED.bandwidths)
    assert f"1:3 1:1 1 500000000 {WHOLE}" in found
    only = {"BE": share(BE_CLASS, 2, 500_000_000, 300_000_000)}
    assert tree_of(only).splitlines() == [
        "1:1 root 0 300000000 300000000", "1:4 1:1 2 300000000 300000000", "filter",
    ]  # fmt: skip


def test_the_uplink_is_the_best_default_route(tmp_path: Path) -> None:
    assert uplink(str(tmp_path)) is None
    six = "0" * 32
    (tmp_path / "ipv6_route").write_text(
        f"{six} 00 {six} 00 {six} ffffffff 00000001 00000000 00200200 lo\n"
        f"{six} 00 {six} 00 fe80{'0' * 28} 00000400 00000003 00000000 00000003 six0\n"
    )
    assert uplink(str(tmp_path)) == "six0"
    (tmp_path / "route").write_text(
        ROUTE
        + "bad0\t00000000\t0101A8C0\t0002\t0\t0\t1\t00000000\t0\t0\t0\n"
        + "eth1\t00000000\t0101A8C0\t0003\t0\t0\t200\t00000000\t0\t0\t0\n"
        + "eth0\t00000000\t0101A8C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
        + "eth2\t0001A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
    )
    assert uplink(str(tmp_path)) == "eth0"


def test_without_a_way_out_there_is_no_group_and_without_tc_no_actuator(tmp_path: Path) -> None:
    made = started(tmp_path, Played())
    (tmp_path / "cgroup/proc/net/route").unlink()
    made.obey(ASKED)
    made.beat(0)
    assert made.outcome() == ("applied", "no_group:bandwidths")
    made.follow(census(), layout(tmp_path / "cgroup", 1), os.write, Acts(tc=None))
    made.beat(S)
    made.obey(NOTHING)
    made.obey(ASKED)
    made.beat(2 * S)
    assert made.outcome() == ("refused", "no_actuator:bandwidths")


@pytest.mark.parametrize("device", ["", "-x", "a/b", "a b", "x" * 16, ".."])
def test_a_device_has_a_plain_name(device: str) -> None:
    played = Played()
    if device == "..":  # a name like another for the kernel; it has no such device
        assert Traffic("/proc/net", played).look(device, ()) is None
        return
    with pytest.raises(UnsafePath):
        Traffic("/proc/net", played).write(device, "root", "ours", None)
    assert played.count == 0


def test_classes_of_groups_on_a_real_net_cls_hierarchy(tmp_path: Path) -> None:
    """Mounted in a mount namespace of the test's own: the machine's other processes see nothing."""
    mount = tmp_path / "net_cls"
    mount.mkdir()

    def body() -> None:
        libc = ctypes.CDLL(None, use_errno=True)
        assert libc.mount(b"none", b"/", None, PRIVATE, None) == 0
        if libc.mount(b"none", str(mount).encode(), b"cgroup", 0, b"net_cls"):
            return  # it is the v2 hierarchy's, or not built
        try:
            for group in (BE_POD, LS_POD, f"{LS_POD}/c1"):
                (mount / group).mkdir(parents=True)
            journal = Journal(tmp_path / "s", "k" * 32)
            made = Isolation(journal, [NetClassid()])
            made.follow(census(), Layout("/", {}, None, net_cls=str(mount)))
            classes = {"BE": {"net_classid": 0x10004}, "LS": {"net_classid": 0x10003}}
            made.obey(IsolationSettings(classes=classes))
            made.beat(0)
            said = [
                (mount / group / "net_cls.classid").read_text().strip()
                for group in (BE_POD, LS_POD, f"{LS_POD}/c1")
            ]
            assert said == ["65540", "65539", "65539"]
            assert made.release() == []
            assert (mount / BE_POD / "net_cls.classid").read_text().strip() == "0"
            made.close()
        finally:
            for directory, _, _ in os.walk(mount, topdown=False):
                if directory != str(mount):
                    Path(directory).rmdir()
            libc.umount2(str(mount).encode(), 2)

    in_private(NEW_MOUNTS, body)
