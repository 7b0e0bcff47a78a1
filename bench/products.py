#!/usr/bin/env python3
"""GFLOP/s of float32 products x w^T on one core, by BLAS and by oneDNN, alone and in two processes side by side.

    .deps/oracle/bin/python bench/products.py [--save FILE]

Rows, inner and columns are those of layers of bench/wide_models.py with 512 rows. What BLAS reaches is what PyTorch's eager
step multiplies with; the programs take the faster of the two (runtime/kernels/kernel_choice.h). The last two columns are the
better of both in each of two processes, pinned to a core each, which begin together.
"""

import argparse
import multiprocessing
import os

import torch

import results
import roofline

SHAPES = [(512, 256, 256), (512, 256, 1024), (512, 1024, 256), (512, 768, 768), (512, 768, 3072), (512, 3072, 768)]


def rates(rows: int, inner: int, columns: int) -> tuple[float, float]:
    """Of BLAS and of oneDNN."""
    x, weight = torch.randn(rows, inner), torch.randn(columns, inner)
    flops = 2 * rows * inner * columns
    products = (lambda: x @ weight.t(), lambda: torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], ""))
    return tuple(flops / roofline.fastest(product, rounds=100) / 1e9 for product in products)


def measure(core: int, barrier, found) -> None:
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[core]})
    torch.set_num_threads(1)
    for i, shape in enumerate(SHAPES):
        barrier.wait()
        found[core * len(SHAPES) + i] = max(rates(*shape))


def side_by_side() -> list[tuple[float, float]]:
    context = multiprocessing.get_context("spawn")
    barrier, found = context.Barrier(2), context.Array("d", 2 * len(SHAPES))
    processes = [context.Process(target=measure, args=(core, barrier, found)) for core in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    return list(zip(found[:len(SHAPES)], found[len(SHAPES):]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--save", help="file to write the results to")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    alone = [rates(*shape) for shape in SHAPES]
    rows = [{"shape": "x".join(map(str, shape)), "blas": blas, "onednn": onednn, "first": first, "second": second}
            for shape, (blas, onednn), (first, second) in zip(SHAPES, alone, side_by_side())]
    print(f"{results.processor()}\n{'shape':16} {'BLAS':>8} {'oneDNN':>8} {'of two processes':>20}")
    for row in rows:
        print(f"{row['shape']:16} {row['blas']:8.0f} {row['onednn']:8.0f} {row['first']:10.0f} {row['second']:9.0f}")
    if arguments.save:
        results.save(arguments.save, "products", rows, key=["shape"], lower_is_better=[])


if __name__ == "__main__":
    main()
