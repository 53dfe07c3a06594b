#include "worker_lib/src/native/handshake.hpp"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <functional>
#include <span>

#include "worker_lib/src/exchange.hpp"
#include "worker_lib/src/fnv.hpp"
#include "worker_lib/src/native/sockets.hpp"
#include "worker_lib/src/native/system_error.hpp"

namespace ddp::detail {

namespace {

using ddprun::Result;
using ddprun::UniqueFd;

/// Strangers (port scanners, workers of another job) may connect and stay silent. More than this many at a time are
/// closed.
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

/// Nothing said yet, or not all of it.
struct Unproven {
    UniqueFd socket;
    UniqueFd passed;
    Hello hello;
    std::size_t received = 0;
};

class Meeting {
public:
    Meeting(const MeetingPlace& place, int descriptor)
        : place_(place), descriptor_(descriptor), own_(make_hello(place.spec, place.members)) {}

    using Connect = std::function<Result<UniqueFd>(const Member&)>;

    std::map<int, Connection> hold(int listener, const std::vector<int>& peers, const Connect& connect) {
        std::vector<int> earlier;
        std::vector<int> later;
        for (const int peer : peers) (peer < own_.rank ? earlier : later).push_back(peer);
        // Nobody answers before it has connected to all that it must connect to, and connecting needs no answer: no
        // deadlock.
        for (const int peer : earlier) {
            met_[peer].socket = succeed(connect(member(peer)), peer);
            greet(peer);
        }
        accept_all(listener, std::move(later));
        for (const int peer : earlier) expect_greeting(peer);
        return std::move(met_);
    }

private:
    const Member& member(int rank) const { return place_.members[static_cast<std::size_t>(rank)]; }

    [[noreturn]] void lost(int peer, const ddprun::Error& error) const {
        const bool late = error.code == ddprun::Errc::kTimeout;
        throw Error(late ? ErrorCode::Timeout : ErrorCode::PeerLost,
                    fmt::format("group '{}': rank {} lost {} while connecting: {}", place_.spec.name, own_.rank,
                                name(peer), error.message),
                    {peer});
    }

    UniqueFd succeed(Result<UniqueFd> result, int peer) const {
        if (!result) lost(peer, result.error());
        return std::move(*result);
    }

    void greet(int peer) {
        const auto bytes = std::as_bytes(std::span(&own_, 1));
        const auto sent = send_all(met_.at(peer).socket.get(), bytes, descriptor_, place_.deadline);
        if (!sent) lost(peer, sent.error());
    }

    void expect_greeting(int peer) {
        Connection& connection = met_.at(peer);
        Hello hello;
        const auto bytes = std::as_writable_bytes(std::span(&hello, 1));
        const auto received = receive_all(connection.socket.get(), bytes, connection.passed, place_.deadline);
        if (!received) lost(peer, received.error());
        const std::string stranger = complaint(connection.socket.get(), hello, connection.passed);
        if (!stranger.empty() || hello.rank != peer) {
            lost(peer, {ddprun::Errc::kMismatch, "somebody else answered" + (stranger.empty() ? "" : ": " + stranger)});
        }
        finish(connection);
    }

    /// Why the other side cannot be one of us, or nothing.
    std::string complaint(int socket, const Hello& hello, const UniqueFd& passed) const {
        if (!belongs(hello, own_)) return "it belongs to another group, generation or job";
        if (family_of(socket) != AF_UNIX) return {};
        if (credentials(socket).uid != ::geteuid()) return "its process belongs to another user";
        return passed ? "" : "it sent no memory";
    }

    static void finish(Connection& connection) {
        if (family_of(connection.socket.get()) == AF_UNIX) {
            connection.pid = credentials(connection.socket.get()).pid;
        } else {
            prepare_tcp(connection.socket.get());
        }
    }

    /// Until every rank of `expected` has come and proven itself.
    void accept_all(int listener, std::vector<int> expected) {
        std::vector<Unproven> unproven;
        while (!expected.empty()) {
            std::vector<pollfd> waiting{{.fd = listener, .events = POLLIN, .revents = 0}};
            for (const Unproven& one : unproven)
                waiting.push_back({.fd = one.socket.get(), .events = POLLIN, .revents = 0});
            const int ready = ::poll(waiting.data(), waiting.size(), poll_timeout(place_.deadline));
            if (ddprun::Clock::now() >= place_.deadline) report_absent(expected);
            if (ready <= 0) continue;
            for (std::size_t i = unproven.size(); i-- > 0;) {
                if (waiting[i + 1].revents != 0 && listen_to(unproven[i], expected)) {
                    unproven.erase(unproven.begin() + static_cast<std::ptrdiff_t>(i));
                }
            }
            if (waiting[0].revents != 0) accept_one(listener, unproven);
        }
    }

    static void accept_one(int listener, std::vector<Unproven>& unproven) {
        UniqueFd socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        const bool no_descriptor = !socket && (errno == EMFILE || errno == ENFILE);
        if (no_descriptor && unproven.empty()) throw_errno("cannot accept a peer's connection (ulimit -n?)", errno);
        if (no_descriptor || (socket && unproven.size() >= kMaxUnproven)) unproven.erase(unproven.begin());
        if (!socket) return;  // gone again, or it is accepted once the stranger's descriptor is free
        unproven.push_back({.socket = std::move(socket), .passed = {}, .hello = {}, .received = 0});
    }

    /// True when `one` is settled: taken over, or closed as a stranger.
    bool listen_to(Unproven& one, std::vector<int>& expected) {
        const auto bytes = std::as_writable_bytes(std::span(&one.hello, 1)).subspan(one.received);
        const ssize_t received = receive_some(one.socket.get(), bytes, one.passed);
        if (received < 0 && errno == EAGAIN) return false;
        if (received <= 0) return true;
        one.received += static_cast<std::size_t>(received);
        if (one.received < sizeof(Hello)) return false;
        const auto place = std::ranges::find(expected, one.hello.rank);
        if (place == expected.end() || !complaint(one.socket.get(), one.hello, one.passed).empty()) return true;
        const int peer = *place;
        expected.erase(place);
        Connection& connection = met_[peer];
        connection.socket = std::move(one.socket);
        connection.passed = std::move(one.passed);
        finish(connection);
        greet(peer);
        return true;
    }

    [[noreturn]] void report_absent(const std::vector<int>& absent) const {
        std::string who;
        for (const int rank : absent) who += (who.empty() ? "" : ", ") + name(rank);
        throw Error(ErrorCode::Timeout,
                    fmt::format("group '{}': rank {} at {} waited until its deadline for {} to connect: {}. They have "
                                "joined: can they reach that address?",
                                place_.spec.name, own_.rank, member(own_.rank).address, name_ranks(absent), who),
                    absent);
    }

    std::string name(int rank) const {
        return fmt::format("rank {} (host {}, pid {}, {})", rank, member(rank).hostname, member(rank).pid,
                           member(rank).address);
    }

    const MeetingPlace& place_;
    const int descriptor_;
    const Hello own_;
    std::map<int, Connection> met_;
};

}  // namespace

Hello make_hello(const GroupSpec& spec, const std::vector<Member>& members) {
    Hello hello;
    hello.rank = spec.rank;
    hello.generation = spec.generation;
    Fnv64 group;
    group.add(spec.name);
    hello.group = group.value();
    const std::string& token = members.front().token;
    std::copy_n(token.begin(), std::min(token.size(), hello.token.size()), hello.token.begin());
    return hello;
}

bool belongs(const Hello& theirs, const Hello& own) {
    return theirs.magic == own.magic && theirs.version == own.version && theirs.generation == own.generation &&
           theirs.group == own.group && theirs.token == own.token;
}

std::map<int, Connection> meet_over_tcp(const MeetingPlace& place, int listener, const std::vector<int>& peers,
                                        int Member::*port) {
    return Meeting(place, -1).hold(listener, peers, [&](const Member& member) {
        return connect_tcp(member.address, member.*port, place.deadline);
    });
}

std::map<int, Connection> meet_over_unix(const MeetingPlace& place, int listener, const std::vector<int>& peers,
                                         int descriptor) {
    return Meeting(place, descriptor).hold(listener, peers, [](const Member& member) {
        return connect_unix(member.local_name);
    });
}

}  // namespace ddp::detail
