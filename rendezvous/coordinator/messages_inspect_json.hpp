#pragma once
// The messages of messages_inspect.hpp as JSON. Private to the encoders and decoders.

#include <boost/json.hpp>

#include "rendezvous/coordinator/messages_fields.hpp"
#include "rendezvous/coordinator/messages_inspect.hpp"

namespace ddprun::coordinator {

[[nodiscard]] boost::json::object fields(const Stalled& message);
[[nodiscard]] boost::json::object fields(const ShowBoards& message);
[[nodiscard]] boost::json::object fields(const ShownBoard& message);
[[nodiscard]] boost::json::object fields(const Notice& message);
[[nodiscard]] boost::json::object fields(const Inspect& message);
[[nodiscard]] boost::json::object fields(const Inspected& message);

[[nodiscard]] Stalled read_stalled(Fields& in);
[[nodiscard]] ShowBoards read_show_boards(Fields& in);
[[nodiscard]] ShownBoard read_shown_board(Fields& in);
[[nodiscard]] Notice read_notice(Fields& in);
[[nodiscard]] Inspect read_inspect(Fields& in);
[[nodiscard]] Inspected read_inspected(Fields& in);

}  // namespace ddprun::coordinator
