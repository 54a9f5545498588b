// Exponential and logarithm in double from IEEE additions and multiplications alone: the last bit of a libm function differs
// between machines, these do not. Written so that the compiler turns the loop over a row into vector code.
#pragma once

#include <span>

namespace deepinfer::sampling {

/// e^x for x ≤ 0, relative error below 1e-15; 0 below −708 (the end of normal doubles).
[[nodiscard]] double exp_nonpositive(double x);

/// Natural logarithm of a positive normal number, error below 1e-15 relative to max(1, |ln x|).
[[nodiscard]] double log_positive(double x);

/// weights[c] = e^((logits[c] − max) · inverse_temperature). Returns their sum, added in an order fixed by the length.
/// `max` is the largest logit and finite; a logit of −infinity has weight 0. Both spans have the same length.
double exponentiate(std::span<const float> logits, float max, double inverse_temperature, std::span<double> weights);

}  // namespace deepinfer::sampling
