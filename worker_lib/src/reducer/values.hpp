#pragma once
// Passes over gradients: multiply, and convert between f32 and the types of half its size. To the same bits on all
// ranks, whatever rounding their trainers have set.

#include "ddp/types.hpp"

namespace ddp::detail {

/// Multiplies every element of a float buffer by `factor`, f16 and bf16 in f32. Nothing is done for 1.
void scale(const Buffer& values, double factor);

/// `wire` is f16 or bf16, `gradient` f32, of equal count. Rounds to nearest, ties to even.
void narrow(const Buffer& gradient, const Buffer& wire);
void widen(const Buffer& wire, const Buffer& gradient);

}  // namespace ddp::detail
