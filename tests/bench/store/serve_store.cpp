// The one file that knows our server's interface.
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address_v4.hpp>

#include <cstdlib>
#include <stdexcept>

#include "rendezvous/store/server.hpp"
#include "tests/bench/store/serve.hpp"

namespace ddprun::bench {

void serve_store() {
    boost::asio::io_context context(1);
    const auto server = store::StoreServer::listen(context.get_executor(), boost::asio::ip::address_v4::loopback(), 0);
    if (!server) throw std::runtime_error(server.error().message);
    tell_port((*server)->port());
    context.run();
    std::exit(EXIT_SUCCESS);
}

}  // namespace ddprun::bench
