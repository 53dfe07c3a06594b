#pragma once
// Handshake: opens connections between the ranks of a group, over TCP between nodes and over abstract Unix sockets
// inside a node, where each rank also passes the descriptor of its shared memory. Every rank connects to lower ranks
// and accepts higher ones. Both sides prove that they belong to the group: by its name, its generation, and a random
// token that only readers of the job's store know. Any other connection is closed.

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/clock.hpp"
#include "common/system/unique_fd.hpp"
#include "worker_lib/src/native/protocol/member.hpp"

namespace ddp::detail {

/// First bytes on every connection, in both directions.
struct Hello {
    std::uint64_t magic = 0x6464702d68656c6fULL;  // "ddp-helo"; refuses other programs, and another byte order
    std::uint32_t version = kProtocolVersion;
    std::int32_t rank = 0;
    std::int64_t generation = 0;
    std::uint64_t group = 0;       ///< hash of the group's name
    std::array<char, 32> token{};  ///< Member::token of rank 0, which is not longer
    std::uint32_t socket = 0;      ///< which of several to the same peer
    std::uint32_t unused = 0;
};
static_assert(sizeof(Hello) == 72);

/// Returns the Hello of this rank. The token is that of rank 0's record.
[[nodiscard]] Hello make_hello(const GroupSpec& spec, const std::vector<Member>& members);
/// Returns whether the sender of `theirs` is a member of this rank's group and generation.
[[nodiscard]] bool belongs(const Hello& theirs, const Hello& own);

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
