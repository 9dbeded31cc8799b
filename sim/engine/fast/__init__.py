"""The kernel again, compiled by the machine's C compiler or by numba (extra `fast`): the same algorithm over the same arrays.

`layout` turns the arrays into rows of plain numbers, `heaps`, `flows`, `fluid` and `loop` are compiled, `c_source` and
`c_code` (C) or `jit` and `compiled` (numba) make and keep the machine code, `kernel` drives it, `solver` finds the caps of
latency-bound flows. It replays closed programs (nobody looks in or changes anything on the way) without exclusive servers,
in times equal to those of the plain kernel to the last bit: users of a channel, marks and sums keep its order. `engine.run`
chooses.
"""
