"""What was recorded is folded again, by the same engine, and compared with what was said then.

`Fold` and `start_of` are all that others need: the checker, what-if, explain and the report.
"""

from streams.recording.source import Source
from streams.replay.errors import CannotReplay
from streams.replay.fold import Fold
from streams.replay.start import start_of

__all__ = ["CannotReplay", "Fold", "Source", "start_of"]
