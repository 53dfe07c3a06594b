#pragma once
// The options of `ddprund --store` as values.

#include <string>
#include <string_view>

#include "common/endpoint.hpp"
#include "common/error.hpp"
#include "rendezvous/store/limits.hpp"

namespace ddprun::daemon {

/// A store alone, for anybody's processes, in place of a job's daemon.
struct StoreMode {
    Endpoint listen;
    store::Options store;
};

/// HOST:PORT of --store; without a port PyTorch's usual one, 29500. Errors: kUsage.
[[nodiscard]] Result<Endpoint> parse_store_endpoint(const std::string& text);

/// Takes one --store-limit into `limits`: "value-bytes=64M". Errors: kUsage, with the names that there are.
[[nodiscard]] Result<void> apply_store_limit(const std::string& text, store::Limits& limits);

/// "1.13" (also for 2.0), "2.1" or "none". Errors: kUsage.
[[nodiscard]] Result<store::OlderDialect> parse_older_dialect(const std::string& text);
[[nodiscard]] std::string_view to_string(store::OlderDialect dialect);

}  // namespace ddprun::daemon
