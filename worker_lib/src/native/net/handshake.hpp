#pragma once
// Handshake: opens connections between the ranks of a group, over TCP between nodes and over abstract Unix sockets
// inside a node, where each rank also passes the descriptor of its shared memory. Every rank connects to lower ranks
// and accepts higher ones. Both sides prove that they belong to the group (group_key.hpp). Any other connection is
// closed.

#include <sys/types.h>

#include <cstddef>
#include <map>
#include <vector>

#include "common/clock.hpp"
#include "common/system/unique_fd.hpp"
#include "worker_lib/src/native/net/group_key.hpp"
#include "worker_lib/src/native/protocol/member.hpp"

namespace ddp::detail {

/// A connection to one peer.
struct Connection {
    ddprun::UniqueFd socket;  ///< non-blocking
    ddprun::UniqueFd passed;  ///< the descriptor that the peer sent along
    pid_t pid = 0;            ///< Unix sockets: the peer's process in this pid namespace; 0: not visible
};

/// The parameters of both kinds of handshake.
struct HandshakeSpec {
    const GroupSpec& spec;
    const std::vector<Member>& members;  ///< by rank
    ddprun::TimePoint deadline;
};

/// Opens `sockets` TCP connections to each of `peers`: to the `port` that a lower rank has published, and from higher
/// ranks at `listener`. Throws Error naming the missing ranks and their hosts.
[[nodiscard]] std::map<int, std::vector<Connection>> meet_over_tcp(const HandshakeSpec& place, int listener,
                                                                   const std::vector<int>& peers, int Member::*port,
                                                                   std::size_t sockets = 1);

/// Opens a Unix socket connection to each of `peers` on this node, and passes each a copy of `descriptor`. Refuses
/// processes of other users.
[[nodiscard]] std::map<int, Connection> meet_over_unix(const HandshakeSpec& place, int listener,
                                                       const std::vector<int>& peers, int descriptor);

}  // namespace ddp::detail
