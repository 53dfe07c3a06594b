#pragma once
// A thread to which no signal is delivered: handlers belong to the trainer's threads.

#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

namespace ddp::detail {

/// `name` has at most 15 characters.
template <typename Function>
[[nodiscard]] std::thread start_quiet_thread(const char* name, Function function) {
    sigset_t all;
    sigset_t before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread thread(std::move(function));
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    ::pthread_setname_np(thread.native_handle(), name);
    return thread;
}

}  // namespace ddp::detail
