#pragma once
// What the tests of shrink() share.

#include <string>
#include <string_view>
#include <vector>

#include "tests/unit/worker_lib/support/local_world.hpp"
#include "tests/unit/worker_lib/support/watched_store.hpp"

namespace ddp::testing {

/// The size of the group of the ranks that stay.
inline int shrink(Context& context, const std::vector<int>& exclude) { return context.world().shrink(exclude)->size(); }

/// The result of a call: "3" ranks, or why it failed.
template <typename Call>
std::string outcome_of(Call call) {
    try {
        return std::to_string(call());
    } catch (const Error& error) {
        return (error.code() == ErrorCode::Mismatch ? "" : "wrong code: ") + std::string(error.what());
    }
}

inline bool is_decision(std::string_view key, std::string_view value, std::string_view what) {
    return key.find("/shrink/journal/") != std::string_view::npos && value.starts_with(what);
}

}  // namespace ddp::testing
