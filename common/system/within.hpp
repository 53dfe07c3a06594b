#pragma once
// Runs calls that cannot be interrupted, such as those on a file system that hangs, within a time limit.

#include <chrono>
#include <future>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "common/system/signals_blocked.hpp"

namespace ddprun {

/// Starts `call` on a thread of its own and returns the future of its result, whose destructor does not wait: a thread
/// that never returns is left behind, so `call` must own all that it uses. `call` must not throw.
template <typename Call>
[[nodiscard]] auto start_apart(Call call) -> std::future<decltype(call())> {
    const auto promise = std::make_shared<std::promise<decltype(call())>>();
    auto answer = promise->get_future();
    try {
        const SignalsBlocked blocked;  // signals are for the program's own threads
        std::thread([promise, call] { promise->set_value(call()); }).detach();
    } catch (const std::system_error&) {
        promise->set_value(call());  // blocks, for lack of a thread
    }
    return answer;
}

/// Returns the result of `call`; nullopt: it has not returned within `limit`. See start_apart().
template <typename Call>
[[nodiscard]] auto within(std::chrono::milliseconds limit, Call call) -> std::optional<decltype(call())> {
    auto answer = start_apart(std::move(call));
    if (answer.wait_for(limit) != std::future_status::ready) return std::nullopt;
    return answer.get();
}

}  // namespace ddprun
