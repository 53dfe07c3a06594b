#include "worker_lib/src/native/node/node_progress.hpp"

#include "worker_lib/src/native/shm/message_ring.hpp"
#include "worker_lib/src/util/process_watch.hpp"

namespace ddp::detail {

void NodeProgress::signal_listening() const {
    ranks_.own().listening.fetch_add(1, std::memory_order_relaxed);
    signal_waiting();
}

void NodeProgress::signal_waiting() const {
    ranks_.own_local().segment->post_page().listening.fetch_add(1, std::memory_order_relaxed);
}

void NodeProgress::leave(Departure how) {
    ranks_.own().left.store(how, std::memory_order_seq_cst);
    ranks_.wake_all();
}

std::optional<Absence> NodeProgress::absence(int index) const {
    const Control& control = ranks_.control(index);
    const LocalRank& local = ranks_.local(index);
    Departure how = control.left.load(std::memory_order_seq_cst);
    const bool ended = has_ended(local.process);
    if (how == Departure::kPresent && ended) how = Departure::kEnded;
    if (how == Departure::kPresent) return std::nullopt;
    const std::uint64_t after = control.done.load(std::memory_order_acquire);
    return Absence{after, departure_failure(local.rank, local.name, how, after), ended ? Departure::kEnded : how};
}

Absence NodeProgress::own_absence(Departure how) const {
    const LocalRank& own = ranks_.own_local();
    return {last_done(), departure_failure(own.rank, own.name, how, last_done()), how};
}

bool NodeProgress::any_beyond(std::uint64_t seq) const {
    for (int i = 0; i < ranks_.size(); ++i) {
        if (of(i).begun > seq) return true;
    }
    return false;
}

bool NodeProgress::any_busy() const {
    for (int i = 0; i < ranks_.size(); ++i) {
        const OperationsOf now = of(i);
        if (now.begun > now.done) return true;
    }
    return false;
}

}  // namespace ddp::detail
