#include "worker_lib/src/group/group_end.hpp"

#include <chrono>
#include <cstdlib>
#include <exception>
#include <memory>
#include <utility>

#include "common/mutex.hpp"
#include "worker_lib/src/util/forks.hpp"
#include "worker_lib/src/util/signal_masked_thread.hpp"

namespace ddp::detail {

namespace {

/// Counts the groups that are ending on threads of their own. main() may return as soon as the last callback has
/// returned, so the process waits for these threads at its exit, for a second at most. Then the peers are notified that
/// this rank has left, while the driver of a GPU is still loaded.
class GroupEnds {
public:
    static GroupEnds& all() {
        static auto& ends = *new GroupEnds;  // never destroyed: threads may outlive the statics
        return ends;
    }
    void begin() EXCLUDES(mutex_) {
        const ddprun::Lock lock(mutex_);
        ++running_;
    }
    void done() EXCLUDES(mutex_) {
        {
            const ddprun::Lock lock(mutex_);
            --running_;
        }
        changed_.notify_all();
    }

private:
    GroupEnds() {
        std::atexit([] { all().wait(); });
    }
    void wait() EXCLUDES(mutex_) {
        if (home_.is_elsewhere()) return;
        const auto deadline = ddprun::Clock::now() + std::chrono::seconds(1);
        const ddprun::Lock lock(mutex_);
        while (running_ != 0 && changed_.wait_until(mutex_, deadline)) {
        }
    }

    const ProcessMark home_;
    ddprun::Mutex mutex_;
    ddprun::Condition changed_;
    int running_ GUARDED_BY(mutex_) = 0;
};

/// Fails the operations in flight if there is no thread or no memory to end the group. The group's memory leaks.
void only_abort(GroupImpl& group) noexcept {
    try {
        group.abort("it was destroyed inside a callback, and there is no memory or thread to end it");
    } catch (...) {  // no memory for the message either
    }
}

/// Destroys the group while an exception passes, because its destructors choose their report to the peers by
/// std::uncaught_exceptions().
void end_by_exception(GroupImpl* group) noexcept {
    struct Exception {};
    try {
        const std::unique_ptr<GroupImpl> last_owner(group);
        throw Exception{};
    } catch (const Exception&) {
    }
}

/// Ends the group on a thread of its own, because the end waits for the threads that run the group, and the callback's
/// thread is one of them. The new thread is detached, because the callback may block any thread that would join it.
/// by_exception   the group was destroyed by an exception
void end_elsewhere(GroupImpl* group, bool by_exception) noexcept {
    try {
        GroupEnds::all().begin();
    } catch (...) {
        return only_abort(*group);
    }
    try {
        start_signal_masked_thread("ddp-end", [group, by_exception] {
            by_exception ? end_by_exception(group) : delete group;
            GroupEnds::all().done();
        }).detach();
    } catch (...) {
        GroupEnds::all().done();
        only_abort(*group);
    }
}

}  // namespace

void end_group(std::unique_ptr<GroupImpl> group) noexcept {
    if (!group) return;
    GroupImpl* const own = group.get();
    const bool by_exception = std::uncaught_exceptions() > 0;
    try {
        if (own->after_callbacks([=] { end_elsewhere(own, by_exception); })) static_cast<void>(group.release());
    } catch (...) {  // inside a callback
        only_abort(*group.release());
    }
}

}  // namespace ddp::detail
