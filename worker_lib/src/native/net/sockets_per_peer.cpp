#include "worker_lib/src/native/net/sockets_per_peer.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "common/text/number.hpp"
#include "ddp/error.hpp"
#include "worker_lib/src/native/net/stripes.hpp"

namespace ddp::detail {

namespace {

/// Default number of connections that leave a node at once. More of them only help where one flow is slow.
constexpr std::size_t kUsefulPerNode = 2;

}  // namespace

SocketsPerPeer SocketsPerPeer::parse(const std::optional<std::string>& text) {
    SocketsPerPeer result;
    if (!text || text->empty()) return result;
    const auto number = ddprun::parse_number<std::size_t>(*text);
    if (!number || *number < 1 || *number > kMaxSocketsPerPeer) {
        throw Error(ErrorCode::Environment, fmt::format("DDPRUN_SOCKETS_PER_PEER is '{}', expected a whole number from "
                                                        "1 to {}. Unset it to use the default for this number of nodes",
                                                        *text, kMaxSocketsPerPeer));
    }
    result.chosen_ = number;
    return result;
}

std::size_t SocketsPerPeer::choose(std::size_t nodes, std::size_t carriers) const {
    if (chosen_) return *chosen_;
    const std::size_t peers = std::max<std::size_t>(1, (nodes - 1) * carriers);
    return (kUsefulPerNode + peers - 1) / peers;
}

}  // namespace ddp::detail
