// How a group ends: at once, or, inside a callback of one of its own works, when that has returned.

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <utility>

#include "ddp/process_group.hpp"
#include "worker_lib/src/forks.hpp"
#include "worker_lib/src/group.hpp"
#include "worker_lib/src/native/quiet_thread.hpp"

namespace ddp {

namespace detail {

namespace {

/// Groups whose ends are under way. main() may return as soon as the last callback has: the process waits for them at
/// its exit for a while, so that peers hear that this rank has left, and the driver of a GPU is still there.
class Ends {
public:
    static Ends& all() {
        static auto& ends = *new Ends;  // for threads that are still at it when statics are destroyed
        return ends;
    }
    void begin() {
        const std::lock_guard lock(mutex_);
        ++under_way_;
    }
    void done() {
        {
            const std::lock_guard lock(mutex_);
            --under_way_;
        }
        changed_.notify_all();
    }

private:
    Ends() {
        std::atexit([] { all().wait(); });
    }
    void wait() {
        if (home_.is_elsewhere()) return;
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, std::chrono::seconds(1), [this] { return under_way_ == 0; });
    }

    const ProcessMark home_;
    std::mutex mutex_;
    std::condition_variable changed_;
    int under_way_ = 0;
};

/// There may be no more threads, or no memory: what is in flight fails at least, and the group's memory stays.
void only_abort(GroupImpl& group) noexcept {
    try {
        group.abort("it was destroyed inside a callback, and nothing is left of what it takes to end it");
    } catch (...) {  // nor of what it takes to say so
    }
}

/// As an exception that leaves a scope would: who is destroyed asks std::uncaught_exceptions() what to tell its peers.
void end_by_exception(GroupImpl* group) noexcept {
    struct Exception {};
    try {
        const std::unique_ptr<GroupImpl> last_owner(group);
        throw Exception{};
    } catch (const Exception&) {
    }
}

/// On a thread of its own: the group's end waits for those who run it, and the callback's thread is one of them. Nor
/// may anybody join that one: the callback may keep whoever would do so waiting, too.
/// by_exception   it was destroyed by one
void end_elsewhere(GroupImpl* group, bool by_exception) noexcept {
    try {
        Ends::all().begin();
    } catch (...) {
        return only_abort(*group);
    }
    try {
        start_quiet_thread("ddp-end", [group, by_exception] {
            by_exception ? end_by_exception(group) : delete group;
            Ends::all().done();
        }).detach();
    } catch (...) {
        Ends::all().done();
        only_abort(*group);
    }
}

void destroy(std::unique_ptr<GroupImpl> group) noexcept {
    if (!group) return;
    GroupImpl* const own = group.get();
    const bool by_exception = std::uncaught_exceptions() > 0;
    try {
        if (own->after_callbacks([=] { end_elsewhere(own, by_exception); })) static_cast<void>(group.release());
    } catch (...) {  // inside a callback
        only_abort(*group.release());
    }
}

}  // namespace

}  // namespace detail

ProcessGroup::~ProcessGroup() { detail::destroy(std::move(impl_)); }

ProcessGroup& ProcessGroup::operator=(ProcessGroup&& other) noexcept {
    if (this != &other) detail::destroy(std::exchange(impl_, std::move(other.impl_)));
    return *this;
}

}  // namespace ddp
