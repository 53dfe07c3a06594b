// The one translation unit that compiles Boost.Asio's non-template code for TLS.
#include <boost/asio/ssl/impl/src.hpp>
