#pragma once
// The connections for sends and receives to ranks of other nodes. Each rank makes one to every peer that it exchanges
// messages with, and only writes to it; the peer reads it, and writes to one of its own. So a rank that waits for a
// message notices at once when the sender's process ends, and a rank that closes a connection has read all of it.
// Nothing here waits. Peers owns these objects and guards them, all but ReadySet::fd().

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/system/unique_fd.hpp"
#include "worker_lib/src/native/net/group_key.hpp"
#include "worker_lib/src/native/net/sockets.hpp"
#include "worker_lib/src/native/net/unproven.hpp"
#include "worker_lib/src/native/protocol/channel.hpp"

namespace ddp::detail {

/// Owns an epoll instance: one descriptor for poll(2) that is ready when one of a set of descriptors is. Several
/// threads may poll it while another one changes it.
class ReadySet {
public:
    ReadySet();
    [[nodiscard]] int fd() const { return epoll_.get(); }
    void add(int fd, std::uint32_t events) const;
    void change(int fd, std::uint32_t events) const;
    void remove(int fd) const;

private:
    ddprun::UniqueFd epoll_;
};

/// Our connection to a peer: both prove that they belong to the group (group_key.hpp), then frames follow.
class SocketSink final : public ByteSink {
public:
    /// Begins to connect. Throws Error{System} when descriptors or ports are used up, as push() and look() do.
    SocketSink(const ReadySet& ready, const GroupKey& key, int peer, const Member& member);
    ~SocketSink() override;

    [[nodiscard]] std::size_t push(std::span<const std::byte> head, std::span<const std::byte> body) override;
    /// Continues connecting. Once the connection is open, notices that the peer has closed it. Throws Error{System}.
    void look();
    /// Returns why nothing can be sent any more, if so.
    [[nodiscard]] const std::optional<std::string>& broken() const { return broken_; }
    /// Returns whether the peer's host is silent, and leaves data unanswered; false after the connection has broken.
    [[nodiscard]] bool host_is_silent() const { return socket_ && is_silent(peer_host(socket_.get())); }

private:
    enum class State : std::uint8_t { kConnecting, kGreeting, kAwaiting, kProving, kOpen };

    void begin();
    void advance();
    [[nodiscard]] bool is_sent(std::span<const std::byte> message);
    void want(std::uint32_t events);
    void give_up(const std::string& why);
    void try_again(const std::string& why);

    const ReadySet& ready_;
    const GroupKey key_;
    const int peer_;
    const Member& member_;
    int tries_ = 1;
    const std::string what_;  ///< "cannot connect to …"
    State state_ = State::kConnecting;
    std::size_t done_ = 0;  ///< bytes of the message that is being sent or received
    Hello hello_;
    Hello answer_;
    ddprun::Mac proof_{};
    std::uint32_t wanted_ = 0;
    ddprun::UniqueFd socket_;
    std::optional<std::string> broken_;
};

/// The peer's connection to us, once it has been accepted.
class SocketSource final : public ByteSource {
public:
    explicit SocketSource(const ReadySet& ready) : ready_(ready) {}
    ~SocketSource() override;

    /// Takes the accepted connection, or closes it if there is one already.
    void attach(ddprun::UniqueFd socket);
    [[nodiscard]] bool attached() const { return socket_ || ended_; }
    /// Returns how many bytes have arrived so far.
    [[nodiscard]] std::uint64_t arrived() const { return arrived_; }
    [[nodiscard]] std::size_t pull(std::span<std::byte> bytes) override;
    /// Returns why nothing more will arrive, if so; all that arrived has been pulled.
    [[nodiscard]] const std::optional<std::string>& ended() const { return ended_; }

private:
    void end(const std::string& why);

    const ReadySet& ready_;
    ddprun::UniqueFd socket_;
    std::uint64_t arrived_ = 0;
    std::optional<std::string> ended_;
};

/// Accepts connections of peers, and closes all others.
class SocketAcceptor {
public:
    /// `ranks` of the group may connect at once.
    SocketAcceptor(const ReadySet& ready, const GroupKey& key, std::size_t ranks, ddprun::UniqueFd listener);
    ~SocketAcceptor();

    /// Calls `enter` for each connection whose peer has proven that it belongs to the group. Throws Error{System} when
    /// descriptors are used up.
    void look(const std::function<void(int rank, ddprun::UniqueFd)>& enter);

private:
    using Enter = std::function<void(int rank, ddprun::UniqueFd)>;
    void accept_all(const Enter& enter);
    [[nodiscard]] bool is_decided(Unproven& one, const Enter& enter) const;
    [[nodiscard]] bool is_answered(Unproven& one) const;

    const ReadySet& ready_;
    const GroupKey key_;
    const ddprun::UniqueFd listener_;
    const std::size_t max_unproven_;
    std::vector<Unproven> unproven_;
};

}  // namespace ddp::detail
