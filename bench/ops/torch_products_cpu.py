"""Products of PyTorch on the CPU (oneDNN) on the model's shapes, beside ops_bench: python3 bench/ops/torch_products_cpu.py THREADS [ROWS...]

Weights as bf16, quantised ones dequantised: PyTorch has no product with their formats. Each shape has several weights in turn where one would stay
in the caches. One thread is measured in processor time, so that on a machine that others use, waiting for a core does not count. Best and median.
"""

import sys
import time

import torch

SHAPES = [
    ("FP8 [1280,5120]", 1, 1280, 5120),
    ("FP8 [32768,1280]", 1, 32768, 1280),
    ("FP8 8 x [1024,4096]", 8, 1024, 4096),
    ("FP8 [5120,8192]", 1, 5120, 8192),
    ("bf16 [16384,5120]", 1, 16384, 5120),
    ("expert [2304,5120]", 1, 2304, 5120),
    ("expert [5120,2304]", 1, 5120, 2304),
]
CACHED_BYTES = 64 << 20
SECONDS = 0.4
FEWEST = 7


def times_of(work, clock):
    work(0)
    times = []
    begin = time.monotonic()
    while len(times) < FEWEST or time.monotonic() - begin < SECONDS:
        start = clock()
        work(len(times))
        times.append(clock() - start)
    return sorted(times)


def product(groups, rows, n, k):
    copies = max(1, CACHED_BYTES // (2 * groups * n * k))
    weights = [torch.randn(groups, n, k).to(torch.bfloat16) for _ in range(copies)]
    x = torch.randn(groups, rows, k).to(torch.bfloat16)
    if groups == 1:
        return lambda i: torch.mm(x[0], weights[i % copies][0].t())
    return lambda i: torch.bmm(x, weights[i % copies].transpose(1, 2))


def main():
    threads = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    rows_of = [int(a) for a in sys.argv[2:]] or [1, 16, 64, 512]
    torch.set_num_threads(threads)
    clock = time.thread_time if threads == 1 else time.monotonic
    print(f"PyTorch {torch.__version__}, {threads} threads, oneDNN with bf16: {torch.ops.mkldnn._is_mkldnn_bf16_supported()}")
    for name, groups, n, k in SHAPES:
        for rows in rows_of:
            times = times_of(product(groups, rows, n, k), clock)
            best, median = times[0], times[len(times) // 2]
            flops, size = 2 * groups * rows * n * k, 2 * groups * n * k
            print(f"{name:24}{rows:5} rows {1e6 * best:10.1f} us, median {1e6 * median:10.1f}: {1e-9 * flops / best:7.1f} GFLOP/s {1e-9 * size / best:6.1f} GB/s", flush=True)


if __name__ == "__main__":
    main()
