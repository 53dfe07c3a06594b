#include "worker_lib/src/native/p2p/work.hpp"

#include <utility>

#include "common/clock.hpp"
#include "worker_lib/src/native/p2p/p2p.hpp"

namespace ddp::detail {

P2pWork::P2pWork(TransferList of, p2p::DoneTransfers done, std::shared_ptr<P2p> p2p)
    : WorkState(of.seq, of.deadline), batch(std::move(of)), done_(batch.transfers.size()), p2p_(std::move(p2p)) {
    for (std::size_t i = 0; done.bits >> i != 0; ++i) {
        if ((done.bits >> i & 1U) != 0) (void)finish(i);  // not the last one
    }
}

const Participant& P2pWork::owner() const { return p2p_->self(); }

std::string P2pWork::text() const { return describe(batch); }

void P2pWork::start() {
    if (!p2p_->is_elsewhere()) p2p_->start();
}

void P2pWork::help() {
    if (!done() && !p2p_->is_elsewhere()) p2p_->help(*this);
}

void P2pWork::hurry() {
    if (!done() && !p2p_->is_elsewhere()) p2p_->hurry();
}

void P2pWork::note_waiter(bool blocked) const {
    for (const RecordEntry& entry : batch.record_entries) entry.waited(blocked);
}

void P2pWork::note_abort(std::string_view reason) const {
    if (!batch.record_entries.empty()) batch.record_entries.front().aborted(reason);
}

bool P2pWork::abort_group(std::string_view reason) {
    if (p2p_->is_elsewhere()) return false;
    p2p_->abort_group(*this, reason);
    return true;
}

bool P2pWork::finish(std::size_t index) {
    done_[index] = true;
    if (!batch.record_entries.empty()) batch.record_entries[index].ended(true);
    return ended_ = ++finished_ == done_.size();
}

void P2pWork::give_up(ErrorCode why, bool peer_failed) {
    ended_ = true;
    const bool timed_out = why == ErrorCode::Timeout && ddprun::Clock::now() >= batch.deadline;
    for (std::size_t i = 0; i < batch.record_entries.size(); ++i) {
        if (done_[i]) continue;
        if (peer_failed) batch.record_entries[i].peer_failed();
        batch.record_entries[i].ended(false, timed_out);
    }
}

namespace p2p {

std::string unfinished_text(const P2pWork& work) {
    for (std::size_t i = 0; i < work.batch.transfers.size(); ++i) {
        if (!work.is_done(i)) return describe(work.batch, work.batch.transfers[i]);
    }
    return "p2p";
}

bool waits_for(const P2pWork& work, int rank) {
    for (std::size_t i = 0; i < work.batch.transfers.size(); ++i) {
        if (!work.is_done(i) && work.batch.transfers[i].peer == rank) return true;
    }
    return false;
}

}  // namespace p2p

}  // namespace ddp::detail
