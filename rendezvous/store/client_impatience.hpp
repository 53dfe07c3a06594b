#pragma once
// Impatience: what a client that does not reach its store says before it gives up.

#include <chrono>
#include <functional>
#include <string>

#include "common/clock.hpp"

namespace ddprun::store {

struct Impatience {
    Duration after = std::chrono::seconds(5);
    /// Called once, on the thread that connects: "cannot reach the store at …". Empty: nobody wants to know.
    std::function<void(const std::string& text)> tell = {};
};

}  // namespace ddprun::store
