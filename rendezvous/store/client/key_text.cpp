#include "rendezvous/store/client/key_text.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/text/cut.hpp"
#include "common/text/list.hpp"
#include "common/text/number.hpp"
#include "rendezvous/store/client/connect.hpp"
#include "rendezvous/store/client/requests.hpp"

namespace ddprun::store {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMaxNamedKeys = 8;   ///< in one message
constexpr std::size_t kMaxKeyBytes = 120;  ///< of each
constexpr Duration kTimeout = 1s;          ///< of missing_key_hint()
/// Larger stores are not listed: every rank of a job may ask at the same time.
constexpr std::int64_t kMaxListedKeys = 10'000;

Result<std::vector<std::string>> keys_with_prefix(ClientStream& stream, std::string_view prefix, TimePoint deadline) {
    if (auto sent = stream.send(request_of(RequestKind::kListKeys), kTimeout); !sent) return sent.error();
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

std::string quoted(std::string_view key) {
    std::string text = "'";
    for (const char c : cut(key, kMaxKeyBytes)) {
        const bool printable = static_cast<unsigned char>(c) >= 0x20 && c != 0x7f;
        text += printable ? c : '?';
    }
    return text + "'";
}

std::string quoted_list(std::span<const std::string> keys) {
    std::vector<std::string> names;
    for (const std::string& key : keys.first(std::min(keys.size(), kMaxNamedKeys))) names.push_back(quoted(key));
    return some_of(std::move(names), kMaxNamedKeys, keys.size());
}

std::string named(std::span<const std::string> keys) {
    return fmt::format("{} {}", inflect(keys.size(), "key", "keys"), quoted_list(keys));
}

std::string missing_key_hint(const Endpoint& endpoint, std::string_view missing_key) {
    const TimePoint deadline = Clock::now() + kTimeout;
    auto stream = connect_stream(endpoint, deadline);
    if (!stream || !stream->send(request_of(RequestKind::kGetNumKeys), kTimeout)) return {};
    const auto count = stream->receive_number<std::int64_t>(deadline);
    if (!count) return {};
    if (*count == 0) return "; the store is empty";
    const std::string held = "the store holds " + counted(*count, "key");

    // The last '/' of the name proper: prefixes may end in several.
    const std::string_view prefix = missing_key.substr(0, missing_key.find_last_of('/') + 1);
    if (prefix.empty() || *count > kMaxListedKeys) return "; " + held;
    const auto found = keys_with_prefix(*stream, prefix, deadline);
    if (!found) return "; " + held;
    if (found->empty()) return fmt::format("; no key begins with {}, {}", quoted(prefix), held);
    return "; keys with that prefix: " + quoted_list(*found);
}

}  // namespace ddprun::store
