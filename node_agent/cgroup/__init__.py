"""Where the kernel keeps the control groups of this machine; read by signals and actuators.

`layout` finds which hierarchy holds each controller, `files` names every file once per version,
`paths` refuses unsafe group paths, `handles` keeps descriptors. Nothing here decides or parses.
"""
