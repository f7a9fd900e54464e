"""Compile the Triton kernels for an H100 on a machine that has none; prints a line a kernel. Run without TRITON_INTERPRET."""

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from elm_lib.recurrence import cuda

INTEGERS = {"steps": "i32", "batch": "i32"}

for batch, d_m in ((8, 20), (8, 100), (8, 150), (768, 150)):
    how = cuda.plan(batch, d_m, 2 * d_m, torch.float32)
    pair = (cuda._forward_tile, cuda._reverse_tile) if how["tiles"] else (cuda._forward_vector, cuda._reverse_vector)
    for kernel in pair:
        constants = {"D_M": d_m, "D_1": 2 * d_m, "SILU": False, "B": 1.0, **how["sizes"]}
        constants = {name: value for name, value in constants.items() if name in kernel.arg_names}
        signature = {
            name: "constexpr" if name in constants else INTEGERS.get(name, "*fp32") for name in kernel.arg_names
        }
        places = {(kernel.arg_names.index(name),): value for name, value in constants.items()}
        compiled = triton.compile(
            ASTSource(kernel, signature, places),
            target=GPUTarget("cuda", 90, 32),
            options={"num_warps": how["warps"]},
        )
        print(f"sm_90 {kernel.__name__} d_m={d_m}: {compiled.metadata.shared} bytes of shared memory")
