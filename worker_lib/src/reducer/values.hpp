#pragma once
// Passes over gradients: scale them, and convert between f32 and the types of half its size, for compress.cpp. The
// results have the same bits on all ranks, for any rounding mode that their trainers have set. Pure, any thread.

#include "ddp/buffer.hpp"

namespace ddp::detail {

/// Multiplies every element of a float buffer by `factor`, f16 and bf16 in f32. Does nothing for 1.
void scale(const Buffer& values, double factor);

/// Convert between `gradient`, of f32, and `wire`, of f16 or bf16 and equal count. narrow() rounds to nearest, ties to
/// even.
void narrow(const Buffer& gradient, const Buffer& wire);
void widen(const Buffer& wire, const Buffer& gradient);

}  // namespace ddp::detail
