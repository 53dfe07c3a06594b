#include "worker_lib/src/checkpoint/background_save.hpp"

#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <new>

#include "common/mutex.hpp"
#include "ddp/error.hpp"
#include "worker_lib/src/group/group_impl.hpp"
#include "worker_lib/src/util/signal_masked_thread.hpp"

namespace ddp::detail {

/// Shared with the thread, which is detached: a child of fork() could not join it.
struct BackgroundSave::Result {
    ddprun::Mutex mutex;
    ddprun::Condition changed;
    bool done GUARDED_BY(mutex) = false;
    std::exception_ptr error GUARDED_BY(mutex);
};

namespace {

void print_error(const std::exception& error) {
    std::fputs(fmt::format("[ddp] save_async: {}\n", error.what()).c_str(), stderr);
}

}  // namespace

BackgroundSave::~BackgroundSave() {
    if (home_.is_elsewhere()) {
        static_cast<void>(group_.release());  // its threads are the parent's
        return;
    }
    try {
        finish();
    } catch (const Error& error) {
        // All ranks have the same error, unless rank 0 is lost.
        if (!group_ || group_->rank() == 0 || error.code() == ErrorCode::PeerLost) print_error(error);
    } catch (const std::exception& error) {
        print_error(error);
    }
}

ProcessGroup& BackgroundSave::group_like(ProcessGroup& group) {
    if (!group_) {
        group_ = GroupImpl::of(group).split(0, group.rank(), "checkpoints", PartMemory::kHost);
        GroupImpl::of(*group_).allow_any_thread();
    }
    return *group_;
}

std::span<std::byte> BackgroundSave::memory(std::size_t bytes) {
    if (bytes > memory_bytes_) {
        memory_ = nullptr;
        memory_bytes_ = 0;
        try {
            memory_ = std::make_unique_for_overwrite<std::byte[]>(bytes);
        } catch (const std::bad_alloc&) {
            throw Error(
                ErrorCode::System,
                fmt::format("save_async: no room for a copy of {} bytes in host memory. Use save() instead", bytes));
        }
        memory_bytes_ = bytes;
    }
    return {memory_.get(), bytes};
}

void BackgroundSave::start(std::function<void()> write) {
    auto result = std::make_shared<Result>();
    try {
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
    } catch (...) {
        group_->abort("a rank could not make the thread of save_async()");
        throw;
    }
    result_ = std::move(result);
}

void BackgroundSave::cancel() noexcept {
    try {
        if (group_) group_->abort("save_async() has failed");
        finish();
    } catch (const std::exception&) {  // the error before this one is being reported
    }
    step_.reset();
    group_ = nullptr;
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
