// Clients of a store that are held until the agent of their host has confirmed their user.
#include "rendezvous/daemon/vouching.hpp"

#include <sys/socket.h>

#include "tests/catch.hpp"
#include "tests/unit/rendezvous/daemon/daemon_fixture.hpp"

using namespace ddprun;
using namespace ddprun::test;
using daemon::Vouching;
using protocol::Vouch;
using protocol::VouchRequest;

namespace {

/// A store and what Vouching has asked and logged. Clients connect to a listener beside it.
struct Rig {
    asio::io_context io{1};
    daemon::GenerationStores stores{io.get_executor(), asio::ip::address_v4::loopback()};
    std::vector<std::pair<std::string, VouchRequest>> asked;
    std::vector<std::string> closed;
    Vouching vouching{
        stores,
        [this](const protocol::NodeId& node, const VouchRequest& request) { asked.emplace_back(node, request); },
        [this](const std::string& peer, const std::string& why) { closed.push_back(peer + ": " + why); }, 2};
    tcp::acceptor acceptor{io, tcp::endpoint(asio::ip::address_v4::loopback(), 0)};
    TimePoint now{};

    Rig() { REQUIRE(stores.open(Generation{1}, {}).has_value()); }

    /// Returns a client that is held for node n2.
    tcp::socket hold() {
        tcp::socket client(io);
        client.connect(acceptor.local_endpoint());
        tcp::socket accepted = acceptor.accept();
        vouching.hold(UniqueFd(accepted.release()), Generation{1}, "n2", now);
        return client;
    }
    [[nodiscard]] std::size_t accepted() { return stores.find(Generation{1})->statistics().accepted; }
};

bool was_closed(tcp::socket& client) {
    char byte{};
    boost::system::error_code error;
    client.non_blocking(true);
    client.read_some(asio::buffer(&byte, 1), error);
    return error == asio::error::eof || error == asio::error::connection_reset;
}

}  // namespace

TEST_CASE("a client is served when the agent of its host has vouched for it", "[daemon][unit]") {
    Rig rig;
    tcp::socket client = rig.hold();
    REQUIRE(rig.asked.size() == 1);
    const auto& [node, request] = rig.asked[0];
    CHECK(node == "n2");
    CHECK(request.client_address == "127.0.0.1");
    CHECK(request.client_port == client.local_endpoint().port());
    CHECK(request.store_address == "127.0.0.1");
    CHECK(request.store_port == rig.acceptor.local_endpoint().port());
    CHECK(rig.accepted() == 0);
    rig.vouching.answer("n3", Vouch{request.request, true, "a process of user 7"});  // it was not asked
    rig.vouching.answer("n2", Vouch{request.request + 1, true, "a process of user 7"});
    CHECK(rig.accepted() == 0);
    rig.vouching.answer("n2", Vouch{request.request, true, "a process of user 7"});
    CHECK(rig.accepted() == 1);
    rig.vouching.answer("n2", Vouch{request.request, true, "a process of user 7"});  // it was reminded
    CHECK(rig.accepted() == 1);
    CHECK_FALSE(was_closed(client));
    CHECK(rig.closed.empty());
}

TEST_CASE("a client of another user is closed with the reason", "[daemon][unit]") {
    Rig rig;
    tcp::socket client = rig.hold();
    rig.vouching.answer("n2", Vouch{rig.asked[0].second.request, false, "a process of user 65534"});
    CHECK(rig.accepted() == 0);
    CHECK(was_closed(client));
    REQUIRE(rig.closed.size() == 1);
    CHECK_THAT(rig.closed[0],
               Catch::Contains(": a TCPStore client that is a process of user 65534, not of the user of the job"));
}

TEST_CASE("of a client without a socket on its host the line names the translation of addresses and what to do",
          "[daemon][unit]") {
    Rig rig;
    tcp::socket client = rig.hold();
    rig.vouching.answer("n2", Vouch{rig.asked[0].second.request, false, ""});
    CHECK(was_closed(client));
    REQUIRE(rig.closed.size() == 1);
    CHECK_THAT(rig.closed[0], Catch::Contains(": a TCPStore client for which the ddprun of its host finds no socket") &&
                                  Catch::Contains("address translation (NAT, a container's network, a proxy)") &&
                                  Catch::Contains("start the job without --store-vouch"));
}

TEST_CASE("nothing is asked about a client that has closed its connection meanwhile", "[daemon][unit]") {
    Rig rig;
    { const tcp::socket client = rig.hold(); }
    rig.vouching.remind(rig.now + 2s);
    CHECK(rig.asked.size() == 1);
    rig.vouching.remind(rig.now + 5s);
    CHECK(rig.closed.empty());
}

TEST_CASE("a client without an answer is asked for again, and closed in the end", "[daemon][unit]") {
    Rig rig;
    tcp::socket client = rig.hold();
    rig.vouching.remind(rig.now + 900ms);
    CHECK(rig.asked.size() == 1);
    rig.vouching.remind(rig.now + 4s);
    REQUIRE(rig.asked.size() == 2);
    CHECK(rig.asked[1] == rig.asked[0]);
    CHECK_FALSE(was_closed(client));
    rig.vouching.remind(rig.now + 5s);
    CHECK(rig.asked.size() == 2);
    CHECK(was_closed(client));
    REQUIRE(rig.closed.size() == 1);
    CHECK_THAT(rig.closed[0], Catch::Contains("its node has not vouched within 5 s"));
    rig.vouching.answer("n2", Vouch{rig.asked[0].second.request, true, ""});
    CHECK(rig.accepted() == 0);
}

TEST_CASE("a client that has gone, or whose store has, is not served", "[daemon][unit]") {
    Rig rig;
    tcp::socket client = rig.hold();
    tcp::socket other = rig.hold();
    client.close();  // its addresses may be another's by now
    rig.vouching.answer("n2", Vouch{rig.asked[0].second.request, true, ""});
    CHECK(rig.accepted() == 0);
    rig.stores.close(Generation{1});
    REQUIRE(rig.stores.open(Generation{2}, {}).has_value());
    rig.vouching.answer("n2", Vouch{rig.asked[1].second.request, true, ""});
    CHECK(was_closed(other));
    CHECK(rig.stores.find(Generation{2})->statistics().accepted == 0);
}

TEST_CASE("one node can have a bounded number of clients held", "[daemon][unit]") {
    Rig rig;
    std::vector<tcp::socket> clients;
    for (int i = 0; i < 3; ++i) clients.push_back(rig.hold());
    CHECK(rig.asked.size() == 2);
    CHECK(was_closed(clients[2]));
    CHECK(rig.closed.size() == 1);
    rig.vouching.answer("n2", Vouch{rig.asked[0].second.request, true, ""});
    clients.push_back(rig.hold());
    CHECK(rig.asked.size() == 3);
}
