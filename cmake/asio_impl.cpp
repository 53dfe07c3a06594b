// The one translation unit that compiles Boost.Asio's and Boost.Beast's non-template code.
#include <boost/asio/impl/src.hpp>
#include <boost/beast/src.hpp>
