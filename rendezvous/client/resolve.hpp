#pragma once
// Resolves a host name for a coroutine (common/system/resolve.hpp). Asio's own resolver thread would be joined at the
// end of the program, however long it hangs. Private to the client.

#include <boost/asio/awaitable.hpp>

#include "common/clock.hpp"
#include "common/endpoint.hpp"
#include "common/error.hpp"
#include "common/system/resolve.hpp"

namespace ddprun::client {

/// Returns the addresses of `endpoint`. A numeric one is not looked up. Errors: those of `look_up`; kTimeout at the
/// deadline; no thread could be started.
[[nodiscard]] boost::asio::awaitable<Result<Addresses>> async_resolve(Endpoint endpoint, TimePoint deadline,
                                                                      LookUp look_up = ask_system);

}  // namespace ddprun::client
