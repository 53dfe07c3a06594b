#pragma once
// P2pWork: the Work of a batch of sends and receives, which the waiting thread helps along; Pending: one of them.

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "ddp/error.hpp"
#include "worker_lib/src/transfer.hpp"
#include "worker_lib/src/work_state.hpp"

namespace ddp::detail {

class P2p;

class P2pWork final : public WorkState {
public:
    P2pWork(TransferBatch of, std::shared_ptr<P2p> p2p)
        : WorkState(of.seq, of.deadline), batch(std::move(of)), done_(batch.transfers.size()), p2p_(std::move(p2p)) {}

    [[nodiscard]] const Participant& owner() const override;
    [[nodiscard]] std::string text() const override;
    void start() override;
    void help() override;
    void hurry() override;
    void note_waiter(bool blocked) const override {
        for (const BoardTicket& ticket : batch.tickets) ticket.waited(blocked);
    }

    void note_abort(std::string_view reason) const override {
        if (!batch.tickets.empty()) batch.tickets.front().aborted(reason);
    }

    const TransferBatch batch;

    // Who holds P2p's lock for running only:
    [[nodiscard]] bool is_done(std::size_t index) const { return done_[index]; }
    /// True when it was the last one.
    [[nodiscard]] bool finish(std::size_t index) {
        done_[index] = true;
        if (!batch.tickets.empty()) batch.tickets[index].ended(true);
        return ended_ = ++finished_ == done_.size();
    }
    /// Nobody can help any more: whoever has seen it end completes it.
    [[nodiscard]] bool has_ended() const { return ended_; }

    /// What is not done never will be, for the group has failed of `why`. By its deadline it fails only if that has
    /// passed: what was posted for much later has kept nobody waiting.
    void give_up(ErrorCode why) {
        ended_ = true;
        const bool timed_out = why == ErrorCode::Timeout && ddprun::Clock::now() >= batch.deadline;
        for (std::size_t i = 0; i < batch.tickets.size(); ++i) {
            if (!done_[i]) batch.tickets[i].ended(false, timed_out);
        }
    }

private:
    std::vector<bool> done_;
    std::size_t finished_ = 0;
    bool ended_ = false;
    const std::shared_ptr<P2p> p2p_;
};

struct Pending {
    std::shared_ptr<P2pWork> work;
    std::size_t index = 0;

    [[nodiscard]] const Transfer& transfer() const { return work->batch.transfers[index]; }
    [[nodiscard]] std::string text() const { return describe(work->batch, transfer()); }
};

}  // namespace ddp::detail
