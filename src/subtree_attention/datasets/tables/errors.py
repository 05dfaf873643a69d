"""The error of a table."""


class TableError(ValueError):
    """A table that cannot be used as it is: the message says where, why, and what to do."""
