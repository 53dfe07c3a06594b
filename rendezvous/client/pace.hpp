#pragma once
// Pace: how a daemon is dialled. A plain value.

#include <chrono>

#include "common/clock.hpp"

namespace ddprun::client {

/// How often, and for how long, a daemon is tried.
struct Pace {
    std::chrono::milliseconds max_pause{1000};  ///< between two tries; the first ones follow each other faster
    std::chrono::milliseconds try_time{5000};   ///< of one address: a host that drops packets must not use up the time
                                                ///< of the next one
    std::chrono::milliseconds first_try_time{5000};  ///< doubled by each try: a lost SYN is repeated after 1 s only
    TimePoint refused_until = TimePoint::max();  ///< from then on a refused connection is the end of a daemon that ran
    bool reports = true;                         ///< a longer wait, on the log
};

}  // namespace ddprun::client
