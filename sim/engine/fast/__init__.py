"""The kernel again, compiled by numba: the same algorithm over the same arrays (extra `fast`).

`layout` turns the arrays into rows of plain numbers, `heaps`, `flows`, `fluid` and `loop` are compiled, `compiled` keeps the
machine code, `kernel` drives it, `solver` finds the caps of latency-bound flows. It replays closed programs (nobody looks in or
changes anything on the way) without exclusive servers, in times equal to those of the plain kernel to the last bit: users of
a channel, marks and sums keep its order. `engine.run` chooses.
"""
