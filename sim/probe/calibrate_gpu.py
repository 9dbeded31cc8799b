"""Measure an accelerator with PyTorch (CUDA or ROCm): copies, device memory, GEMM by shape, a small training step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from sim.probe.calibrate import best_of, start_and_rate

#: shape of the small model whose step is timed: GPT-like, about 0.4 B parameters
STEP_SHAPE = {"layers": 24, "hidden": 1024, "heads": 16, "ffn": 4096, "vocabulary": 50304}
STEP_SEQUENCE, STEP_BATCH = 1024, 4


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuMeasurement:
    """What one accelerator measured; SI units.

    copies: (direction "h2d" | "d2h", is_pinned, bytes) -> bytes/s; stream: kernel -> bytes/s read + written;
    gemm: (number format, n) -> FLOP/s of a square GEMM; steps: variant ("plain", "checkpointing", "offload") -> seconds.
    """

    name: str
    memory_bytes: float
    vendor: str
    multiprocessors: int
    copies_bytes_per_s: dict[tuple[str, bool, int], float]
    stream_bytes_per_s: dict[str, float]
    gemm_flops_per_s: dict[tuple[str, int], float]
    steps_s: dict[str, float]
    software: str

    def copy_law(self, direction: str) -> tuple[float, float]:
        """(t0, B) of T = t0 + S / B over the pinned copies of a direction."""
        points = [(size, rate) for (way, pinned, size), rate in self.copies_bytes_per_s.items() if way == direction and pinned]
        return start_and_rate([size for size, _ in points], [size / rate for size, rate in points])


def has_accelerator() -> bool:
    """Whether PyTorch is installed and sees a CUDA or ROCm device."""
    if find_spec("torch") is None:
        return False
    import torch

    return bool(torch.cuda.is_available())


def measure_gpu(
    *, device: str = "cuda:0", scale: float = 1.0, say: Callable[[str], None] = lambda _text: None
) -> GpuMeasurement:
    """Run the accelerator's microbenchmarks (about two minutes). `scale` < 1 shrinks every size, for a smoke test."""
    import torch

    if device.startswith("cuda"):
        properties = torch.cuda.get_device_properties(device)
        name, memory, cores = properties.name, float(properties.total_memory), int(properties.multi_processor_count)
    else:
        name, memory, cores = device, 0.0, 0
    probe = _Probe(torch, device, scale)
    say(f"copies between host and {name}")
    copies = {key: probe.copy(*key) for key in probe.copy_keys()}
    say("device memory")
    stream = {kernel: probe.stream(kernel) for kernel in ("read", "copy", "triad", "init")}
    say("GEMM by shape")
    gemm = {(dtype, n): probe.gemm(dtype, n) for dtype in probe.formats() for n in probe.widths()}
    say("a training step, plain, with checkpointing, with the optimizer on the host")
    steps = {variant: probe.step(variant) for variant in ("plain", "checkpointing", "offload")}
    return GpuMeasurement(
        name=name,
        memory_bytes=memory,
        vendor="amd" if getattr(torch.version, "hip", None) else "nvidia",
        multiprocessors=cores,
        copies_bytes_per_s=copies,
        stream_bytes_per_s=stream,
        gemm_flops_per_s=gemm,
        steps_s=steps,
        software=f"PyTorch {torch.__version__}",
    )


class _Probe:
    """The microbenchmarks of one device."""

    def __init__(self, torch: Any, device: str, scale: float) -> None:
        self.torch, self.device, self.scale = torch, device, scale

    def seconds(self, run: Callable[[], Any], repeats: int = 10) -> float:
        """Shortest time of a run, the device idle before and after."""

        def finished() -> None:
            run()
            if self.device.startswith("cuda"):
                self.torch.cuda.synchronize(self.device)

        return best_of(finished, repeats)

    def copy_keys(self) -> list[tuple[str, bool, int]]:
        sizes = [max(64, int(size * self.scale)) for size in (2**12, 2**16, 2**20, 2**24, 2**28, 2**30)]
        return [(way, pinned, size) for way in ("h2d", "d2h") for pinned in (True, False) for size in sizes]

    def copy(self, way: str, is_pinned: bool, size: int) -> float:
        torch = self.torch
        host = torch.empty(size, dtype=torch.uint8, pin_memory=is_pinned and self.device.startswith("cuda"))
        device = torch.empty(size, dtype=torch.uint8, device=self.device)
        source, target = (host, device) if way == "h2d" else (device, host)
        return size / self.seconds(lambda: target.copy_(source, non_blocking=is_pinned))

    def stream(self, kernel: str) -> float:
        torch = self.torch
        count = max(1024, int(2**28 * self.scale))
        a, b, c = (torch.ones(count, dtype=torch.float32, device=self.device) for _ in range(3))
        moved, run = {
            "read": (4, lambda: torch.sum(a)),
            "copy": (8, lambda: c.copy_(a)),
            "triad": (12, lambda: torch.add(a, b, alpha=3.0, out=c)),
            "init": (4, lambda: c.fill_(1.0)),
        }[kernel]
        return moved * count / self.seconds(run)

    def formats(self) -> tuple[str, ...]:
        return ("bf16", "fp16") if self.device.startswith("cuda") else ("bf16",)

    def widths(self) -> list[int]:
        return [max(16, int(n * self.scale)) for n in (1024, 2048, 4096, 8192, 16384)]

    def gemm(self, dtype: str, n: int) -> float:
        kind = {"bf16": self.torch.bfloat16, "fp16": self.torch.float16}[dtype]
        a, b = (self.torch.randn(n, n, device=self.device, dtype=kind) for _ in range(2))
        return 2.0 * n**3 / self.seconds(lambda: a @ b)

    def step(self, variant: str) -> float:
        model = _model(self.torch, self.device, self.scale, is_checkpointed=variant == "checkpointing")
        where = "cpu" if variant == "offload" else self.device
        masters = [p.detach().to(where, self.torch.float32).requires_grad_() for p in model.parameters()]
        optimizer = self.torch.optim.AdamW(masters)
        length = max(8, int(STEP_SEQUENCE * self.scale))
        tokens = self.torch.randint(0, model.head.out_features, (STEP_BATCH, length), device=self.device)

        def run() -> None:
            logits = model(tokens)
            self.torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten()).backward()
            for master, parameter in zip(masters, model.parameters(), strict=True):
                master.grad = parameter.grad.to(where, self.torch.float32)
                parameter.grad = None
            optimizer.step()
            for master, parameter in zip(masters, model.parameters(), strict=True):
                parameter.data.copy_(master.data)

        return self.seconds(run, 3)


def _model(torch: Any, device: str, scale: float, *, is_checkpointed: bool) -> Any:
    """A small pre-norm transformer with fused attention, in bf16."""
    nn = torch.nn
    heads = max(2, int(STEP_SHAPE["heads"] * scale))
    width, layers = 64 * heads, max(1, int(STEP_SHAPE["layers"] * scale))
    ffn, vocabulary = 4 * width, max(64, int(STEP_SHAPE["vocabulary"] * scale))

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, ffn), nn.Linear(ffn, width)

        def forward(self, x: Any) -> Any:
            q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, heads, 64)).permute(2, 0, 3, 1, 4)
            mixed = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(mixed.transpose(1, 2).flatten(-2))
            return x + self.down(nn.functional.gelu(self.up(self.norm2(x))))

    class Model(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(vocabulary, width)
            self.blocks = nn.ModuleList(Block() for _ in range(layers))
            self.head = nn.Linear(width, vocabulary, bias=False)

        def forward(self, tokens: Any) -> Any:
            from torch.utils.checkpoint import checkpoint

            x = self.embedding(tokens)
            for block in self.blocks:
                x = checkpoint(block, x, use_reentrant=False) if is_checkpointed else block(x)
            return self.head(x)

    return Model().to(device, torch.bfloat16)
