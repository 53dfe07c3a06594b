#include "worker_lib/src/native/p2p/work_table.hpp"

namespace ddp::detail::p2p {

void WorkTable::submit(const WorkPtr& work) {
    const ddprun::Lock lock(mutex_);
    submitted_.push_back(work);
    any_submitted_.store(true, std::memory_order_seq_cst);
}

std::deque<WorkTable::WorkPtr> WorkTable::take_submitted() {
    std::deque<WorkPtr> taken;
    {
        const ddprun::Lock lock(mutex_);
        taken.swap(submitted_);
        any_submitted_ = false;
    }
    for (const WorkPtr& work : taken) in_flight_.emplace(work->seq(), work);
    return taken;
}

void WorkTable::collect(std::vector<PendingTransfer>& finished) {
    for (PendingTransfer& pending : finished) {
        if (!pending.work->finish(pending.index)) continue;
        in_flight_.erase(pending.work->seq());
        ended_.push_back({std::move(pending.work), nullptr});
    }
    finished.clear();
}

void WorkTable::fail_all(ErrorCode why, const std::function<Error(const P2pWork&)>& error_of) {
    for (const auto& [seq, work] : in_flight_) {
        const Error error = error_of(*work);
        work->give_up(why, error.peer_failed());
        ended_.push_back({work, std::make_exception_ptr(error)});
    }
    in_flight_.clear();
}

}  // namespace ddp::detail::p2p
