#pragma once
// LocalStore: a Store inside this process, for a world of one rank that no launcher started, and for ranks that are
// threads of one test. Any thread may call it.

#include <memory>
#include <string>

#include "ddp/store.hpp"

namespace ddp::detail {

/// Returns an empty store whose local_address() is `address`.
[[nodiscard]] std::shared_ptr<Store> make_local_store(std::string address = "127.0.0.1");

}  // namespace ddp::detail
