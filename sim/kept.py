"""Values kept while there is room: points of a sweep share most of what they are made of."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any, Generic, TypeVar, cast

Value = TypeVar("Value")
_MISSING = object()


class Kept(Generic[Value]):
    """Remembers values by key; those not asked for longest go first, once the sizes exceed `room`. The newest always stays.

    A key may be the `id` of an object only if the value holds that object.
    """

    def __init__(self, room: int, size: Callable[[Value], int]) -> None:
        self._room, self._size = room, size
        self._values: OrderedDict[Hashable, Any] = OrderedDict()
        self._taken = 0

    def get(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of `key`, made now if it is not known."""
        known = self._values.get(key, _MISSING)
        if known is not _MISSING:
            self._values.move_to_end(key)
            return cast(Value, known)
        value = make()
        self._values[key] = value
        self._taken += self._size(value)
        while self._taken > self._room and len(self._values) > 1:
            self._taken -= self._size(self._values.popitem(last=False)[1])
        return value
