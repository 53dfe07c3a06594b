#include "worker_lib/src/data/permutation.hpp"

#include <numeric>
#include <random>
#include <utility>

namespace ddp::detail {

std::vector<std::int64_t> permutation(std::size_t n, std::uint64_t seed) {
    return n < kLargePermutationFrom ? permutation_forward(n, seed) : permutation_inside_out(n, seed);
}

std::vector<std::int64_t> permutation_forward(std::size_t n, std::uint64_t seed) {
    std::mt19937 draw(static_cast<std::uint32_t>(seed));
    std::vector<std::int64_t> order(n);
    std::iota(order.begin(), order.end(), std::int64_t{0});
    for (std::size_t i = 0; i + 1 < n; ++i) std::swap(order[i], order[i + draw() % (n - i)]);
    return order;
}

std::vector<std::int64_t> permutation_inside_out(std::size_t n, std::uint64_t seed) {
    std::mt19937 draw(static_cast<std::uint32_t>(seed));
    std::vector<std::int64_t> order(n);
    for (std::size_t i = 0; i < n; ++i) {
        const std::uint64_t high = draw();
        const std::size_t z = (high << 32 | draw()) % (i + 1);
        order[i] = order[z];
        order[z] = static_cast<std::int64_t>(i);
    }
    return order;
}

}  // namespace ddp::detail
