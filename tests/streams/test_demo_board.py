"""What the demo shows and says, from records as they stand on the topics."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from schemas.records import (
    Ack,
    Capacity,
    Cause,
    Command,
    DeadLetter,
    Inventory,
    Job,
    Lease,
    LedgerEntry,
    NodeSample,
    PodFact,
    PolicyRecord,
    Reservation,
)
from streams.demo import probe, text, view
from streams.demo.board import Board, cores
from streams.demo.judge import Bounds, Reaction, Verdict
from streams.demo.settings import DemoSettings, seconds
from streams.demo.stage import Latency
from streams.demo.summary import Outage, Summary
from streams.demo.trace import Step, Trace

CAUSE = Cause(1, 0, 10, 5_000, "digest", 1)
PODS = (PodFact("web", "web", qos="LS"), PodFact("batch", "batch", qos="BE"))


def sample(seq: int, *, online_us: int, best_us: int, psi_us: int, **more: Any) -> NodeSample:
    return NodeSample(
        node=more.pop("node", "n1"),
        boot=more.pop("boot", "0" * 32),
        kernel_boot="0" * 32,
        seq=seq,
        mono_us=seq * 1_000_000,
        wall_ms=0,
        period_ms=1000,
        pods_rev=more.pop("pods_rev", 1),
        pods=2,
        node_columns={"be_cpu_usage_us": best_us, "be_cpu_quota_milli": 700},
        pod_columns={"cpu_usage_us": [online_us, best_us], "psi_cpu_some_us": [psi_us, 999_999]},
    )


def board_of(*records: Any) -> Board:
    board = Board(watched="n1")
    for record in records:
        board.take(record)
    return board


def two_samples() -> tuple[Any, ...]:
    return (
        Inventory("n1", 1, 2000, 1 << 30, cpu_reserved_milli=50, pods=PODS),
        sample(1, online_us=0, best_us=0, psi_us=0),
        sample(2, online_us=400_000, best_us=600_000, psi_us=250_000),
    )


def test_rates_come_from_pairs_and_online_pods_only() -> None:
    row = board_of(*two_samples()).rows["n1"]
    assert (row.online_milli, row.best_effort_milli, row.allowed_milli) == (400, 600, 700)
    assert row.pressure_percent == 25
    assert row.best_effort_us == 600_000
    assert (row.capacity_milli, row.reserved_milli) == (2000, 50)


@pytest.mark.parametrize("change", [{"boot": "1" * 32}, {"pods_rev": 2}])
def test_a_new_boot_or_pod_set_gives_no_rate_of_its_pods(change: dict[str, Any]) -> None:
    board = board_of(*two_samples())
    board.take(sample(3, online_us=900_000, best_us=600_000, psi_us=250_000, **change))
    assert board.rows["n1"].online_milli == 400  # as last known, not half a pair


def test_a_fallen_counter_is_no_work() -> None:
    board = board_of(*two_samples())
    board.take(sample(3, online_us=500_000, best_us=1, psi_us=300_000))
    assert board.rows["n1"].best_effort_us == 600_000


def test_capacity_loans_lines_jobs_and_letters() -> None:
    board = board_of(
        Capacity("n1", CAUSE, 1200, 0, "usage", new_work=False),
        LedgerEntry("n1", "simulated", 900, 0),
        LedgerEntry("n2", "simulated", 100, 0),
        LedgerEntry("n1", "simulated", 500, 0),
        Reservation("n1", CAUSE, 0, {"limit": 4, "usage": 3, "short": 2, "long": 1}, {}),
        Job("j1", "n1", "running", 300),
        Job("j1", "n1", "done", 1000),
        DeadLetter("samples", 0, 7, "checksum", ""),
        Lease(CAUSE, 35_000),
    )
    assert (board.batch_milli, board.lent_milli, board.peak_lent_milli) == (1200, 600, 1000)
    assert board.rows["n1"].new_work is False
    assert board.jobs_in("done") == 1
    assert board.leases == {0: 5_000}
    assert board.capacity_log_ms == 5_000
    summary = Summary(nodes=1, seconds=1.0)
    summary.read_board(board, "real")
    assert summary.dead_letters == {"checksum": 1}
    assert summary.jobs_moved == 1


def test_acks_of_the_watched_node_become_writes_and_arrivals() -> None:
    board = board_of(
        Ack("n1", "0" * 32, 1, 100, "suppress", "local", in_force_milli=300, asked_milli=300),
        Ack(
            "n1", "0" * 32, 2, 200, "suppress", "applied", "c1", asked_milli=250, in_force_milli=250
        ),
        Ack("n1", "0" * 32, 3, 300, "suppress", "duplicate", "c1", asked_milli=250),
        Ack("n2", "0" * 32, 1, 400, "suppress", "applied", "c2"),
    )
    trace = Trace(2000)
    board.tell(trace)
    board.tell(trace)  # afresh, not twice
    assert [(one.mono_us, one.by, one.milli) for one in trace.writes] == [
        (100, "local", 300),
        (200, "command", 250),
    ]
    assert [one.mono_us for one in trace.arrivals] == [200, 300]
    assert board.rows["n2"].acks == {"applied": 1}


def test_the_policy_on_the_topic_is_the_one_that_is_judged_by() -> None:
    board = board_of(
        PolicyRecord("default", 1, "", "name: default\nsuppress: {threshold_percent: 50}\n"),
        PolicyRecord("other", 1, "", "name: other\nsuppress: {threshold_percent: 10}\n"),
        PolicyRecord("default", 2, "", "suppress: {threshold_percent: 500}\n"),
    )
    assert board.policy.suppress.threshold_percent == 50
    assert board.stage == "observe"


def mid(node: str, milli: int, reason: str) -> Capacity:
    return Capacity(node, CAUSE, 2000, 0, "raise", mid_cpu_milli=milli, mid_reason=reason)


def test_mid_is_a_column_where_policy_lends_it_and_there_is_room() -> None:
    without = board_of(*two_samples(), mid("n1", 0, "disabled"))
    assert without.mid_milli is None
    assert " mid " not in "\n".join(rendered(without, 200, 60))
    assert " mid " not in view.line(without, view.Status())
    lent = board_of(*two_samples(), mid("n1", 1230, "raise"), mid("n2", 0, "fall"))
    assert (lent.mid_milli, lent.rows["n2"].mid_milli) == (1230, 0)
    assert "batch 4.00 mid 1.23 lent 0.00" in view.line(lent, view.Status())
    lines = rendered(lent, 120, 40)
    assert lines[2].split()[9:12] == ["psi%", "mid", "lent"]
    assert lines[3].split()[9:12] == ["25", "1.23", "0.00"]
    assert "mid" not in rendered(lent, 80, 24)[2]


def test_a_stage_before_the_last_is_said() -> None:
    board = board_of(*two_samples())
    assert "stage" not in view.line(board, view.Status())
    board.take(PolicyRecord("default", 1, "", "name: default"))
    assert "stage observe" in view.line(board, view.Status())
    assert rendered(board, 200, 24)[-1].startswith("stage observe: measured and reported only")
    board.take(PolicyRecord("default", 2, "", "rollout: {stage: expand}"))
    assert "stage" not in view.line(board, view.Status())


def rendered(board: Board, width: int, height: int) -> list[str]:
    out = io.StringIO()
    console = Console(file=out, width=width, height=height, color_system=None)
    console.print(view.frame(board, view.Status(real_node="n1"), width, height))
    return out.getvalue().splitlines()


@pytest.mark.parametrize(("width", "height"), [(80, 24), (120, 40), (200, 60)])
def test_the_view_fits_its_terminal(width: int, height: int) -> None:
    board = board_of(
        *two_samples(),
        Capacity("n1", CAUSE, 12_000, 0, "usage"),
        Reservation("n1", CAUSE, 0, {"limit": 40_000, "usage": 99_990, "short": 2, "long": 1}, {}),
        Command("id", "n1", "suppress", CAUSE, 9, "online_high", allow_milli=300),
    )
    for number in range(50):
        board.take(Capacity(f"sim-{number:04d}", CAUSE, 64_000, 0, "usage"))
    lines = rendered(board, width, height)
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    (real,) = [line for line in lines if line.startswith("n1")]
    for wanted in ("0.40", "40.00", "99.99", "12.00", "0.70", "0.60", "25", "online_h"):
        assert wanted in real, f"{wanted} is not shown in {real!r}"
    assert any(line.startswith("all 51") for line in lines)


def test_one_line_where_there_is_no_terminal() -> None:
    board = board_of(*two_samples())
    told = view.line(board, view.Status(real_node="n1", phase="protected", workers=2))
    for wanted in ("protected", "n1: online 0.40 allow 0.70 used 0.60", "workers 0/2"):
        assert wanted in told


def test_cores_are_short() -> None:
    assert [cores(one) for one in (None, -1, 0, 1300, 640_000)] == [
        "-",
        "all",
        "0.00",
        "1.30",
        "640",
    ]


def good() -> Summary:
    step = Step(0, 4_000_000, 400, up=True)
    one = Reaction(step, 0, 900, 400, 410, first_us=180_000, settled_us=380_000, by="local")
    summary = Summary(
        nodes=2,
        seconds=60.0,
        bounds=Bounds(200_000, Board().policy.suppress),
        verdict=Verdict((one,) * 3, (one,) * 3, (), (), (), 10),
        latencies={"alone": Latency(1, 1, 100, 1), "protected": Latency(1, 1, 200, 1)},
        real_best_effort_core_s=12.0,
        acks={"applied": 4},
        capacity_nodes=2,
        peak_lent_milli=100,
        jobs_moved=1,
    )
    assert summary.failures == []
    return summary


def test_a_good_run_says_its_figures() -> None:
    told = "\n".join(text.lines(good()))
    for wanted in ("350 ms", "180 ms local", "alone 0.10 ms", "12.0 core-seconds", "nothing"):
        assert wanted in told
    assert "The loop held" in told
    document = good().as_json()
    assert document["ok"] is True
    assert document["verdict"]["first_write_ms_p95"] == 180.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"acks": {}}, "no command was applied"),
        ({"capacity_nodes": 0}, "no node was given batch capacity"),
        ({"peak_lent_milli": 0}, "no capacity was lent"),
        ({"jobs_moved": 0}, "no simulated job"),
        ({"real_best_effort_core_s": 0.0}, "got no core-seconds"),
        ({"left_processes": ["java (pid 1)"]}, "process java"),
        ({"left_cgroups": ["/sys/fs/cgroup/cpu/x"]}, "cgroup /sys"),
        ({"error": "worker-1 ended"}, "worker-1 ended"),
        ({"outage": Outage(20, 0, [], 3.0, 15.0)}, "no second of the outage"),
        ({"outage": Outage(20, 20, [], None, 15.0, "lag 7")}, "lag 7"),
    ],
)
def test_whatever_did_not_hold_fails_the_run(change: dict[str, Any], words: str) -> None:
    summary = good()
    for name, value in change.items():
        setattr(summary, name, value)
    assert any(words in failure for failure in summary.failures)
    assert "did NOT hold" in "\n".join(text.lines(summary))


def test_too_few_judged_steps_is_no_success() -> None:
    summary = good()
    assert summary.verdict is not None
    summary.verdict = Verdict(summary.verdict.reactions, summary.verdict.judged[:2], (), (), (), 0)
    assert any("only 2 up-steps" in failure for failure in summary.failures)


def test_an_interrupted_run_is_judged_for_leftovers_only() -> None:
    summary = Summary(nodes=1, seconds=2.0, interrupted=True)
    assert summary.failures == []
    summary.left_processes = ["java (pid 1)"]
    assert summary.failures == ["left behind: process java (pid 1)"]


def test_durations_and_their_refusal() -> None:
    assert [seconds(one) for one in ("60s", "2m", "500ms", "90", "1.5s")] == [60, 120, 0.5, 90, 1.5]
    with pytest.raises(ValueError, match="write 60s"):
        seconds("1 hour")
    with pytest.raises(ValueError, match="at least 20s"):
        DemoSettings(for_s=5).check()


@pytest.mark.parametrize("for_s", [30.0, 60.0, 300.0, None])
def test_enough_up_steps_fit_into_the_time(for_s: float | None) -> None:
    settings = DemoSettings(for_s=for_s)
    if for_s is not None:
        protected_s = for_s - 2 * settings.quiet_s
        assert protected_s / (2 * settings.step_s) >= 4
    assert settings.step_s > 3 * 0.2 + 0.15 + 1


def test_lag_is_read_of_open_partitions_only() -> None:
    body = (
        "# HELP slackwater_lag_records x\n"
        'slackwater_gate_open{partition="0"} 1.0\n'
        'slackwater_gate_open{partition="1"} 0.0\n'
        'slackwater_lag_records{partition="0"} 7.0\n'
        'slackwater_lag_records{partition="1"} 45.0\n'
    )
    assert probe.by_label(body, "slackwater_gate_open") == {'partition="0"': 1, 'partition="1"': 0}
    assert probe.open_lags(body) == {'partition="0"': 7}
