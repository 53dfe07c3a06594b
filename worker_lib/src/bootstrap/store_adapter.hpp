#pragma once
// The one place where the worker library touches the rendezvous: ddp::Store over a TCPStore client.

#include <chrono>
#include <memory>

#include "ddp/context.hpp"
#include "ddp/store.hpp"

namespace ddp::detail {

/// Connects to environment.master_addr:master_port. Throws Error{Timeout}. What takes longer than `patience` is said
/// once on stderr.
[[nodiscard]] std::shared_ptr<Store> connect_store(const Environment& environment, std::chrono::milliseconds timeout,
                                                   std::chrono::milliseconds patience = std::chrono::seconds(5));

}  // namespace ddp::detail
