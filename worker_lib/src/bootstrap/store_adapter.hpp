#pragma once
// TcpStore: a ddp::Store over the rendezvous' TCPStore client. Only this adapter uses the rendezvous in the worker
// library. Any thread may call it.

#include <chrono>
#include <memory>

#include "ddp/context.hpp"
#include "ddp/store.hpp"

namespace ddp::detail {

/// Connects to environment.master_addr:master_port. Throws Error{Timeout}. Reports once on stderr that it waits, after
/// `notice_after`.
[[nodiscard]] std::shared_ptr<Store> connect_store(const Environment& environment, std::chrono::milliseconds timeout,
                                                   std::chrono::milliseconds notice_after = std::chrono::seconds(5));

}  // namespace ddp::detail
