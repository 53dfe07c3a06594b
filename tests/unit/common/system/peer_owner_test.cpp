// Whose the other end of a connection is: of both kinds of addresses, of another user, after its end.
#include "common/system/peer_owner.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>
#include <string>
#include <utility>

#include "tests/catch.hpp"

using namespace ddprun;

namespace {

constexpr uid_t kOther = 65534;

/// A listener and an accepted connection, whose other end is `client`.
struct Connected {
    UniqueFd listener;
    sockaddr_storage at{};
    socklen_t size = 0;
    UniqueFd client;
    UniqueFd accepted;

    /// Listens at `listen_at`; connect() dials `dial`.
    Connected(const std::string& listen_at, const std::string& dial) {
        const bool v6 = listen_at.find(':') != std::string::npos;
        listener.reset(::socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        fill(listen_at, 0);
        usable = ::bind(listener.get(), reinterpret_cast<sockaddr*>(&at), size) == 0;
        if (!usable) return;
        REQUIRE(::listen(listener.get(), 1) == 0);
        REQUIRE(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at), &size) == 0);
        fill(dial, ntohs(reinterpret_cast<const sockaddr_in&>(at).sin_port));
    }
    void connect() {
        client.reset(::socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
        REQUIRE(::connect(client.get(), reinterpret_cast<const sockaddr*>(&at), size) == 0);
    }
    void accept() {
        accepted.reset(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
        REQUIRE(accepted.get() >= 0);
    }
    bool usable = false;

private:
    void fill(const std::string& host, std::uint16_t port) {
        at = {};
        if (host.find(':') == std::string::npos) {
            auto& v4 = reinterpret_cast<sockaddr_in&>(at);
            v4.sin_family = AF_INET;
            v4.sin_port = htons(port);
            REQUIRE(::inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1);
            size = sizeof v4;
        } else {
            auto& v6 = reinterpret_cast<sockaddr_in6&>(at);
            v6.sin6_family = AF_INET6;
            v6.sin6_port = htons(port);
            REQUIRE(::inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1);
            size = sizeof v6;
        }
    }
};

/// Makes this process root of a user namespace that user kOther has made. For a child process.
bool become_root_of_namespace() {
    if (::setresuid(kOther, kOther, kOther) != 0 || ::prctl(PR_SET_DUMPABLE, 1) != 0) return false;
    if (::unshare(CLONE_NEWUSER) != 0) return false;
    const UniqueFd map(::open("/proc/self/uid_map", O_WRONLY | O_CLOEXEC));
    const std::string text = "0 " + std::to_string(kOther) + " 1\n";
    return ::write(map.get(), text.data(), text.size()) > 0 && ::geteuid() == 0;
}

/// Runs `what` in a child process, which stays until it is destroyed.
class Child {
public:
    explicit Child(const std::function<bool()>& what) {
        int ready[2];
        REQUIRE(::pipe2(ready, O_CLOEXEC) == 0);
        pid_ = ::fork();
        if (pid_ == 0) {
            const char ok = what() ? 'y' : 'n';
            (void)!::write(ready[1], &ok, 1);
            ::pause();
            ::_exit(0);
        }
        ::close(ready[1]);
        char ok = 0;
        (void)!::read(ready[0], &ok, 1);
        ::close(ready[0]);
        succeeded = ok == 'y';
    }
    ~Child() {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
    }
    Child(const Child&) = delete;
    Child& operator=(const Child&) = delete;
    bool succeeded = false;

private:
    pid_t pid_ = -1;
};

using AddressPair = std::pair<std::string, std::string>;  // to listen at, to dial

/// Returns a PeerOwners without netlink, as in a container that forbids it.
PeerOwners without_netlink() {
    rlimit before{};
    REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
    const UniqueFd next(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    const rlimit none{static_cast<rlim_t>(next.get()), before.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &none) == 0);
    PeerOwners owners;
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    return owners;
}

}  // namespace

TEST_CASE("the peer on this host is this process' user") {
    const auto [listen_at, dial] =
        GENERATE(AddressPair{"127.0.0.1", "127.0.0.1"}, AddressPair{"0.0.0.0", "127.0.0.2"}, AddressPair{"::1", "::1"},
                 AddressPair{"::", "127.0.0.1"}, AddressPair{"::", "::1"});
    const bool netlink = GENERATE(true, false);
    CAPTURE(listen_at, dial, netlink);
    Connected pair(listen_at, dial);
    if (!pair.usable) {
        WARN("SKIPPED: no IPv6 here");
        return;
    }
    pair.connect();
    pair.accept();
    PeerOwners owners = netlink ? PeerOwners() : without_netlink();
    for (const int socket : {pair.accepted.get(), pair.client.get()}) {
        const PeerOwner owner = owners.find(socket);
        CHECK(owner.kind == PeerOwner::Kind::kUser);
        CHECK(owner.uid == ::geteuid());
        CHECK(is_own_or_remote(owner));
    }
    ::shutdown(pair.client.get(), SHUT_WR);  // half closed: it may still wait for an answer
    CHECK(owners.find(pair.accepted.get()).kind == PeerOwner::Kind::kUser);
}

TEST_CASE("a peer that has closed its socket has no owner, not even root") {
    const bool netlink = GENERATE(true, false);
    const bool by_reset = GENERATE(true, false);
    CAPTURE(netlink, by_reset);
    Connected pair("127.0.0.1", "127.0.0.1");
    pair.connect();
    REQUIRE(::send(pair.client.get(), "x", 1, 0) == 1);
    const linger at_once{1, 0};
    if (by_reset) ::setsockopt(pair.client.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    pair.client.reset();
    pair.accept();
    PeerOwners owners = netlink ? PeerOwners() : without_netlink();
    const PeerOwner owner = owners.find(pair.accepted.get());
    CHECK(owner.kind == PeerOwner::Kind::kUnknown);
    CHECK_FALSE(is_own_or_remote(owner));
    CHECK(to_string(owner) == "a process that has closed its socket");
}

TEST_CASE("a peer of another user is found by its number") {
    if (::geteuid() != 0) {
        WARN("SKIPPED: needs root to become another user");
        return;
    }
    const bool netlink = GENERATE(true, false);
    Connected pair("127.0.0.1", "127.0.0.1");
    const Child other([&] {
        if (::setresuid(kOther, kOther, kOther) != 0) return false;
        const int client = ::socket(AF_INET, SOCK_STREAM, 0);
        return ::connect(client, reinterpret_cast<const sockaddr*>(&pair.at), pair.size) == 0;
    });
    REQUIRE(other.succeeded);
    pair.accept();
    PeerOwners owners = netlink ? PeerOwners() : without_netlink();
    const PeerOwner owner = owners.find(pair.accepted.get());
    CHECK(owner.kind == PeerOwner::Kind::kUser);
    CHECK(owner.uid == kOther);
    CHECK_FALSE(is_own_or_remote(owner));
    CHECK(to_string(owner) == "a process of user 65534");
}

TEST_CASE("root of a user namespace is the user that made it") {
    if (::geteuid() != 0) {
        WARN("SKIPPED: needs root to become another user");
        return;
    }
    Connected pair("127.0.0.1", "127.0.0.1");
    const Child other([&] {
        if (!become_root_of_namespace()) return false;
        const int client = ::socket(AF_INET, SOCK_STREAM, 0);
        return ::connect(client, reinterpret_cast<const sockaddr*>(&pair.at), pair.size) == 0;
    });

    if (!other.succeeded) {
        WARN("SKIPPED: no user namespaces here");
        return;
    }
    pair.accept();
    CHECK(PeerOwners().find(pair.accepted.get()).uid == kOther);  // seen from outside

    // Seen from inside: the socket of the same user outside is root's.
    Connected inside("127.0.0.1", "127.0.0.1");
    const Child client([&] {
        if (::setresuid(kOther, kOther, kOther) != 0) return false;
        const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
        return ::connect(socket, reinterpret_cast<const sockaddr*>(&inside.at), inside.size) == 0;
    });
    REQUIRE(client.succeeded);
    inside.accept();
    const Child server([&] {
        if (!become_root_of_namespace()) return false;
        const PeerOwner owner = PeerOwners().find(inside.accepted.get());
        return owner.kind == PeerOwner::Kind::kUser && owner.uid == 0 && is_own_or_remote(owner);
    });
    CHECK(server.succeeded);
}

TEST_CASE("by two addresses an owner is found in socket diagnostics alone, not in the tables of all sockets") {
    Connected pair("127.0.0.1", "127.0.0.1");
    pair.connect();
    sockaddr_storage client{};
    socklen_t size = sizeof client;
    REQUIRE(::getsockname(pair.client.get(), reinterpret_cast<sockaddr*>(&client), &size) == 0);
    CHECK(PeerOwners().find(client, pair.at).kind == PeerOwner::Kind::kUser);
    CHECK(without_netlink().find(client, pair.at).kind == PeerOwner::Kind::kUnknown);
}

TEST_CASE("own addresses are those to which packets are delivered here") {
    PeerOwners owners;
    const auto is_own = [&](const std::string& host) {
        sockaddr_storage address{};
        if (auto& v4 = reinterpret_cast<sockaddr_in&>(address); ::inet_pton(AF_INET, host.c_str(), &v4.sin_addr) == 1) {
            v4.sin_family = AF_INET;
        } else {
            auto& v6 = reinterpret_cast<sockaddr_in6&>(address);
            v6.sin6_family = AF_INET6;
            REQUIRE(::inet_pton(AF_INET6, host.c_str(), &v6.sin6_addr) == 1);
        }
        return owners.is_own_address(address);
    };
    CHECK(is_own("127.0.0.1"));
    CHECK(is_own("127.5.6.7"));
    CHECK(is_own("::ffff:127.0.0.1"));
    CHECK_FALSE(is_own("192.0.2.1"));
    CHECK_FALSE(is_own("2001:db8::1"));
    CHECK(is_own("::1"));
}
