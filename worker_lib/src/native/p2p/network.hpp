#pragma once
// The connections for sends and receives to ranks of other nodes. Each rank makes one to every peer that it
// sends to or receives from, and writes to that one only; the peer reads it, and writes to one of its own. So a rank
// that waits for a message hears at once when the process that owes it ends, and whoever closes has read all there was.
// Nothing here waits. Who holds P2p's lock for running owns it.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/unique_fd.hpp"
#include "worker_lib/src/native/handshake.hpp"
#include "worker_lib/src/native/p2p_channel.hpp"

namespace ddp::detail {

/// The descriptors whose readiness means that there is something to do, as one that poll(2) understands. Several
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

/// The own connection to a peer: first both prove who they are, then frames follow.
class SocketOutlet final : public Outlet {
public:
    /// Throws Error{System} when there are no descriptors or ports, as push() and look() do.
    SocketOutlet(const ReadySet& ready, const Hello& own, int peer, const Member& member);
    ~SocketOutlet() override;

    [[nodiscard]] std::size_t push(std::span<const std::byte> head, std::span<const std::byte> body) override;
    /// Goes on connecting, and notices an end.
    void look();
    /// Why nothing can be sent any more.
    [[nodiscard]] const std::optional<std::string>& broken() const { return broken_; }

private:
    enum class State : std::uint8_t { kConnecting, kGreeting, kAwaiting, kOpen };

    void begin();
    void advance();
    void want(std::uint32_t events);
    void give_up(const std::string& why);
    void try_again(const std::string& why);

    const ReadySet& ready_;
    const Hello own_;
    const int peer_;
    const Member& member_;
    int tries_ = 1;
    const std::string what_;  ///< "cannot connect to …"
    State state_ = State::kConnecting;
    std::size_t done_ = 0;  ///< bytes of the greeting in hand
    Hello theirs_;
    std::uint32_t wanted_ = 0;
    ddprun::UniqueFd socket_;
    std::optional<std::string> broken_;
};

/// The peer's connection to us, once it has come.
class SocketInlet final : public Inlet {
public:
    explicit SocketInlet(const ReadySet& ready) : ready_(ready) {}
    ~SocketInlet() override;

    void attach(ddprun::UniqueFd socket);
    [[nodiscard]] bool attached() const { return socket_ || ended_; }
    /// Bytes so far.
    [[nodiscard]] std::uint64_t arrived() const { return arrived_; }
    [[nodiscard]] std::size_t pull(std::span<std::byte> bytes) override;
    /// Why nothing more will come; all that came has been pulled.
    [[nodiscard]] const std::optional<std::string>& ended() const { return ended_; }

private:
    void end(const std::string& why);

    const ReadySet& ready_;
    ddprun::UniqueFd socket_;
    std::uint64_t arrived_ = 0;
    std::optional<std::string> ended_;
};

/// Lets peers in. Strangers are closed.
class SocketDoor {
public:
    /// `ranks` of the group may come at once.
    SocketDoor(const ReadySet& ready, const Hello& own, std::size_t ranks, ddprun::UniqueFd listener);
    ~SocketDoor();

    /// Takes in whoever has come and proven to be a rank of the group. Throws Error{System} when there are no
    /// descriptors.
    void look(const std::function<void(int rank, ddprun::UniqueFd)>& enter);

private:
    struct Unproven {
        ddprun::UniqueFd socket;
        Hello hello;
        std::size_t received = 0;
    };
    using Enter = std::function<void(int rank, ddprun::UniqueFd)>;
    void accept_all(const Enter& enter);
    [[nodiscard]] bool is_decided(Unproven& one, const Enter& enter) const;
    [[nodiscard]] bool answer(int socket) const;

    const ReadySet& ready_;
    const Hello own_;
    const ddprun::UniqueFd listener_;
    const std::size_t most_unproven_;
    std::vector<Unproven> unproven_;
};

}  // namespace ddp::detail
