"""The demo: the whole loop on one machine, real processes, a live view and a judged summary.

`cli` is the command; `run` tells the story in phases; `supervisor` keeps the processes; `stage`
speaks to the workbench that makes load on the real node; `reader` and `board` follow the topics;
`view` draws; `trace` and `judge` are the arithmetic of the summary, pure and tested by themselves.
"""
