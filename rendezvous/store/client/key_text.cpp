#include "rendezvous/store/client_absence.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <vector>

#include "rendezvous/store/client_greeting.hpp"
#include "rendezvous/store/client_requests.hpp"
#include "rendezvous/store/client_words.hpp"

namespace ddprun::store {
namespace {

using namespace std::chrono_literals;

constexpr Duration kPatience = 1s;
/// Larger stores are not listed: every rank of a job may ask at the same time.
constexpr std::int64_t kListedKeys = 10'000;

Result<std::vector<std::string>> keys_with_prefix(ClientStream& stream, std::string_view prefix, TimePoint deadline) {
    if (auto sent = stream.send(request_of(RequestKind::kListKeys), kPatience); !sent) return sent.error();
    const auto count = stream.receive_number<std::int64_t>(deadline);
    if (!count) return count.error();
    std::vector<std::string> found;
    for (std::int64_t i = 0; i < *count; ++i) {
        auto key = stream.receive_bytes(std::max(Duration(0), deadline - Clock::now()));
        if (!key) return key.error();
        if (key->starts_with(prefix)) found.push_back(std::move(*key));
    }
    std::ranges::sort(found);
    return found;
}

}  // namespace

std::string what_is_there_instead(const Endpoint& endpoint, std::string_view missing_key) {
    const TimePoint deadline = Clock::now() + kPatience;
    auto stream = connect_stream(endpoint, deadline);
    if (!stream || !stream->send(request_of(RequestKind::kGetNumKeys), kPatience)) return {};
    const auto count = stream->receive_number<std::int64_t>(deadline);
    if (!count) return {};
    if (*count == 0) return "; the store is empty";
    const std::string held = fmt::format("the store holds {} {}", *count, *count == 1 ? "key" : "keys");

    // The last '/' of the name proper: prefixes may end in several.
    const std::string_view prefix = missing_key.substr(0, missing_key.find_last_of('/') + 1);
    if (prefix.empty() || *count > kListedKeys) return "; " + held;
    const auto found = keys_with_prefix(*stream, prefix, deadline);
    if (!found) return "; " + held;
    if (found->empty()) return fmt::format("; no key begins with {}, {}", quoted(prefix), held);
    return "; keys with that prefix: " + quoted_list(*found);
}

}  // namespace ddprun::store
