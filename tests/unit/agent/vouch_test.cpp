// The answer of an agent about a connection of its host.
#include "agent/vouch.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "common/system/unique_fd.hpp"
#include "tests/catch.hpp"

using namespace ddprun;
using namespace ddprun::agent;

namespace {

int port_of(const UniqueFd& socket) {
    sockaddr_in address{};
    socklen_t size = sizeof address;
    REQUIRE(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
    return ntohs(address.sin_port);
}

/// A listener on loopback and a client that has connected to it.
struct Connected {
    UniqueFd listener{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
    UniqueFd client{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};

    Connected() {
        sockaddr_in at{};
        at.sin_family = AF_INET;
        at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        REQUIRE(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0);
        REQUIRE(::listen(listener.get(), 1) == 0);
        at.sin_port = htons(static_cast<std::uint16_t>(port_of(listener)));
        REQUIRE(::connect(client.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0);
    }
    protocol::VouchRequest request() const { return {7, "127.0.0.1", port_of(client), "127.0.0.1", port_of(listener)}; }
};

}  // namespace

TEST_CASE("an agent vouches for a connection of its user, and for no other one", "[vouch][unit]") {
    Connected connected;
    const protocol::VouchRequest request = connected.request();
    const protocol::Vouch vouch = vouch_for(request);
    CHECK(vouch.request == 7);
    CHECK(vouch.own_user);
    CHECK(vouch.owner == "a process of user " + std::to_string(::geteuid()));

    protocol::VouchRequest other = request;
    other.store_port = request.client_port;
    CHECK_FALSE(vouch_for(other).own_user);
    other = request;
    other.client_port = request.store_port;  // a listening socket is no client
    CHECK_FALSE(vouch_for(other).own_user);
    other = request;
    other.client_address = "a name";
    CHECK_FALSE(vouch_for(other).own_user);

    connected.client.reset();
    CHECK_FALSE(vouch_for(request).own_user);
    CHECK(vouch_for(request).owner.empty());
}
