"""Why something was decided, from the audit log alone; `line` first, `cli` is the command."""
