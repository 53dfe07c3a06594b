#include "rendezvous/daemon/store_report.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <string_view>

#include "common/text/number.hpp"

namespace ddprun::daemon {
namespace {

/// The names of all kinds, in the order of RequestKind, as docs/protocol.md calls them.
constexpr std::array<std::string_view, store::kRequestKinds> kNames{
    "VALIDATE",   "SET",        "COMPARE_SET", "GET",       "ADD",       "CHECK",       "WAIT",
    "GETNUMKEYS", "DELETE_KEY", "APPEND",      "MULTI_GET", "MULTI_SET", "CANCEL_WAIT", "PING",
    "QUEUE_PUSH", "QUEUE_POP",  "QUEUE_LEN",   "LIST_KEYS", "BARRIER"};
static_assert(!kNames.back().empty(), "every kind has a name");

std::string amount(std::uint64_t bytes) {
    constexpr std::array<std::string_view, 5> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
    double number = static_cast<double>(bytes);
    std::size_t unit = 0;
    for (; number >= 1024 && unit + 1 < kUnits.size(); ++unit) number /= 1024;
    return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", number, kUnits[unit]);
}

std::string requests(const store::Statistics& now) {
    std::string kinds;
    for (std::size_t kind = 0; kind < now.requests.size(); ++kind) {
        if (now.requests[kind] == 0) continue;
        kinds += fmt::format("{}{} {}", kinds.empty() ? ": " : ", ", kNames[kind], now.requests[kind]);
    }
    return counted(now.request_count(), "request") + kinds;
}

}  // namespace

std::string statistics_line(const store::Statistics& now, std::chrono::seconds up) {
    const std::string failures =
        now.accept_failures == 0 ? "" : fmt::format(", {} times none could be accepted", now.accept_failures);
    return fmt::format(
        "up {} s; {} ({} accepted, {} closed for what was asked{}); {} and {} in {}; {}; {} in, {} out; "
        "{} buffered",
        up.count(), counted(now.connections, "connection"), now.accepted, now.refused, failures,
        counted(now.keys, "key"), counted(now.waiters, "wait"), amount(now.store_bytes), requests(now),
        amount(now.received_bytes), amount(now.sent_bytes), amount(now.buffer_bytes));
}

}  // namespace ddprun::daemon
