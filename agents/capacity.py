from agents.table import Field

NODE_FIELDS: tuple[Field, ...] = (Field("lent", shape=(2,)),)
POD_FIELDS: tuple[Field, ...] = ()
