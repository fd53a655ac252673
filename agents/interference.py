from agents.table import Field

NODE_FIELDS: tuple[Field, ...] = (Field("point_us", fill=-1),)
POD_FIELDS: tuple[Field, ...] = ()
