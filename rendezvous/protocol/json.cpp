#include "rendezvous/protocol/json.hpp"

#include <optional>
#include <utility>
#include <variant>

#include "rendezvous/protocol/json_reader.hpp"
#include "rendezvous/protocol/json_writer.hpp"

namespace ddprun::protocol {
namespace {

namespace json = boost::json;

constexpr std::size_t kMaxDepth = 8;  // verdict, culprit, status, and room for members of later versions

template <typename Variant>
std::string encode_any(const Variant& message) {
    json::object object;
    std::visit(
        [&]<typename Message>(const Message& alternative) {
            object.emplace("type", kType<Message>);
            JsonWriter writer(object);
            visit_fields(alternative, writer);
        },
        message);
    return json::serialize(object);
}

/// Reads the alternative of Variant that is called `type`; nothing if there is none from `index` on.
template <typename Variant, std::size_t index = 0>
std::optional<Variant> read_message(std::string_view type, JsonReader& in) {
    if constexpr (index < std::variant_size_v<Variant>) {
        using Message = std::variant_alternative_t<index, Variant>;
        if (type != kType<Message>) return read_message<Variant, index + 1>(type, in);
        Message message;
        visit_fields(message, in);
        return message;
    }
    return std::nullopt;
}

template <typename Variant>
Result<Variant> decode_any(std::string_view text) {
    if (text.size() > kMaxMessageBytes) {
        return Error{Errc::kLimit,
                     fmt::format("a control message of {} bytes is larger than {}", text.size(), kMaxMessageBytes)};
    }
    boost::system::error_code code;
    json::parse_options options;
    options.max_depth = kMaxDepth;
    const json::value value = json::parse(text, code, {}, options);
    if (code) return Error{Errc::kMalformed, fmt::format("a control message is not JSON: {}", code.message())};
    std::optional<Error> problem;
    JsonReader in(value, "", problem);
    std::string type;
    in("type", type);
    std::optional<Variant> message;
    if (!problem) message = read_message<Variant>(type, in);
    if (!problem && !message) in.fail_at("type", "is unknown to this version");
    if (problem) return *std::move(problem);
    return *std::move(message);
}

}  // namespace

std::string encode(const AgentMessage& message) { return encode_any(message); }
std::string encode(const DaemonMessage& message) { return encode_any(message); }
Result<AgentMessage> decode_agent_message(std::string_view text) { return decode_any<AgentMessage>(text); }
Result<DaemonMessage> decode_daemon_message(std::string_view text) { return decode_any<DaemonMessage>(text); }

std::string to_json(const Verdict& verdict) {
    json::object object;
    JsonWriter writer(object);
    visit_fields(verdict, writer);
    return json::serialize(object);
}

}  // namespace ddprun::protocol
