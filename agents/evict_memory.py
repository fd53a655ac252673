from agents.table import Field

NODE_FIELDS: tuple[Field, ...] = ()
POD_FIELDS: tuple[Field, ...] = ()
