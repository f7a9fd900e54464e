"""Errors that a user can act on: one line that names the file, the key, the value and the remedy."""


class DataError(RuntimeError):
    """A data file is missing, damaged, of another schema, or holds values that cannot be trained on."""


class ConfigError(ValueError):
    """params.yaml holds an unknown key, a wrong type or a value out of range."""
