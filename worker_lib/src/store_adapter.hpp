#pragma once
// The one place where the worker library touches the rendezvous: ddp::Store over a TCPStore client.

#include <memory>

#include "ddp/context.hpp"
#include "ddp/store.hpp"

namespace ddp::detail {

/// Connects to environment.master_addr:master_port. Throws Error{Timeout}.
[[nodiscard]] std::shared_ptr<Store> connect_store(const Environment& environment, std::chrono::milliseconds timeout);

}  // namespace ddp::detail
