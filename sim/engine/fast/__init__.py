"""The kernel again, compiled by numba: the same algorithm over the same arrays (extra `fast`).

`layout` turns the arrays into rows of plain numbers, `heaps`, `flows`, `fluid` and `loop` are compiled, `compiled` keeps the
machine code, `kernel` drives it. It replays closed programs (nobody looks in or changes anything on the way) without
latency-bound flows and exclusive servers; `engine.run` chooses.
"""
