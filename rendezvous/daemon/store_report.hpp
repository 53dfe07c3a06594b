#pragma once
// What `ddprund --store` says about itself. Pure.

#include <chrono>
#include <string>

#include "rendezvous/store/statistics.hpp"

namespace ddprun::daemon {

/// "up 12 s; 3 connections (5 accepted, 1 closed for what it asked); 4 keys and 0 waits in 1.2 KiB; 7 requests: SET 4,
/// GET 3; 310 B in, 200 B out". Kinds of request that nobody made are left out.
[[nodiscard]] std::string statistics_line(const store::Statistics& now, std::chrono::seconds up);

}  // namespace ddprun::daemon
