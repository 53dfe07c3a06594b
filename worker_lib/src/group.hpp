#pragma once
// GroupImpl: what is behind a ProcessGroup, whatever its backend: argument checks, numbers, deadlines, splitting.
// Operations may be queued from any thread, one at a time in the sense of the group's order; abort() from any.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "worker_lib/src/backend.hpp"
#include "worker_lib/src/forks.hpp"
#include "worker_lib/src/light_mutex.hpp"
#include "worker_lib/src/shrink_agreement.hpp"
#include "worker_lib/src/store_wait.hpp"

namespace ddp::detail {

class GroupImpl {
public:
    GroupImpl(GroupSpec spec, std::unique_ptr<BackendImpl> backend);
    ~GroupImpl();
    GroupImpl(const GroupImpl&) = delete;
    GroupImpl& operator=(const GroupImpl&) = delete;

    [[nodiscard]] const GroupSpec& spec() const { return spec_; }
    [[nodiscard]] int world_rank() const { return spec_.members[static_cast<std::size_t>(spec_.rank)]; }
    [[nodiscard]] BackendImpl& backend() { return *backend_; }

    /// Checks and numbers the operation, then queues it. Throws Error{InvalidArgument}, which costs no number.
    [[nodiscard]] Work submit(Operation&& operation, const OpOptions& options);
    /// The operations from now on belong to the caller's step of this number, which the ranks compare: one that is a
    /// step behind gets an error, not the others' data. 0: to none.
    void set_step(std::uint64_t step);
    /// The same for sends and receives, which have numbers of their own.
    [[nodiscard]] Work transfer(TransferBatch batch, const OpOptions& options);
    [[nodiscard]] Work transfer(const Transfer& one, const Stream& stream, const OpOptions& options);
    [[nodiscard]] std::unique_ptr<ProcessGroup> split(int color, int key, std::string_view name);
    [[nodiscard]] std::unique_ptr<ProcessGroup> shrink(std::span<const int> exclude);
    /// Tells all ranks `value` over the store; what each has told, by rank. Collective, once per topic. Throws as
    /// split() does, with `call` for what the absent did not call.
    [[nodiscard]] std::vector<std::string> tell_all(std::string_view topic, std::string_view value,
                                                    std::string_view call);
    void monitored_barrier(std::chrono::milliseconds timeout, std::string_view where);
    void abort(std::string_view reason);
    /// WorkState::after_callbacks() of its works.
    [[nodiscard]] bool after_callbacks(std::function<void()> end) const {
        return !home_.is_elsewhere() && backend_->after_callbacks(std::move(end));
    }

private:
    void check_process() const;
    /// `step`, which is numbered here, is on the board as long as the result lives.
    [[nodiscard]] WaitAtStore wait_at_store(StoreStep step);
    [[nodiscard]] std::shared_ptr<WorkState> queue(TransferBatch& batch, const OpOptions& options);
    [[nodiscard]] ddprun::Duration timeout_of(const OpOptions& options) const;

    const GroupSpec spec_;
    BoardPlace place_;  ///< before the backend, which ends what is in flight
    std::unique_ptr<BackendImpl> backend_;
    const ProcessMark home_;
    LightMutex mutex_;  ///< numbering and queueing are one step
    std::uint64_t last_seq_ = 0;
    std::uint64_t step_ = 0;
    std::uint64_t last_transfer_ = 0;
    std::uint64_t splits_ = 0;
    std::uint64_t monitored_ = 0;
    std::mutex shrink_mutex_;  ///< one call at a time
    ShrinkHistory shrinks_;
    std::optional<BoardPlace> store_place_;  ///< from the first wait_at_store() on
    std::uint64_t store_steps_ = 0;
};

/// Collective over spec.members. `kind` is Native or Nccl.
[[nodiscard]] std::unique_ptr<ProcessGroup> make_group(GroupSpec spec, Backend kind);
/// Of another group's kind. `forming`: the same as `spec`, with the times that hold until all are connected.
[[nodiscard]] std::unique_ptr<ProcessGroup> make_group(GroupSpec spec, const BackendImpl& like,
                                                       const GroupSpec& forming);

}  // namespace ddp::detail
