#pragma once
// Formats lines of the daemon's log. Pure.

#include <boost/asio/ip/tcp.hpp>

#include <cstddef>
#include <string>
#include <vector>

#include "rendezvous/coordinator/state.hpp"

namespace ddprun::daemon {

inline constexpr std::size_t kMaxTableNodes = 64;

/// Returns the newest worker group, a line for each of its first kMaxTableNodes nodes: "  node 0  n1  ranks 0-3".
[[nodiscard]] std::vector<std::string> group_table(const coordinator::State& state);

/// Returns the warning about a daemon that listens at `endpoint`, and has its stores at `store`, if other hosts can
/// reach one of them; empty: they cannot. `insecure`: agents use no TLS. `members_only`: of other hosts, the stores
/// serve those of the job's nodes alone.
[[nodiscard]] std::string exposure_warning(const boost::asio::ip::tcp::endpoint& endpoint,
                                           const boost::asio::ip::address& store, bool insecure, bool members_only);

}  // namespace ddprun::daemon
