"""The long-lived process of the node agent: `node_agent.cli` becomes this by exec.

It takes settings as one JSON argument and imports no more than it needs, for it stays for months.
"""

from __future__ import annotations

import gc
import logging
import sys
import time

import uvloop

from node_agent import courtesy, footprint
from node_agent.cgroup.layout import Layout, detect
from node_agent.discovery import Discovery
from node_agent.inventory_file import InventoryFile
from node_agent.kubelet.cpu_manager import CpuManagerState
from node_agent.loop import NodeAgent
from node_agent.sampler import SystemClock
from node_agent.settings import Settings, from_wire
from schemas.keys import BadKeys


def main(text: str) -> int:
    """Live; the exit code. What cannot be started is one line on stderr."""
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(name)s: %(message)s")
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    footprint.give_back_start()
    settings = from_wire(text)
    courtesy.set_slice()
    try:
        layout = detect()
        source = source_for(settings, layout)
        source.start()
        source.poll(SystemClock().mono_us())  # a file that cannot be used is refused here
        return uvloop.run(_live(settings, layout, source))
    except (OSError, ValueError, RuntimeError, BadKeys) as error:
        logging.getLogger("slackwater node").critical(" ".join(str(error).split()))
        return 1


def source_for(settings: Settings, layout: Layout) -> Discovery:
    """All that the settings name: groups, inventory file, kubelet, API server.

    Raises ValueError for a URL or a pattern that cannot be meant.
    """
    said = settings.kubernetes
    kubepods = settings.kubepods
    if kubepods is None:
        kubepods = settings.inventory is None or bool(said.kubelet)
    kubelet, node_object = (None, None)
    if said.kubelet or said.api_server:
        from node_agent.kubelet import ask  # noqa: PLC0415  (the weight of a client)

        kubelet, node_object = ask.watches(said, settings.node)
    file = settings.inventory
    state = f"{layout.root.rstrip('/')}{said.kubelet_dir}/cpu_manager_state"
    return Discovery(
        settings.node,
        layout,
        first_rev=int(time.time()),
        roots=settings.roots,
        be_root=settings.be_root,
        kubernetes=kubepods,
        file=None if file is None else InventoryFile(str(file), settings.be_root),
        kubelet=kubelet,
        node_object=node_object,
        cpu_manager=CpuManagerState(state) if kubepods else None,
    )


async def _live(settings: Settings, layout: Layout, source: Discovery) -> int:
    agent = NodeAgent(settings, layout, source, SystemClock())
    if settings.metrics_port is not None:
        from node_agent import metrics  # noqa: PLC0415  (3 MiB that most nodes do without)

        metrics.serve(agent, settings.metrics_host, settings.metrics_port)
    gc.collect()
    footprint.give_back_start()
    gc.freeze()  # modules and wiring live as long as the process: no collection need look at them
    try:
        return await agent.run()
    finally:
        source.stop()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
