#pragma once
// SocketsPerPeer: the number of connections over which a rank exchanges large messages with its counterpart on another
// node: DDPRUN_SOCKETS_PER_PEER, or a default that depends on the topology. Pure.

#include <cstddef>
#include <optional>
#include <string>

namespace ddp::detail {

class SocketsPerPeer {
public:
    /// Parses a number from 1 to kMaxSocketsPerPeer; without text the default applies. Throws Error{Environment} naming
    /// the invalid text.
    [[nodiscard]] static SocketsPerPeer parse(const std::optional<std::string>& text);

    /// Returns the number for a group over `nodes` nodes, where `carriers` ranks of each have links.
    [[nodiscard]] std::size_t choose(std::size_t nodes, std::size_t carriers) const;
    /// Returns one word that identifies the setting: "usual", or the number.
    [[nodiscard]] std::string text() const { return chosen_ ? std::to_string(*chosen_) : "usual"; }

private:
    std::optional<std::size_t> chosen_;
};

}  // namespace ddp::detail
