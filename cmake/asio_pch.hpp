#pragma once
// Precompiled for every target that runs on Asio: parsing these headers takes longer than our own code.
#include <fmt/format.h>
#include <boost/asio.hpp>
#include <boost/asio/experimental/awaitable_operators.hpp>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>
