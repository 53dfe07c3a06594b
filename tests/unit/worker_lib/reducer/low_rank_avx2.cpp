#include "tests/unit/worker_lib/reducer/low_rank_sets.hpp"

namespace avx2::detail {
using ddp::detail::MatrixShape;
}  // namespace avx2::detail

#define ddp avx2
#include "worker_lib/src/reducer/low_rank.cpp"
#undef ddp

const ddp::testing::LowRankSet ddp::testing::kLowRankAvx2{"Avx2",
                                                          avx2::detail::add_and_multiply,
                                                          avx2::detail::orthonormalise,
                                                          avx2::detail::multiply_transposed,
                                                          avx2::detail::subtract_product,
                                                          avx2::detail::set_to_product};
