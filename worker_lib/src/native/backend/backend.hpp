#pragma once
// NativeBackend: runs the operations of one group on CPUs. It owns the parts that carry them out, in the order of their
// use, and the progress thread "ddp-native", which runs the operations that no caller runs. One thread at a time calls
// submit() and transfer(), any thread all else.

#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "worker_lib/src/group/backend.hpp"
#include "worker_lib/src/native/backend/connect.hpp"
#include "worker_lib/src/native/backend/connected_peers.hpp"
#include "worker_lib/src/native/backend/group_failure.hpp"
#include "worker_lib/src/native/backend/job_queue.hpp"
#include "worker_lib/src/native/backend/operation_runner.hpp"
#include "worker_lib/src/native/backend/p2p_slot.hpp"
#include "worker_lib/src/native/backend/work.hpp"

namespace ddp::detail {

class NativeBackend final : public BackendImpl {
public:
    NativeBackend(const GroupSpec& spec, Connected connected);
    ~NativeBackend() override;

    [[nodiscard]] Backend kind() const override { return Backend::Native; }
    [[nodiscard]] std::unique_ptr<BackendImpl> make_another(const GroupSpec& spec) const override;
    [[nodiscard]] std::shared_ptr<WorkState> submit(Operation&& operation, OperationRecord& record) override {
        return runner_.submit(std::move(operation), record);
    }
    [[nodiscard]] QueuedBatch transfer(TransferList&& batch, TransferRecord& record) override;
    [[nodiscard]] bool is_busy(std::uint64_t last) const override { return peers_.node().progress.last_done() < last; }
    [[nodiscard]] Arena& arena() override { return peers_.arena(); }
    [[nodiscard]] std::vector<std::span<const std::byte>> arenas() const override { return peers_.arenas(); }
    void abort(std::string_view reason) override { failure_.abort(reason); }
    void fail(const Error& error) override { failure_.fail(error); }
    [[nodiscard]] bool after_callbacks(std::function<void()> end) const override {
        return WorkState::after_callbacks(&peers_.node(), std::move(end));
    }
    [[nodiscard]] bool is_in_callback() const override { return WorkState::is_in_callback(&peers_.node()); }
    [[nodiscard]] std::string location_of(int rank) const override { return peers_.location_of(rank); }
    [[nodiscard]] int global_rank(int rank) const override { return peers_.global_rank(rank); }
    [[nodiscard]] RankState state_of(int rank) const override { return peers_.state_of(rank); }
    [[nodiscard]] int stopped_pid(int rank) const override { return peers_.stopped_pid(rank); }
    [[nodiscard]] std::optional<Error> failure() const override { return peers_.failure(); }

    // Called by works, through BackendHandle.
    /// Calls OperationRunner::help().
    void help(const WorkState& work) { runner_.help(work); }
    /// Makes the progress thread run the queued operations.
    void hurry() { queue_.wake(); }
    /// Calls GroupFailure::abort_for().
    void abort_for(const WorkState& work, std::string_view thrown) { failure_.abort_for(work, thrown); }

private:
    void run();

    ConnectedPeers peers_;
    JobQueue queue_;
    const std::shared_ptr<BackendHandle<NativeBackend>> handle_;
    GroupFailure failure_;  ///< before p2p_, whose thread reports to it until p2p_ is destroyed
    P2pSlot p2p_;
    OperationRunner runner_;
    std::thread thread_;  ///< last: it uses all of the above
};

}  // namespace ddp::detail
