#pragma once
// P2pWork: the Work of a batch of sends and receives. PendingTransfer: one transfer of such a work.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ddp/error.hpp"
#include "worker_lib/src/native/p2p/running.hpp"
#include "worker_lib/src/operation/transfer.hpp"
#include "worker_lib/src/operation/work_state.hpp"

namespace ddp::detail {

class P2p;

namespace p2p {

/// Which transfers of a batch have been carried out before it has a work.
struct DoneTransfers {
    std::uint32_t bits = 0;  ///< one for each transfer
    bool all = false;
};

}  // namespace p2p

/// Owns the batch, and keeps its P2p alive. Callers wait for it on any thread; its transfers are marked as done by the
/// thread that makes progress.
class P2pWork final : public WorkState {
public:
    /// done   not all of them
    P2pWork(TransferList of, p2p::DoneTransfers done, std::shared_ptr<P2p> p2p);

    [[nodiscard]] const Participant& owner() const override;
    [[nodiscard]] std::string text() const override;
    void start() override;
    void help() override;
    void hurry() override;
    void note_waiter(bool blocked) const override;
    void note_abort(std::string_view reason) const override;
    bool abort_group(std::string_view reason) override;

    const TransferList batch;

    [[nodiscard]] bool is_done(std::size_t index) const REQUIRES(p2p::kRunning) { return done_[index]; }
    /// Marks a transfer as done. Returns whether it was the last one.
    [[nodiscard]] bool finish(std::size_t index) REQUIRES(p2p::kRunning);
    /// Returns whether the work is over, so that helping it is useless: the thread that saw its end completes it.
    [[nodiscard]] bool has_ended() const REQUIRES(p2p::kRunning) { return ended_; }
    /// Ends the work, because the group failed with `why`. In the flight recorder its remaining transfers failed by a
    /// timeout only if their own deadline has passed: a receive posted for much later delayed no caller.
    /// peer_failed   Error::peer_failed()
    void give_up(ErrorCode why, bool peer_failed) REQUIRES(p2p::kRunning);

private:
    std::vector<bool> done_ GUARDED_BY(p2p::kRunning);
    std::size_t finished_ GUARDED_BY(p2p::kRunning) = 0;
    bool ended_ GUARDED_BY(p2p::kRunning) = false;
    const std::shared_ptr<P2p> p2p_;
};

namespace p2p {

struct PendingTransfer {
    std::shared_ptr<P2pWork> work;
    std::size_t index = 0;

    [[nodiscard]] const Transfer& transfer() const { return work->batch.transfers[index]; }
    [[nodiscard]] std::string text() const { return describe(work->batch, transfer()); }
};

/// Returns the first transfer of a work that is not done, as errors name it.
[[nodiscard]] std::string unfinished_text(const P2pWork& work) REQUIRES(kRunning);
/// Returns whether a transfer of the work with that rank is not done.
[[nodiscard]] bool waits_for(const P2pWork& work, int rank) REQUIRES(kRunning);

}  // namespace p2p

}  // namespace ddp::detail
