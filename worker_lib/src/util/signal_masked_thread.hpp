#pragma once
// Threads to which no signal is delivered: signal handlers belong to the trainer's threads.

#include <pthread.h>

#include <system_error>
#include <thread>
#include <utility>

#include "common/system/signals_blocked.hpp"
#include "worker_lib/src/tuning/short_time_slices.hpp"
#include "worker_lib/src/util/error.hpp"

namespace ddp::detail {

/// Starts a thread; `name` has at most 15 characters. Throws Error{System} when the limit of threads is reached.
template <typename Function>
[[nodiscard]] std::thread start_signal_masked_thread(const char* name, Function function) {
    const ddprun::SignalsBlocked blocked;
    try {
        std::thread thread([function = std::move(function)]() mutable {
            request_short_time_slices();
            function();
        });
        ::pthread_setname_np(thread.native_handle(), name);
        return thread;
    } catch (const std::system_error& error) {
        throw_errno("cannot start a thread", error.code().value(),
                    "Raise `ulimit -u`, or the pids limit of the container or cgroup");
    }
}

}  // namespace ddp::detail
