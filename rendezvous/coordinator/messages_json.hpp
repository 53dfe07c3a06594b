#pragma once
// Messages as JSON text, one object per message: {"type":"join", …}. Pure. Unknown members are ignored, so that a field
// can be added without a new protocol version; a missing or mistyped one is an error that names it.

#include <cstddef>
#include <string>
#include <string_view>

#include "common/error.hpp"
#include "rendezvous/coordinator/messages.hpp"

namespace ddprun::coordinator {

/// A longer message is refused before it is parsed, and never sent.
inline constexpr std::size_t kMaxMessageBytes = 8u << 20;

[[nodiscard]] std::string encode(const AgentMessage& message);
[[nodiscard]] std::string encode(const DaemonMessage& message);

/// Errors: Errc::kMalformed naming the member, Errc::kLimit for more than kMaxMessageBytes.
[[nodiscard]] Result<AgentMessage> decode_agent_message(std::string_view text);
[[nodiscard]] Result<DaemonMessage> decode_daemon_message(std::string_view text);

/// The verdict alone, as `ddprun` writes it for schedulers.
[[nodiscard]] std::string to_json(const Verdict& verdict);

}  // namespace ddprun::coordinator
