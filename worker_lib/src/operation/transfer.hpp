#pragma once
// Transfer: one send or receive between two ranks of a group; TransferList: the transfers of one Work. Plain values;
// the backend carries them out.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/clock.hpp"
#include "common/text/cut.hpp"
#include "ddp/buffer.hpp"
#include "ddp/types.hpp"
#include "worker_lib/src/recorder/flight_recorder.hpp"

namespace ddp::detail {

struct Transfer {
    bool sends = false;
    Buffer buffer;
    int peer = 0;  ///< a rank of the group, the own one included
    int tag = 0;   ///< a send goes to the first unmatched receive of its tag
};

/// The transfers of one Work. `seq` counts from 1 in its group, apart from the numbers of collectives.
struct TransferList {
    std::vector<Transfer> transfers;
    Stream stream;      ///< of the caller, where buffers are on a device
    std::string label;  ///< OpOptions::label
    std::uint64_t seq = 0;
    ddprun::Duration timeout{};  ///< `deadline` is that long after the call
    ddprun::TimePoint deadline;
    std::vector<RecordEntry> record_entries;  ///< the flight-record entry of each transfer; none if nothing is written
};

/// Returns OpOptions::label as errors show it: cut, because a program may pass any text.
[[nodiscard]] inline std::string shown_label(std::string_view label) { return ddprun::cut(label, 100); }

/// Returns "p2p #3 send f32[10] to rank 1, tag 5 'border'": the form in which errors name a transfer.
[[nodiscard]] std::string describe(const TransferList& batch, const Transfer& transfer);
/// The same for a batch, which is named by its first transfer: "p2p #3 send f32[10] to rank 1, tag 5 and 3 more".
[[nodiscard]] std::string describe(const TransferList& batch);

/// Returns why rank `rank` of a group of `group_size` cannot start the batch on this backend, naming the transfer;
/// empty if it can. NCCL has no tags and matches messages between two ranks by their order, so batches that it would
/// mix up are refused.
[[nodiscard]] std::string complaint(const TransferList& batch, int rank, int group_size, Backend backend);

}  // namespace ddp::detail
