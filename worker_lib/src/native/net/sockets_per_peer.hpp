#pragma once
// SocketsPerPeer: over how many connections a rank exchanges large messages with its counterpart on another node.
// DDPRUN_SOCKETS_PER_PEER, or as many as seem useful. Pure.

#include <cstddef>
#include <optional>
#include <string>

namespace ddp::detail {

class SocketsPerPeer {
public:
    /// A number from 1 to kMostSocketsPerPeer. Nothing: the usual ones. Throws Error{Environment} that says what is
    /// wrong.
    [[nodiscard]] static SocketsPerPeer parse(const std::optional<std::string>& text);

    /// In a group over `nodes` nodes, of each of which `carriers` ranks talk to the others.
    [[nodiscard]] std::size_t choose(std::size_t nodes, std::size_t carriers) const;
    /// One word, the same for the same setting: "usual", or the number.
    [[nodiscard]] std::string text() const { return chosen_ ? std::to_string(*chosen_) : "usual"; }

private:
    std::optional<std::size_t> chosen_;
};

}  // namespace ddp::detail
