#include "worker_lib/src/native/net/handshake.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <span>

#include "common/fnv.hpp"
#include "common/text/list.hpp"
#include "worker_lib/src/native/net/sockets.hpp"

namespace ddp::detail {

namespace {

using ddprun::Result;
using ddprun::UniqueFd;

/// Maximum number of connections that have not proven anything yet. Foreign processes (port scanners, workers of
/// another job) may connect and stay silent.
constexpr std::size_t kMaxUnproven = 256;

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

/// A connection whose Hello has not been received in whole.
struct Unproven {
    UniqueFd socket;
    UniqueFd passed;
    Hello hello;
    std::size_t received = 0;
};

/// One handshake with a set of peers. Lives as long as the call.
class Handshake {
public:
    Handshake(const HandshakeSpec& place, std::size_t sockets, int descriptor)
        : place_(place), sockets_(sockets), descriptor_(descriptor), own_(make_hello(place.spec, place.members)) {}

    using Connect = std::function<Result<UniqueFd>(const Member&)>;

    std::map<int, std::vector<Connection>> hold(int listener, const std::vector<int>& peers, const Connect& connect) {
        std::vector<Seat> earlier;
        std::vector<Seat> later;
        for (const int peer : peers) {
            met_[peer].resize(sockets_);
            for (std::size_t i = 0; i < sockets_; ++i)
                (peer < own_.rank ? earlier : later).push_back({peer, static_cast<std::uint32_t>(i)});
        }
        // No deadlock: connecting and greeting need no answer, and a rank answers after it has connected to all.
        for (const Seat& seat : earlier) {
            connection(seat).socket = succeed(connect(member(seat.rank)), seat.rank);
            // The greeting passes this rank's memory, and any process could listen under that name first.
            if (is_foreign(connection(seat).socket.get())) lost(seat.rank, {ddprun::Errc::kMismatch, kForeign});
            greet(seat);
        }
        accept_all(listener, std::move(later));
        for (const Seat& seat : earlier) expect_greeting(seat);
        return std::move(met_);
    }

private:
    /// Identifies a connection: the peer, and its number among those to that peer.
    struct Seat {
        int rank = 0;
        std::uint32_t socket = 0;
        friend bool operator==(const Seat&, const Seat&) = default;
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

    void greet(const Seat& seat) {
        Hello hello = own_;
        hello.socket = seat.socket;
        const auto bytes = std::as_bytes(std::span(&hello, 1));
        const auto sent = send_all(connection(seat).socket.get(), bytes, descriptor_, place_.deadline);
        if (!sent) lost(seat.rank, sent.error());
    }

    void expect_greeting(const Seat& seat) {
        Connection& met = connection(seat);
        Hello hello;
        const auto bytes = std::as_writable_bytes(std::span(&hello, 1));
        const auto received = receive_all(met.socket.get(), bytes, met.passed, place_.deadline);
        if (!received) lost(seat.rank, received.error());
        const std::string wrong = complaint(met.socket.get(), hello, met.passed);
        if (!wrong.empty() || Seat{hello.rank, hello.socket} != seat) {
            lost(seat.rank,
                 {ddprun::Errc::kMismatch, "another process answered" + (wrong.empty() ? "" : ": " + wrong)});
        }
        finish(met);
    }

    /// Returns why the other side is not a member of the group; empty if it is one.
    std::string complaint(int socket, const Hello& hello, const UniqueFd& passed) const {
        if (!belongs(hello, own_)) return "it belongs to another group, generation or job";
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

    /// Returns when all of `expected` have connected and proven themselves.
    void accept_all(int listener, std::vector<Seat> expected) {
        std::vector<Unproven> unproven;
        while (!expected.empty()) {
            std::vector<pollfd> waiting{{.fd = listener, .events = POLLIN, .revents = 0}};
            for (const Unproven& one : unproven)
                waiting.push_back({.fd = one.socket.get(), .events = POLLIN, .revents = 0});
            const int ready = ::poll(waiting.data(), waiting.size(), poll_timeout(place_.deadline));
            if (ddprun::Clock::now() >= place_.deadline) report_absent(expected);
            if (ready <= 0) continue;
            for (std::size_t i = unproven.size(); i-- > 0;) {
                if (waiting[i + 1].revents != 0 && receive_from(unproven[i], expected)) {
                    unproven.erase(unproven.begin() + static_cast<std::ptrdiff_t>(i));
                }
            }
            if (waiting[0].revents != 0) accept_one(listener, unproven);
        }
    }

    static void accept_one(int listener, std::vector<Unproven>& unproven) {
        UniqueFd socket = accept_unidentified(listener, unproven.size(), kMaxUnproven,
                                              [&unproven] { unproven.erase(unproven.begin()); });
        if (!socket) return;  // it has disconnected already
        unproven.push_back({.socket = std::move(socket), .passed = {}, .hello = {}, .received = 0});
    }

    /// Reads from a connection. Returns whether it is settled: accepted, or to be closed as foreign.
    bool receive_from(Unproven& one, std::vector<Seat>& expected) {
        const auto bytes = std::as_writable_bytes(std::span(&one.hello, 1)).subspan(one.received);
        const ssize_t received = receive_some(one.socket.get(), bytes, one.passed);
        if (received < 0 && errno == EAGAIN) return false;
        if (received <= 0) return true;
        one.received += static_cast<std::size_t>(received);
        if (one.received < sizeof(Hello)) return false;
        const auto found = std::ranges::find(expected, Seat{one.hello.rank, one.hello.socket});
        if (found == expected.end() || !complaint(one.socket.get(), one.hello, one.passed).empty()) return true;
        const Seat seat = *found;
        expected.erase(found);
        Connection& met = connection(seat);
        met.socket = std::move(one.socket);
        met.passed = std::move(one.passed);
        finish(met);
        greet(seat);
        return true;
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
                        place_.spec.name, name_self(place_.spec), member(own_.rank).address, ddprun::name_ranks(absent),
                        names),
            absent);
    }

    std::string name(int rank) const { return name_with_address(rank, place_.members); }

    const HandshakeSpec& place_;
    const std::size_t sockets_;  ///< to each peer
    const int descriptor_;
    const Hello own_;
    std::map<int, std::vector<Connection>> met_;
};

}  // namespace

Hello make_hello(const GroupSpec& spec, const std::vector<Member>& members) {
    Hello hello;
    hello.rank = spec.rank;
    hello.generation = spec.generation;
    ddprun::Fnv64 group;
    group.add(path_of(spec));
    hello.group = group.value();
    const std::string& token = members.front().token;
    std::copy_n(token.begin(), std::min(token.size(), hello.token.size()), hello.token.begin());
    return hello;
}

bool belongs(const Hello& theirs, const Hello& own) {
    return theirs.magic == own.magic && theirs.version == own.version && theirs.generation == own.generation &&
           theirs.group == own.group && theirs.token == own.token;
}

std::map<int, std::vector<Connection>> meet_over_tcp(const HandshakeSpec& place, int listener,
                                                     const std::vector<int>& peers, int Member::*port,
                                                     std::size_t sockets) {
    return Handshake(place, sockets, -1).hold(listener, peers, [&](const Member& member) {
        return connect_tcp(member.address, member.*port, place.deadline);
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
