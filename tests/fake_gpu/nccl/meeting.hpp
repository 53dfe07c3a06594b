#pragma once
// Where the ranks of a communicator meet: at a store that the process which made the unique id serves, for as long as
// it lives. There they become a group of the native backend, which moves and reduces the data. Any thread.

#include <atomic>
#include <memory>
#include <optional>
#include <string>

#include "ddp/process_group.hpp"
#include "worker_lib/src/nccl/abi.hpp"

namespace ddp::fake_nccl {

/// The contents of a unique id.
struct Meeting {
    std::string address;
    int port = 0;
    std::string name;  ///< random: it also keeps other processes out of the group
};

/// Returns a new unique id, which leads to this process. Throws ddp::Error or ddprun::ErrorException.
[[nodiscard]] abi::ncclUniqueId make_unique_id();
/// Returns nothing for bytes that make_unique_id() did not make.
[[nodiscard]] std::optional<Meeting> read_unique_id(const abi::ncclUniqueId& id);

/// Returns the group of the ranks that meet there. Waits for all of them without a limit, until `aborted` is set.
/// Throws ddp::Error.
[[nodiscard]] std::unique_ptr<ProcessGroup> meet(const Meeting& meeting, int rank, int ranks,
                                                 const std::atomic<bool>& aborted);

}  // namespace ddp::fake_nccl
