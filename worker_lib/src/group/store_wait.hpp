#pragma once
// WaitAtStore: shows in the flight record, for as long as it lives, that this rank waits for others at the store. These
// steps are entries of a group of their own, "world (store)", because they have numbers of their own. The step in which
// a world is made belongs to "world (init)".

#include <exception>
#include <utility>

#include "ddp/error.hpp"
#include "worker_lib/src/operation/group_recorder.hpp"

namespace ddp::detail {

class WaitAtStore {
public:
    /// step   all ranks take the same steps in the same order
    WaitAtStore(GroupRecorder& recorder, const StoreStep& step) : entry_(recorder.queue(step, ddprun::Clock::now())) {
        entry_.started();
        entry_.waited(true);
    }
    /// Takes the step. If it fails because of another rank, the flight record shows that.
    template <typename Step>
    decltype(auto) run(Step&& step) const {
        try {
            return step();
        } catch (const Error& error) {
            if (error.peer_failed()) entry_.peer_failed();
            throw;
        }
    }
    /// Returns the function for GroupSpec::note_unreachable of a group that is made in this step. It marks the entry of
    /// the step.
    [[nodiscard]] auto note_unreachable() const {
        return [entry = entry_](int rank) { entry.unreachable(rank); };
    }
    ~WaitAtStore() { entry_.ended(std::uncaught_exceptions() == exceptions_); }
    WaitAtStore(const WaitAtStore&) = delete;
    WaitAtStore& operator=(const WaitAtStore&) = delete;

private:
    const int exceptions_ = std::uncaught_exceptions();
    RecordEntry entry_;
};

/// Shows the wait of a rank whose world is being formed.
class InitWait {
public:
    explicit InitWait(const GroupSpec& world)
        : recorder_(world, world.name + " (init)"),
          wait_(recorder_, {.what = "init_from_env", .tag = {}, .timeout = world.init_timeout, .seq = 1}) {}

    /// As WaitAtStore::run().
    template <typename Step>
    void run(Step&& step) const {
        wait_.run(std::forward<Step>(step));
    }
    [[nodiscard]] auto note_unreachable() const { return wait_.note_unreachable(); }

private:
    GroupRecorder recorder_;
    WaitAtStore wait_;
};

}  // namespace ddp::detail
