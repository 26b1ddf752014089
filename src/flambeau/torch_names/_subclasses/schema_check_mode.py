"""torch._subclasses.schema_check_mode"""

from flambeau.library.schema_checking import SchemaCheckMode

__all__ = ["SchemaCheckMode"]
