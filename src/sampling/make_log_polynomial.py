#!/usr/bin/env python3
"""Prints the coefficients in noise.cpp: Q with log(1 + f) = f + f^2 Q(f) on [sqrt(1/2) - 1, sqrt(2) - 1].

Minimax in the relative error of the logarithm (Lawson's reweighted least squares), then rounded to float32. Needs numpy.
"""
import numpy as np

DEGREE = 8  # relative error 4e-9: below the rounding of the evaluation, 6e-8
LOW, HIGH = np.sqrt(0.5) - 1, np.sqrt(2.0) - 1

nodes = np.cos(np.pi * (np.arange(4000) + 0.5) / 4000) * (HIGH - LOW) / 2 + (LOW + HIGH) / 2
exact = nodes.astype(np.longdouble)
target = ((np.log1p(exact) - exact) / exact**2).astype(float)
scale = np.abs(exact**2 / np.log1p(exact)).astype(float)
powers = np.vander(nodes, DEGREE + 1, increasing=True)
weights = np.full(len(nodes), 1 / len(nodes))
for _ in range(200):
    root = np.sqrt(weights) * scale
    coefficients, *_ = np.linalg.lstsq(powers * root[:, None], target * root, rcond=None)
    error = np.abs((powers @ coefficients - target) * scale)
    weights *= error
    weights /= weights.sum()
for power, value in enumerate(coefficients):
    print(f"    {float(np.float32(value)).hex()}F,  // f^{power}")
