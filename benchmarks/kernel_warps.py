"""µs a time step of the Triton kernels for each number of warps.

`elm_lib.kernels.recurrence.engine_cuda.plan` chooses from them.

python benchmarks/kernel_warps.py
"""

import torch

from elm_lib.kernels.recurrence import engine_cuda


def microseconds(batch: int, d_m: int, warps: int, steps: int = 500, **sizes) -> tuple[float, float]:
    """Forward and reverse kernel, a time step each."""
    torch.manual_seed(0)
    d_1 = 2 * d_m
    p, m = torch.randn(steps, batch, d_1, device="cuda"), torch.zeros(steps + 1, batch, d_m, device="cuda")
    kappa, w_m, w_2, b_2 = (torch.rand(*s, device="cuda") / 10 for s in ((d_m,), (d_1, d_m), (d_m, d_1), (d_m,)))
    grad, slope_1, slope_2 = torch.randn_like(m[1:]), torch.randn_like(p), torch.randn_like(m[1:])
    plan = engine_cuda.plan

    def chosen(*arguments):
        how = plan(*arguments)
        return how | {"warps": warps, "sizes": how["sizes"] | sizes}

    engine_cuda.plan = chosen
    try:
        times = []
        for action in (
            lambda: engine_cuda.forward_loop(p, m, kappa, kappa, w_m, (w_2, b_2), "relu", 1.0),
            lambda: engine_cuda.reverse_loop(
                grad, (slope_1, slope_2), torch.empty_like(grad), torch.zeros_like(m[0]), kappa, w_m, [w_2]
            ),
        ):
            action()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            best = float("inf")
            for _ in range(5):
                start.record()
                action()
                end.record()
                end.synchronize()
                best = min(best, start.elapsed_time(end))
            times.append(1e3 * best / steps)
    finally:
        engine_cuda.plan = plan
    return times[0], times[1]


def main() -> None:
    torch.set_float32_matmul_precision("high")
    for warps in (1, 2, 4, 8):
        report(8, 20, warps)
    for chunk, warps in ((64, 4), (64, 8), (64, 16), (32, 8)):
        report(8, 100, warps, CHUNK=chunk)
    for chunk, warps in ((32, 4), (32, 8), (64, 8), (16, 8)):
        report(768, 150, warps, CHUNK=chunk)


def report(batch: int, d_m: int, warps: int, **sizes) -> None:
    try:
        forward, reverse = microseconds(batch, d_m, warps, **sizes)
    except Exception as error:  # too many registers or too much shared memory for this choice
        print(f"B={batch} d_m={d_m} warps={warps} {sizes}: {type(error).__name__}")
        return
    print(f"B={batch} d_m={d_m} warps={warps} {sizes}: forward {forward:.2f}, reverse {reverse:.2f} µs a step")


if __name__ == "__main__":
    main()
