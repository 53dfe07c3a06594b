#pragma once
// The collective steps of saves and loads: what the ranks exchange besides errors. All ranks of the group call them.

#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "ddp/checkpoint_state.hpp"
#include "ddp/process_group.hpp"
#include "worker_lib/src/checkpoint/save.hpp"
#include "worker_lib/src/checkpoint/staging.hpp"
#include "worker_lib/src/checkpoint/write_plan.hpp"

namespace ddp::detail {

/// Whether every rank passes whole tensors (NamedBuffer), or its parts (NamedShard).
enum class Kind : bool { kWhole, kParts };

/// Returns the ranges of bytes that all ranks have. Sends nothing for whole tensors.
[[nodiscard]] std::vector<OwnedRange> ranges_of_all(ProcessGroup& group, std::span<const NamedShard> state, Kind kind);

/// Throws Error{InvalidArgument} on all ranks for elements that no rank has. Sends nothing.
void require_covered(std::span<const NamedShard> state, std::span<const OwnedRange> ranges);

/// Returns by rank whether `mine` is true there.
[[nodiscard]] std::vector<bool> flags_of_all(ProcessGroup& group, bool mine, std::string_view label);

/// Brings the bytes of blocks that several ranks have to their writers.
/// sent   Save::bytes_to_send()
void exchange(ProcessGroup& group, Save& save, std::span<const std::byte> sent);

/// Collects the hashes, and commits the file on rank 0.
/// fence   null on other ranks
void commit(ProcessGroup& group, Save& save, const SaveFence* fence);

/// The parts of a rank that does not see the file, on their way from rank 0. Only rank 0 and that rank have memory for
/// them, in host memory.
class PartsInTransit {
public:
    /// rank   that gets the parts; not 0
    /// self   the rank of this process
    PartsInTransit(std::span<const NamedShard> state, std::span<const OwnedRange> ranges, int rank, int self);
    /// Returns the parts.
    [[nodiscard]] const std::vector<NamedShard>& state() const { return state_; }
    /// Sends them from rank 0. Collective.
    void send(ProcessGroup& group);
    /// Copies them to the parts of the rank's own state.
    void copy_to(std::span<const NamedShard> state, Staging* staging) const;

private:
    int rank_;
    std::size_t bytes_ = 0;          ///< of all parts
    std::vector<std::byte> memory_;  ///< empty on ranks that have none
    std::vector<NamedShard> state_;
};

}  // namespace ddp::detail
