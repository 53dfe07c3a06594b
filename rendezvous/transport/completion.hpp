#pragma once
// kTuple: the completion token of coroutines that want an error code with the result instead of an exception.

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace ddprun::transport {

inline constexpr auto kTuple = boost::asio::as_tuple(boost::asio::use_awaitable);

}  // namespace ddprun::transport
