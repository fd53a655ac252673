"""Golden recordings: small incidents in the repository that every machine must decide again.

`python -m tests.determinism.golden make` makes `storm.slack` anew, after `LAW_VERSION` has risen;
`incident.slack` beside it is the planted incident, made by its own tests' command. `... replay FILE
[--batch N]` prints one line of JSON: verdict, digest of all outputs, numpy's version.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np

from streams.replay.result import replayed
from streams.replay.run import Wanted, opened, replay_all
from tests.sim.cluster import Cluster
from tests.sim.plan import Plan
from tests.streams.recording.made import bundle_of, log_of

FOLDER = Path(__file__).parents[1] / "fixtures" / "recordings"
STORM = FOLDER / "storm.slack"
GOLDEN = (STORM, FOLDER / "incident.slack")
SEED, SECONDS = 7, 70
PLAN = Plan(
    nodes=3, partitions=2, workers=3, storm_ms=60_000, faults=0, ttl_ms=8_000,
    lookback_ms=600_000, image_every_ms=5_000,
)  # fmt: skip
HAPPENS: dict[int, Callable[[Cluster], None]] = {
    12_000: lambda cluster: cluster.bad_record("samples", 0, 1, b""),
    13_000: lambda cluster: cluster.bad_record("samples", 1, 2, b""),
    14_000: lambda cluster: cluster.bad_record("inventory", 0, 0, b"{"),
    20_000: lambda cluster: cluster.kill_owner(0, torn=True, lose_images=False),
    23_000: lambda cluster: cluster.rebalance(),
    30_000: lambda cluster: cluster.make_zombie(1),
    34_000: lambda cluster: cluster.end_zombies(),
    40_000: lambda cluster: cluster.publish_policy(PLAN.policy(40)),
    50_000: lambda cluster: cluster.kill_owner(1, torn=False, lose_images=False),
    54_000: lambda cluster: cluster.rebalance(),
}
"""At which moment what goes wrong: bad records, killed workers, a zombie, another policy."""


def make(path: Path) -> None:
    """The same bytes on any machine."""

    def happens(cluster: Cluster, at_ms: int) -> None:
        if at_ms in HAPPENS:
            HAPPENS[at_ms](cluster)

    bundle_of(*log_of(SEED, SECONDS, happens, PLAN), path)


def replay(path: Path, batch: int) -> dict[str, object]:
    """What a replay says, in short."""
    wanted = Wanted(path=path, batch=batch)
    with opened(wanted) as source:
        partitions, laws = source.partitions(), source.manifest.law_versions
    found = replayed(path.name, laws, replay_all(partitions, wanted, 1, lambda *_: None))
    said = found.as_json(0.0)
    kept = ("verdict", "digest_then", "digest_now", "equal", "repeated", "withheld", "beyond")
    return {**{name: said[name] for name in kept}, "numpy": np.__version__}


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m tests.determinism.golden")
    does = options.add_subparsers(dest="what", required=True)
    does.add_parser("make")
    replays = does.add_parser("replay")
    replays.add_argument("file", type=Path)
    replays.add_argument("--batch", type=int, default=4_000)
    chosen = options.parse_args()
    if chosen.what == "make":
        make(STORM)
    else:
        print(json.dumps(replay(chosen.file, chosen.batch)))


if __name__ == "__main__":
    main()
