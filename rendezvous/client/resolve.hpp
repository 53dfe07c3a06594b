#pragma once
// Addresses of a host name for a coroutine (common/system/resolve.hpp). Asio's own resolver would be joined at the end
// of the program, for as long as it hangs. Private to the client.

#include <boost/asio/awaitable.hpp>

#include "common/clock.hpp"
#include "common/endpoint.hpp"
#include "common/error.hpp"
#include "common/system/resolve.hpp"

namespace ddprun::client {

/// Returns the addresses of `endpoint`; a numeric one is taken as it is. Errors: those of `look_up`; kTimeout at the
/// deadline; the system has no thread to give.
[[nodiscard]] boost::asio::awaitable<Result<Addresses>> async_resolve(Endpoint endpoint, TimePoint deadline,
                                                                      LookUp look_up = ask_system);

}  // namespace ddprun::client
