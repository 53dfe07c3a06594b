#pragma once
// Parses the options of `ddprund --store` into values.

#include <string>
#include <string_view>

#include "common/endpoint.hpp"
#include "common/error.hpp"
#include "rendezvous/store/codec/limits.hpp"

namespace ddprun::daemon {

/// A store without a job's daemon, for processes that ddprun did not start.
struct StoreMode {
    Endpoint listen;
    store::Options store;
};

/// Parses HOST:PORT of --store. Errors: kUsage, also without a port; the message then suggests PyTorch's default one.
[[nodiscard]] Result<Endpoint> parse_store_endpoint(const std::string& text);

/// Parses one --store-limit, "value-bytes=64M", into `limits`. Errors: kUsage, with the known names.
[[nodiscard]] Result<void> apply_store_limit(const std::string& text, store::Limits& limits);

/// Parses "1.13" (also for 2.0), "2.1" or "none". Errors: kUsage.
[[nodiscard]] Result<store::OlderDialect> parse_older_dialect(const std::string& text);
[[nodiscard]] std::string_view to_string(store::OlderDialect dialect);

}  // namespace ddprun::daemon
