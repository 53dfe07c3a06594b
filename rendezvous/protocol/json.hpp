#pragma once
// Encodes and decodes messages as JSON text, one object per message: {"type":"join", …}, with the members of
// field_table.hpp. Pure. Unknown members are ignored, so that a field can be added without a new protocol version. A
// missing or mistyped member is an error that names it.

#include <cstddef>
#include <string>
#include <string_view>

#include "common/error.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::protocol {

/// Maximum size of a message. A longer one is refused before it is parsed, and never sent. The channel has the same
/// limit, transport::kMaxMessageBytes: change both.
inline constexpr std::size_t kMaxMessageBytes = 8u << 20;
/// Longest text of one member. A sender cuts what is longer and marks the cut with "…"; a receiver refuses it.
inline constexpr std::size_t kMaxTextBytes = 64u << 10;
/// Total size of a list of texts (last lines, host names). A sender leaves out the oldest last lines and the last host
/// names. With every byte escaped this still fits into kMaxMessageBytes.
inline constexpr std::size_t kMaxListBytes = 1u << 20;

// Workers may write any bytes. Those that are not UTF-8 are sent as U+FFFD. Control characters travel escaped and
// arrive unchanged; a program that prints a text escapes them again.

/// Return the message as JSON text, with texts and lists cut to their limits.
[[nodiscard]] std::string encode(const AgentMessage& message);
[[nodiscard]] std::string encode(const DaemonMessage& message);

/// Reads a message. Errors: Errc::kMalformed naming the member, Errc::kLimit for more than kMaxMessageBytes.
[[nodiscard]] Result<AgentMessage> decode_agent_message(std::string_view text);
[[nodiscard]] Result<DaemonMessage> decode_daemon_message(std::string_view text);

/// Returns the verdict alone, as `ddprun` writes it for schedulers.
[[nodiscard]] std::string to_json(const Verdict& verdict);

}  // namespace ddprun::protocol
