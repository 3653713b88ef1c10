"""What every error has: code, status, message, remedy and data."""

from __future__ import annotations

from typing import Any, ClassVar

from omnigraph.diagnostics import printable

_NO_FACTS = frozenset({"message", "remedy", "__notes__"})


class OmnigraphError(Exception):
    """Base of every error this package raises on purpose."""

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500
    retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, remedy: str | None = None) -> None:
        # Names and values in it are the user's; what they hold must not steer a terminal.
        self.message = printable(message)
        self.remedy = None if remedy is None else printable(remedy)
        super().__init__(self.message)
        if self.remedy is not None:
            self.add_note(f"help: {self.remedy}")

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # Subclasses have constructors of their own shape; a task on another process must still be
        # able to send one back, so rebuild from the attributes instead of the constructor.
        return _rebuild, (type(self), self.message, dict(self.__dict__))

    def data(self) -> dict[str, Any]:
        """The facts of this error by name, as plain values, without `message` and `remedy`."""
        return {key: _plain(value) for key, value in vars(self).items() if key not in _NO_FACTS}

    def to_json(self) -> dict[str, Any]:
        """The error as a script or a server prints it."""
        body: dict[str, Any] = {"error": self.message, "code": self.code, "retryable": self.retryable}
        if self.remedy:
            body["remedy"] = self.remedy
        facts = self.data()
        return {**body, "data": facts} if facts else body


def _rebuild(kind: type[OmnigraphError], message: str, attributes: dict[str, Any]) -> OmnigraphError:
    error = kind.__new__(kind, message)
    error.__dict__.update(attributes)
    return error


def _plain(value: Any) -> Any:
    if hasattr(value, "to_json"):
        return value.to_json()
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value
