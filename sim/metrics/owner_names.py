"""Names of what owns seconds of the critical path without being a channel or a device."""

from __future__ import annotations

#: nothing owns enough to be said to bind
NONE = "none"
#: launches, framework code, fixed latencies
OVERHEAD = "overhead"
#: seconds before a job of a scenario with several starts
ARRIVAL = "arrival"
