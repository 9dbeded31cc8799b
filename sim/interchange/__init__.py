"""Foreign traces, machines and measurements in; traces and timelines out. Returns plain objects, prints nothing."""
