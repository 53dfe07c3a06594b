#pragma once
// Transfer: one send or receive between two ranks of a group, and TransferBatch: those that one Work stands for. Plain
// values; how they are carried out is the backend's business.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.hpp"
#include "common/cut.hpp"
#include "ddp/types.hpp"
#include "worker_lib/src/board.hpp"

namespace ddp::detail {

struct Transfer {
    bool sends = false;
    Buffer buffer;
    int peer = 0;  ///< a rank of the group, the own one included
    int tag = 0;   ///< a send meets the first receive of its tag that nobody has met
};

/// `seq` counts from 1 in its group, apart from the numbers of collectives.
struct TransferBatch {
    std::vector<Transfer> transfers;
    Stream stream;    ///< of the caller, where buffers are on a device
    std::string tag;  ///< OpOptions::tag
    std::uint64_t seq = 0;
    ddprun::Duration timeout{};  ///< `deadline` is that long after the call
    ddprun::TimePoint deadline;
    std::vector<BoardTicket> tickets;  ///< of each transfer; none where nothing is written
};

/// OpOptions::tag as errors show it. One may be a whole document: nobody reads that in a line.
[[nodiscard]] inline std::string shown_tag(std::string_view tag) { return ddprun::cut(tag, 100); }

/// "p2p #3 send f32[10] to rank 1, tag 5 'border'": the form in which errors name a transfer.
[[nodiscard]] std::string describe(const TransferBatch& batch, const Transfer& transfer);
/// Of several the first: "p2p #3 send f32[10] to rank 1, tag 5 and 3 more".
[[nodiscard]] std::string describe(const TransferBatch& batch);

/// Why rank `rank` of a group of `group_size` cannot start the batch on this backend, naming the transfer; empty if it
/// can. NCCL has no tags, and matches messages between two ranks by their order alone: what it would mix up is refused.
[[nodiscard]] std::string complaint(const TransferBatch& batch, int rank, int group_size, Backend backend);

}  // namespace ddp::detail
