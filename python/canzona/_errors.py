"""The errors of this package."""


class Error(RuntimeError):
    """Something failed that is not the caller's mistake."""


class NumericalError(Error):
    """Numbers that are not finite, or a decomposition that failed."""


class UsageError(ValueError):
    """The caller's mistake; says what is wrong and what was expected."""
