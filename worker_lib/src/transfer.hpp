#pragma once
// Transfer: one send or receive between two ranks of a group, and TransferBatch: those that one Work stands for. Plain
// values; how they are carried out is the backend's business.

#include <cstdint>
#include <string>
#include <vector>

#include "common/clock.hpp"
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
    std::string tag;  ///< OpOptions::tag
    std::uint64_t seq = 0;
    ddprun::TimePoint deadline;
    std::vector<BoardTicket> tickets;  ///< of each transfer; none where nothing is written
};

/// "p2p #3 send f32[10] to rank 1, tag 5 'border'": the form in which errors name a transfer.
[[nodiscard]] std::string describe(const TransferBatch& batch, const Transfer& transfer);

/// Why the batch cannot be started, naming the transfer; empty if it can.
[[nodiscard]] std::string complaint(const TransferBatch& batch, int group_size);

}  // namespace ddp::detail
