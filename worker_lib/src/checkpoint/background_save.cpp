#include "worker_lib/src/checkpoint/background_save.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <exception>

#include "common/mutex.hpp"
#include "worker_lib/src/util/signal_masked_thread.hpp"

namespace ddp::detail {

/// Shared with the thread, which is detached: a child of fork() could not join it.
struct BackgroundSave::Result {
    ddprun::Mutex mutex;
    ddprun::Condition changed;
    bool done GUARDED_BY(mutex) = false;
    std::exception_ptr error GUARDED_BY(mutex);
};

BackgroundSave::~BackgroundSave() {
    if (home_.is_elsewhere()) return;
    try {
        finish();
    } catch (const std::exception& error) {
        std::fputs(fmt::format("[ddp] save_async: {}\n", error.what()).c_str(), stderr);
    }
}

void BackgroundSave::start(std::function<void()> write) {
    auto result = std::make_shared<Result>();
    start_signal_masked_thread("ddp-checkpoint", [write = std::move(write), result]() mutable {
        std::exception_ptr error;
        try {
            write();
        } catch (...) {
            error = std::current_exception();
        }
        write = nullptr;
        const ddprun::Lock lock(result->mutex);
        result->error = std::move(error);
        result->done = true;
        result->changed.notify_all();
    }).detach();
    result_ = std::move(result);
}

void BackgroundSave::finish() {
    const auto result = std::exchange(result_, nullptr);
    if (!result) return;
    std::exception_ptr error;
    {
        const ddprun::Lock lock(result->mutex);
        while (!result->done) result->changed.wait(result->mutex);
        error = std::exchange(result->error, nullptr);
    }
    if (error) std::rethrow_exception(error);
}

}  // namespace ddp::detail
