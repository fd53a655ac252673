"""What the answers to "what if" rest on, in words; each answer carries them."""

_TEXT = """
Best-effort work under another bound uses the smaller of what it wants and the bound; what it
wants while it is held is an estimate from below: what it used when it was last free (ten
minutes at most), or what it used and one core for all the time it was throttled. Work that was
held from the beginning, on a node that reports no throttled time, wants what it got.

Work that was withheld does not come later, and work that is done earlier does not end earlier:
there is no backlog and no end of a job.

Online work, system work and host applications use what they used, whatever best-effort work
does beside them; their pressure and waiting are fed to the other policy as they were.

A pod that the other policy does not order out lives on at what it wanted and held last, to the
end of the recording; what was started in its place runs as well. A pod that only the other
policy orders out vanishes after the policy's grace and is started nowhere else.

Schedulers place what they placed: more capacity offered brings no more pods. A best-effort pod
that comes behind the mark, and would not have fitted what the other policy offers there, is not
placed and runs nowhere else; where what ran did not fit what was offered either, it stays. The
ledger stands as it was, and fleet facts and budgets are those recorded.

What nodes did by themselves between two samples (the reflex, evictions of their own) is kept
where both policies say the same, and left out where they do not.

Reports of online services are fed to the other policy as they were. Misses expected under it
follow the node's use: as often as the same service missed at such a use in the recording.
"""
LIMITS = tuple(" ".join(part.split()) for part in _TEXT.strip().split("\n\n"))
