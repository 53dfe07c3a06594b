#include "tests/unit/worker_lib/reducer/low_rank_sets.hpp"

namespace avx512::detail {
using ddp::detail::MatrixShape;
}  // namespace avx512::detail

#define ddp avx512
#include "worker_lib/src/reducer/low_rank.cpp"
#undef ddp

const ddp::testing::LowRankSet ddp::testing::kLowRankAvx512{"Avx512",
                                                            avx512::detail::add_and_multiply,
                                                            avx512::detail::orthonormalise,
                                                            avx512::detail::multiply_transposed,
                                                            avx512::detail::subtract_product,
                                                            avx512::detail::set_to_product};
