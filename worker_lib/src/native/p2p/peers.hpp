#pragma once
// Peers: owns the connection to each rank with which this rank exchanges messages: a buffer in the own memory for
// itself, a pair of rings for a neighbour, a pair of sockets for a rank of another node. A connection is made at the
// first transfer with its rank, or when that rank connects. P2p owns it.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.hpp"
#include "worker_lib/src/native/p2p/network.hpp"
#include "worker_lib/src/native/p2p/peer.hpp"
#include "worker_lib/src/native/p2p/running.hpp"
#include "worker_lib/src/native/p2p/setup.hpp"
#include "worker_lib/src/native/shm/message_ring.hpp"

namespace ddp::detail::p2p {

/// PostPage::listening of a peer, for FailureDetector.
struct Listening {
    std::uint64_t count = 0;  ///< as last seen, or as last answered
    ddprun::TimePoint since;  ///< when it last changed, or when we began to ask
};

/// A rank of this node.
struct Neighbour {
    Peer* peer = nullptr;
    int index = 0;  ///< local
    PostPage* page = nullptr;
    Listening listening = {};
};

/// A rank of another node.
struct RemotePeer {
    Peer* peer = nullptr;
    SocketSink* sink = nullptr;
    SocketSource* source = nullptr;
    std::optional<std::string> lost = {};  ///< the reason, if it is lost
    ddprun::TimePoint lost_at = {};  ///< or when its last data arrived after that: its report of the reason may follow
    std::uint64_t arrived = 0;       ///< bytes from the peer, when last looked at
    Listening listening = {};
    ddprun::TimePoint asked = {};  ///< when the peer was last asked whether it waits itself
};

class Peers {
public:
    /// Takes over setup.listener, if there is one: accept() accepts the connections of ranks of other nodes there.
    /// Throws Error{System}.
    Peers(P2pSetup& setup, PostPage& own_page);

    [[nodiscard]] OwnRank& own() REQUIRES(kRunning) { return own_; }
    /// Returns the peer with that rank, and connects to it first if need be. Throws Error{System}.
    [[nodiscard]] Peer& at(int rank) REQUIRES(kRunning);
    /// Returns the other rank of this node with that number; null: it is this rank, on another node, or not connected
    /// so far. Valid until the next at() or disconnect().
    [[nodiscard]] Neighbour* neighbour(int rank) REQUIRES(kRunning) {
        const auto position = static_cast<std::size_t>(rank);
        if (position >= neighbour_index_.size() || neighbour_index_[position] < 0) return nullptr;
        return &neighbours_[static_cast<std::size_t>(neighbour_index_[position])];
    }
    [[nodiscard]] const std::vector<Peer*>& all() const REQUIRES(kRunning) { return all_; }
    [[nodiscard]] std::vector<Neighbour>& neighbours() REQUIRES(kRunning) { return neighbours_; }
    [[nodiscard]] std::vector<RemotePeer>& remotes() REQUIRES(kRunning) { return remotes_; }
    /// Accepts the connections of ranks of other nodes. Throws Error{System}.
    void accept() REQUIRES(kRunning);
    /// Returns whether a frame waits for room.
    [[nodiscard]] bool has_to_send() const REQUIRES(kRunning);
    /// Returns whether such a frame is one that a peer waits for, see Outbox::owes_reply().
    [[nodiscard]] bool owes_reply() const REQUIRES(kRunning);
    /// Returns a rank's name for errors, with its address if it is on another node.
    [[nodiscard]] std::string name_of(int rank) const;
    [[nodiscard]] bool has_network() const { return ready_.has_value(); }
    /// Returns the descriptor that is readable when accept(), a send or a receive can make progress; -1: there is no
    /// network.
    [[nodiscard]] int network_fd() const { return ready_ ? ready_->fd() : -1; }
    /// Closes all connections.
    void disconnect() REQUIRES(kRunning);

private:
    [[nodiscard]] std::unique_ptr<Peer> connect_self() REQUIRES(kRunning);
    [[nodiscard]] std::unique_ptr<Peer> connect_neighbour(int rank, int index) REQUIRES(kRunning);
    [[nodiscard]] std::unique_ptr<Peer> connect_remote(int rank) REQUIRES(kRunning);
    [[nodiscard]] bool is_local(int rank) const;

    const P2pSetup& setup_;
    OwnRank own_ GUARDED_BY(kRunning);
    std::optional<ReadySet> ready_;
    std::optional<SocketAcceptor> acceptor_ GUARDED_BY(kRunning);
    std::map<int, std::unique_ptr<Peer>> by_rank_ GUARDED_BY(kRunning);
    std::vector<Peer*> all_ GUARDED_BY(kRunning);
    std::vector<Neighbour> neighbours_ GUARDED_BY(kRunning);
    std::vector<int> neighbour_index_
        GUARDED_BY(kRunning);  ///< by rank: its index in neighbours_, or -1; empty with none
    std::vector<RemotePeer> remotes_ GUARDED_BY(kRunning);
    std::vector<std::byte> loop_ GUARDED_BY(kRunning);  ///< holds the ring to this rank itself
};

}  // namespace ddp::detail::p2p
