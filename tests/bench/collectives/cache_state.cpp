// Prints the round trip of a word between the first two CPUs, for peers that are not C++.
#include "tests/bench/collectives/cache_state.hpp"

#include <cstdio>

int main() { std::printf("%.1f\n", ddprun::bench::cache_round_trip_ns()); }
