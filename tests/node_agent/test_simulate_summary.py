"""The summary, as a line, as a record and as metrics."""

from __future__ import annotations

import urllib.request

from prometheus_client.parser import text_string_to_metric_families

from node_agent.simulate.summary import COUNTERS, GAUGES, Summary, serve


def test_metrics_say_what_the_summary_says() -> None:
    summary = Summary(3, 50, 0, "azure", samples=7, lent_milli=1500, batch_core_s=2.5)
    port = serve(summary, "127.0.0.1", 0)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        text = answer.read().decode()
    values = {
        sample.name: sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }
    assert set(values) == {f"slackwater_simulate_{name}" for name in GAUGES} | {
        f"slackwater_simulate_{name}_total" for name in COUNTERS
    }
    assert values["slackwater_simulate_lent_milli"] == 1500
    assert values["slackwater_simulate_samples_total"] == 7
    assert values["slackwater_simulate_batch_core_s_total"] == 2.5


def test_line_and_record() -> None:
    summary = Summary(3, 50, 0, "azure", samples=7, lent_milli=1500, offered_mid_milli=700)
    assert "offered 0.0 cores (mid 0.7), lent 1.5" in summary.line()
    assert "7 samples (0 a second, 0 dropped)" in summary.line()
    assert summary.as_dict()["lent_milli"] == 1500
