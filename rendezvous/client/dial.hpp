#pragma once
// Reaching a daemon that may not be there yet: names become addresses, every address is tried, and all of it again
// after a short pause. Private to the client.

#include <boost/asio/awaitable.hpp>

#include <memory>

#include "common/clock.hpp"
#include "common/endpoint.hpp"
#include "common/error.hpp"
#include "rendezvous/transport/channel.hpp"

namespace ddprun::client {

/// Tries at least once, and until `deadline`; looking up a name may take longer, as the system's resolver decides.
/// Errors: kUnreachable or kTimeout with endpoint, tries and last cause; kRefused and kMismatch at once, when somebody
/// else answers. Says on the log that it waits.
[[nodiscard]] boost::asio::awaitable<Result<std::shared_ptr<transport::Channel>>> dial(Endpoint endpoint,
                                                                                       TimePoint deadline);

}  // namespace ddprun::client
