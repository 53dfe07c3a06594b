#include "worker_lib/src/native/net/handshake.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <optional>
#include <span>

#include "common/text/list.hpp"
#include "worker_lib/src/native/net/reach.hpp"
#include "worker_lib/src/native/net/sockets.hpp"
#include "worker_lib/src/native/net/unproven.hpp"

namespace ddp::detail {

namespace {

using ddprun::Result;
using ddprun::UniqueFd;

/// Maximum number of connections beside those of expected ranks. Foreign processes (port scanners, workers of another
/// job) may connect and stay silent.
constexpr std::size_t kMaxStrangers = 256;

ucred credentials(int socket) {
    ucred peer{};
    socklen_t length = sizeof(peer);
    if (::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0)
        peer = {.pid = 0, .uid = static_cast<uid_t>(-1), .gid = 0};
    return peer;
}

int family_of(int socket) {
    int family = AF_UNSPEC;
    socklen_t length = sizeof(family);
    (void)::getsockopt(socket, SOL_SOCKET, SO_DOMAIN, &family, &length);
    return family;
}

constexpr const char* kForeign = "its process belongs to another user";

/// Returns whether the process at the other end of a Unix socket belongs to another user.
bool is_foreign(int socket) { return family_of(socket) == AF_UNIX && credentials(socket).uid != ::geteuid(); }

/// One handshake with a set of peers. Lives as long as the call.
class Handshake {
public:
    Handshake(const HandshakeSpec& place, std::size_t sockets, int descriptor)
        : place_(place), sockets_(sockets), descriptor_(descriptor), key_(place.spec, place.members) {}

    using Connect = std::function<Result<UniqueFd>(const Member&)>;

    std::map<int, std::vector<Connection>> hold(int listener, const std::vector<int>& peers, const Connect& connect) {
        for (const int peer : peers) {
            met_[peer].resize(sockets_);
            for (std::uint32_t i = 0; i < sockets_; ++i) {
                const Seat seat{peer, i};
                if (peer < place_.spec.rank)
                    called_.push_back({.seat = seat, .hello = key_.hello(i), .answer = {}});
                else
                    expected_.push_back(seat);
            }
        }
        max_unproven_ = kMaxStrangers + expected_.size();
        for (const Called& called : called_) {
            UniqueFd& socket = connection(called.seat).socket;
            socket = succeed(connect(member(called.seat.rank)), called.seat.rank);
            // The greeting passes this rank's memory, and any process could listen under that name first.
            if (is_foreign(socket.get())) lost(called.seat.rank, {ddprun::Errc::kMismatch, kForeign});
            send(called.seat, std::as_bytes(std::span(&called.hello, 1)), descriptor_);
        }
        // In one loop: a rank that accepted all higher ones before it proved itself to the lower ones would keep those
        // waiting, in a chain over all ranks.
        while (!expected_.empty() || !called_.empty()) step(listener);
        return std::move(met_);
    }

private:
    /// Identifies a connection: the peer, and its number among those to that peer.
    struct Seat {
        int rank = 0;
        std::uint32_t socket = 0;
        friend bool operator==(const Seat&, const Seat&) = default;
    };
    /// A connection to a lower rank, whose answer is being received.
    struct Called {
        Seat seat;
        Hello hello;
        Hello answer;
        std::size_t received = 0;
    };
    Connection& connection(const Seat& seat) { return met_.at(seat.rank)[seat.socket]; }

    const Member& member(int rank) const { return place_.members[static_cast<std::size_t>(rank)]; }

    [[noreturn]] void lost(int peer, const ddprun::Error& error) const {
        const bool late = error.code == ddprun::Errc::kTimeout;
        throw Error(late ? ErrorCode::Timeout : ErrorCode::PeerLost,
                    fmt::format("group '{}': {} lost {} while connecting: {}", place_.spec.name, name_self(place_.spec),
                                name(peer), error.message),
                    {peer});
    }

    UniqueFd succeed(Result<UniqueFd> result, int peer) const {
        if (!result) lost(peer, result.error());
        return std::move(*result);
    }

    void send(const Seat& seat, std::span<const std::byte> bytes, int descriptor) {
        const auto sent = send_all(connection(seat).socket.get(), bytes, descriptor, place_.deadline);
        if (!sent) lost(seat.rank, sent.error());
    }

    /// Waits for the next messages, and handles them.
    void step(int listener) {
        std::vector<pollfd> waiting{{.fd = expected_.empty() ? -1 : listener, .events = POLLIN, .revents = 0}};
        const auto wait_for_input = [&waiting](int fd) {
            waiting.push_back({.fd = fd, .events = POLLIN, .revents = 0});
        };
        for (const Unproven& one : unproven_) wait_for_input(one.socket.get());
        for (const Called& called : called_) wait_for_input(connection(called.seat).socket.get());
        const int ready = ::poll(waiting.data(), waiting.size(), poll_timeout(place_.deadline));
        if (ddprun::Clock::now() >= place_.deadline) report_late();
        if (ready <= 0) return;
        auto result = waiting.begin() + 1;
        std::erase_if(unproven_, [&](Unproven& one) { return (result++)->revents != 0 && is_settled(one); });
        std::erase_if(called_, [&](Called& called) { return (result++)->revents != 0 && is_answered(called); });
        if (expected_.empty()) unproven_.clear();
        if (waiting.front().revents != 0 && !expected_.empty()) accept_one(listener);
    }

    /// Reads the answer of a lower rank. Returns true once it has arrived and our proof is sent.
    bool is_answered(Called& called) {
        Connection& met = connection(called.seat);
        const auto bytes = std::as_writable_bytes(std::span(&called.answer, 1)).subspan(called.received);
        const ssize_t received = receive_some(met.socket.get(), bytes, met.passed);
        if (received < 0 && errno == EAGAIN) return false;
        if (received < 0) lost(called.seat.rank, ddprun::system_error("the connection failed", errno));
        if (received == 0) lost(called.seat.rank, {ddprun::Errc::kClosed, "it closed the connection"});
        called.received += static_cast<std::size_t>(received);
        if (called.received < sizeof(Hello)) return false;
        std::string wrong = complaint(met.socket.get(), met.passed);
        const bool is_peer = key_.is_answer(called.hello, called.answer) && called.answer.rank == called.seat.rank;
        if (!is_peer) wrong = "it belongs to another group, generation or job";
        if (!wrong.empty()) lost(called.seat.rank, {ddprun::Errc::kMismatch, "another process answered: " + wrong});
        const ddprun::Mac proof = key_.proof(called.hello, called.answer);
        send(called.seat, std::as_bytes(std::span(proof)), -1);
        finish(met);
        return true;
    }

    /// Returns why the other side is not a member of the group although it has the group's key; empty if it is one.
    static std::string complaint(int socket, const UniqueFd& passed) {
        if (is_foreign(socket)) return kForeign;
        return passed || family_of(socket) != AF_UNIX ? "" : "it sent no memory";
    }

    static void finish(Connection& connection) {
        if (family_of(connection.socket.get()) == AF_UNIX) {
            connection.pid = credentials(connection.socket.get()).pid;
        } else {
            prepare_tcp(connection.socket.get());
        }
    }

    void accept_one(int listener) {
        UniqueFd socket = accept_unidentified(listener, unproven_.size(), max_unproven_, [this](bool no_descriptor) {
            const auto one = one_to_drop(unproven_, no_descriptor, ddprun::Clock::now());
            if (one == unproven_.end()) return false;
            unproven_.erase(one);
            return true;
        });
        if (!socket) return;  // it has disconnected already, or waits for a descriptor
        unproven_.push_back({.socket = std::move(socket)});
    }

    /// Reads from an accepted connection. Returns whether it is settled: proven, or to be closed as foreign.
    bool is_settled(Unproven& one) {
        if (!one.answer) {
            const std::optional<bool> received = receive(one, std::as_writable_bytes(std::span(&one.hello, 1)));
            if (!received.value_or(false)) return !received;
            if (!key_.is_hello(one.hello) || !complaint(one.socket.get(), one.passed).empty()) return true;
            if (std::ranges::find(expected_, seat_of(one)) == expected_.end()) return true;
            one.answer = key_.answer(one.hello);
            one.answered_at = ddprun::Clock::now();
            one.received = 0;
            const auto answer = std::as_bytes(std::span(&*one.answer, 1));
            return !send_all(one.socket.get(), answer, descriptor_, place_.deadline);
        }
        const std::optional<bool> received = receive(one, std::as_writable_bytes(std::span(one.proof)));
        if (!received.value_or(false)) return !received;
        const auto seat = std::ranges::find(expected_, seat_of(one));
        if (seat == expected_.end() || !key_.is_proof(one.hello, *one.answer, one.proof)) return true;
        Connection& met = connection(*seat);
        met.socket = std::move(one.socket);
        met.passed = std::move(one.passed);
        finish(met);
        expected_.erase(seat);
        return true;
    }

    static Seat seat_of(const Unproven& one) { return {one.hello.rank, one.hello.socket}; }

    /// Continues to fill `bytes`. Returns whether they are full; nullopt: the connection has ended.
    static std::optional<bool> receive(Unproven& one, std::span<std::byte> bytes) {
        const ssize_t received = receive_some(one.socket.get(), bytes.subspan(one.received), one.passed);
        if (received < 0 && errno == EAGAIN) return false;
        if (received <= 0) return std::nullopt;
        one.received += static_cast<std::size_t>(received);
        return one.received == bytes.size();
    }

    [[noreturn]] void report_late() const {
        if (expected_.empty()) lost(called_.front().seat.rank, {ddprun::Errc::kTimeout, "it did not answer in time"});
        report_absent(expected_);
    }

    [[noreturn]] void report_absent(const std::vector<Seat>& seats) const {
        std::vector<int> absent;
        std::string names;
        for (const Seat& seat : seats) {
            if (std::ranges::find(absent, seat.rank) != absent.end()) continue;
            absent.push_back(seat.rank);
            names += (names.empty() ? "" : ", ") + name(seat.rank);
        }
        throw Error(
            ErrorCode::Timeout,
            fmt::format("group '{}': {} at {} waited until its deadline for {} to connect: {}. They have joined the "
                        "group: can they reach that address?",
                        place_.spec.name, name_self(place_.spec), member(place_.spec.rank).address,
                        ddprun::name_ranks(absent), names),
            absent);
    }

    std::string name(int rank) const { return name_with_address(rank, place_.members); }

    const HandshakeSpec& place_;
    const std::size_t sockets_;  ///< to each peer
    const int descriptor_;
    const GroupKey key_;
    std::vector<Called> called_;
    std::vector<Seat> expected_;  ///< of higher ranks that have not proven themselves
    std::vector<Unproven> unproven_;
    std::size_t max_unproven_ = 0;
    std::map<int, std::vector<Connection>> met_;
};

}  // namespace

std::map<int, std::vector<Connection>> meet_over_tcp(const HandshakeSpec& place, int listener,
                                                     const std::vector<int>& peers, int Member::*port,
                                                     std::size_t sockets) {
    return Handshake(place, sockets, -1).hold(listener, peers, [&](const Member& member) {
        return connect_when_reachable(member.address, member.*port, {.deadline = place.deadline},
                                      [&](bool unreachable) {
                                          if (place.spec.note_unreachable)
                                              place.spec.note_unreachable(unreachable ? member.global_rank : -1);
                                      });
    });
}

std::map<int, Connection> meet_over_unix(const HandshakeSpec& place, int listener, const std::vector<int>& peers,
                                         int descriptor) {
    auto met = Handshake(place, 1, descriptor).hold(listener, peers, [&](const Member& member) {
        return connect_unix(member.local_name, place.deadline);
    });
    std::map<int, Connection> connections;
    for (auto& [rank, one] : met) connections.emplace(rank, std::move(one.front()));
    return connections;
}

}  // namespace ddp::detail
