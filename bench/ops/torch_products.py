"""Products of PyTorch (cuBLAS) on the model's shapes, caches cold, beside gpu_ops_bench: python3 bench/ops/torch_products.py [ROWS...]

FP8: torch._scaled_mm with one scale per tensor, which is less work than a scale per 32 values; bf16: torch.mm on dequantised weights, twice the
bytes. Median of many, each timed alone by events after 256 MB were written.
"""

import sys

import torch

SHAPES = [(1280, 5120), (32768, 1280), (8192, 4096), (5120, 8192), (16384, 5120)]
REPEATS = 25


def microseconds(work):
    flush = torch.empty(256 << 20, dtype=torch.uint8, device="cuda")
    times = []
    for _ in range(REPEATS):
        flush.fill_(1)
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda._sleep(100_000)  # the host is ahead: launches are not counted
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(1e3 * begin.elapsed_time(end))
    return sorted(times)[REPEATS // 2]


def fp8_product(rows, n, k):
    x = torch.randn(rows, k, device="cuda").to(torch.float8_e4m3fn)
    weight = torch.randn(n, k, device="cuda").to(torch.float8_e4m3fn)
    one = torch.ones((), device="cuda")
    return lambda: torch._scaled_mm(x, weight.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)


def bf16_product(rows, n, k):
    x = torch.randn(rows, k, device="cuda", dtype=torch.bfloat16)
    weight = torch.randn(n, k, device="cuda", dtype=torch.bfloat16)
    return lambda: torch.mm(x, weight.t())


def main():
    rows_of = [int(a) for a in sys.argv[1:]] or [1, 8, 64, 256, 1000, 8192]
    print(f"{torch.cuda.get_device_name()}, PyTorch {torch.__version__}")
    for n, k in SHAPES:
        for rows in rows_of:
            padded = max(16, (rows + 15) // 16 * 16)  # what _scaled_mm asks for
            line = f"[{n},{k}] {rows:5} rows"
            for name, make, count in (("bf16", bf16_product, rows), ("fp8", fp8_product, padded)):
                try:
                    time = microseconds(make(count, n, k))
                    line += f"  {name} {time:8.1f} us {2e-6 * rows * n * k / time:7.1f} TFLOP/s"
                except RuntimeError as error:
                    line += f"  {name} {str(error).splitlines()[0]}"
            print(line, flush=True)


if __name__ == "__main__":
    main()
