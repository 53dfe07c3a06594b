#pragma once
// Handshake: how the ranks of a group open connections to each other, over TCP between nodes and over an abstract Unix
// socket inside one, where each also passes the descriptor of its shared memory. Every rank connects to those before it
// and is connected to by those after it. Both sides prove that they belong: group, generation, and a random token that
// only readers of the job's store know. Any other connection is closed.

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/clock.hpp"
#include "common/unique_fd.hpp"
#include "worker_lib/src/native/member.hpp"

namespace ddp::detail {

/// First bytes on every connection, in both directions.
struct Hello {
    std::uint64_t magic = 0x6464702d68656c6fULL;  // "ddp-helo"; another byte order or program is refused by it
    std::uint32_t version = kProtocolVersion;
    std::int32_t rank = 0;
    std::int64_t generation = 0;
    std::uint64_t group = 0;  ///< hash of the group's name
    std::array<char, 32> token{};
    std::uint32_t socket = 0;  ///< which of several to the same peer
    std::uint32_t unused = 0;
};
static_assert(sizeof(Hello) == 72);

/// What a rank of the group says. Its password is in rank 0's record.
[[nodiscard]] Hello make_hello(const GroupSpec& spec, const std::vector<Member>& members);
/// Whether the sender of `theirs` is a member of our group in our generation.
[[nodiscard]] bool belongs(const Hello& theirs, const Hello& own);

/// A connection to one peer.
struct Connection {
    ddprun::UniqueFd socket;  ///< non-blocking
    ddprun::UniqueFd passed;  ///< the descriptor that the peer sent along
    pid_t pid = 0;            ///< Unix sockets: the peer's process as this one sees it, 0 when it cannot
};

/// Where and how to meet, the same for both kinds of connection.
struct MeetingPlace {
    const GroupSpec& spec;
    const std::vector<Member>& members;  ///< by rank
    ddprun::TimePoint deadline;
};

/// `sockets` connections to each of `peers` over TCP, at the port that each has published as its `port`; the later ones
/// come to `listener`. Throws Error naming who is missing, and where.
[[nodiscard]] std::map<int, std::vector<Connection>> meet_over_tcp(const MeetingPlace& place, int listener,
                                                                   const std::vector<int>& peers, int Member::*port,
                                                                   std::size_t sockets = 1);

/// The same to peers on this node over Unix sockets; each gets a copy of `descriptor`. Processes of other users are
/// refused.
[[nodiscard]] std::map<int, Connection> meet_over_unix(const MeetingPlace& place, int listener,
                                                       const std::vector<int>& peers, int descriptor);

}  // namespace ddp::detail
