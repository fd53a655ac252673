"""What was on the topics, as files: a recording is a folder that grows, a bundle one file.

`open_recording` reads both. Everything that looks back (replay, explain, report, accounts, SQL)
reads through the `Recording` it returns and never a topic.
"""

from streams.recording.manifest import BadRecording, Manifest, Problem, Segment
from streams.recording.recording import Recording, open_recording

__all__ = ["BadRecording", "Manifest", "Problem", "Recording", "Segment", "open_recording"]
