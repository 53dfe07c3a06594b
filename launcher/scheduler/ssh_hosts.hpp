#pragma once
// The hosts of --hosts, on which ddprun starts itself. Pure but for a file that the user names.

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.hpp"
#include "launcher/scheduler/allocation.hpp"

namespace ddprun::launcher {

/// One entry of --hosts: "user@n1:2".
struct SshHost {
    std::string login;         ///< "user@n1", as ssh takes it
    std::string name;          ///< "n1"
    std::optional<int> slots;  ///< the workers there; nullopt: --nproc-per-node
    friend bool operator==(const SshHost&, const SshHost&) = default;
};

/// The value of --as-ssh-node, the internal option of a ddprun that --hosts has started.
struct SshNode {
    int index = 0;    ///< of its host
    std::string job;  ///< a random name
    std::vector<SshHost> hosts = {};
};

/// Parses "n[1-3],user@n4:2", or the name of a file, which contains a slash, with a host per line: "n1", "n1:2" or
/// "n1 slots=2". A file may repeat a host without slots, as node files of PBS do.
[[nodiscard]] Result<std::vector<SshHost>> parse_ssh_hosts(std::string_view text);
/// Returns "n1,user@n4:2".
[[nodiscard]] std::string list_of_hosts(const std::vector<SshHost>& hosts);
/// Parses "1@4f0c…@n1,user@n4:2".
[[nodiscard]] Result<SshNode> parse_ssh_node(std::string_view text);

/// Returns the allocation of the ddprun on one of the hosts, or of the one that starts them (`node` is absent).
[[nodiscard]] Result<Allocation> allocation_of_hosts(const std::vector<SshHost>& hosts,
                                                     const std::optional<SshNode>& node);

}  // namespace ddprun::launcher
