#pragma once
// A thread to which no signal is delivered: handlers belong to the trainer's threads.

#include <pthread.h>

#include <csignal>
#include <system_error>
#include <thread>
#include <utility>

#include "worker_lib/src/native/system_error.hpp"

namespace ddp::detail {

/// While it lives the calling thread gets no signals, and neither do threads that it starts.
class SignalsBlocked {
public:
    SignalsBlocked() {
        sigset_t all;
        ::sigfillset(&all);
        ::pthread_sigmask(SIG_SETMASK, &all, &before_);
    }
    ~SignalsBlocked() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;

private:
    sigset_t before_{};
};

/// `name` has at most 15 characters. Throws Error{System} when there may be no more threads.
template <typename Function>
[[nodiscard]] std::thread start_quiet_thread(const char* name, Function function) {
    const SignalsBlocked blocked;
    try {
        std::thread thread(std::move(function));
        ::pthread_setname_np(thread.native_handle(), name);
        return thread;
    } catch (const std::system_error& error) {
        throw_errno("cannot start a thread (ulimit -u, or the limit of a container?)", error.code().value());
    }
}

}  // namespace ddp::detail
