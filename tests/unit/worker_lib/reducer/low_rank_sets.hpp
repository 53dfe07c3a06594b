#pragma once
// LowRankSet: the functions of low_rank.cpp, compiled with the library's options and for one more instruction set.
// low_rank_avx2.cpp and low_rank_avx512.cpp are the library's source under another name.

#include "worker_lib/src/reducer/low_rank.hpp"

namespace ddp::testing {

struct LowRankSet {
    const char* name;
    decltype(&detail::add_and_multiply) add_and_multiply;
    decltype(&detail::orthonormalise) orthonormalise;
    decltype(&detail::multiply_transposed) multiply_transposed;
    decltype(&detail::subtract_product) subtract_product;
    decltype(&detail::set_to_product) set_to_product;
};

#ifdef __x86_64__
extern const LowRankSet kLowRankAvx2, kLowRankAvx512;
#endif

}  // namespace ddp::testing
