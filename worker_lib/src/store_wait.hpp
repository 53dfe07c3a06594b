#pragma once
// What says on the board that this rank waits for others at the store, for as long as it lives. These steps stand there
// as operations of a group of their own, "world (store)", for they have numbers of their own; that in which a world is
// made, of "world (init)".

#include <exception>

#include "worker_lib/src/backend.hpp"
#include "worker_lib/src/board.hpp"

namespace ddp::detail {

class WaitAtStore {
public:
    /// step   all ranks take the same ones in the same order
    WaitAtStore(BoardPlace& place, const StoreStep& step);
    ~WaitAtStore() { ticket_.ended(std::uncaught_exceptions() == exceptions_); }
    WaitAtStore(const WaitAtStore&) = delete;
    WaitAtStore& operator=(const WaitAtStore&) = delete;

private:
    const int exceptions_ = std::uncaught_exceptions();
    BoardTicket ticket_;
};

/// Of the ranks that are to become a world.
class InitWait {
public:
    explicit InitWait(const GroupSpec& world)
        : place_(world, world.name + " (init)"),
          wait_(place_, {.what = "init_from_env", .tag = {}, .timeout = world.init_timeout, .seq = 1}) {}

private:
    BoardPlace place_;
    WaitAtStore wait_;
};

}  // namespace ddp::detail
