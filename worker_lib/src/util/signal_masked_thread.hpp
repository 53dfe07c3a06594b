#pragma once
// A thread to which no signal is delivered: handlers belong to the trainer's threads.

#include <pthread.h>

#include <system_error>
#include <thread>
#include <utility>

#include "common/signals_blocked.hpp"
#include "worker_lib/src/native/short_turns.hpp"
#include "worker_lib/src/native/system_error.hpp"

namespace ddp::detail {

/// `name` has at most 15 characters. Throws Error{System} when there may be no more threads.
template <typename Function>
[[nodiscard]] std::thread start_quiet_thread(const char* name, Function function) {
    const ddprun::SignalsBlocked blocked;
    try {
        std::thread thread([function = std::move(function)]() mutable {
            take_short_turns();
            function();
        });
        ::pthread_setname_np(thread.native_handle(), name);
        return thread;
    } catch (const std::system_error& error) {
        throw_errno("cannot start a thread (ulimit -u, or the limit of a container?)", error.code().value());
    }
}

}  // namespace ddp::detail
