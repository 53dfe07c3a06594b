#pragma once
// What the fuzz targets of the control messages share: the property of a message that is accepted, and a mutator that
// adds valid messages.

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "rendezvous/protocol/json.hpp"
#include "tests/fuzz/check.hpp"
#include "tests/unit/rendezvous/protocol/message_generator.hpp"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace ddprun::protocol {

template <typename Message>
Result<Message> decode(std::string_view text) {
    if constexpr (std::is_same_v<Message, AgentMessage>) {
        return decode_agent_message(text);
    } else {
        return decode_daemon_message(text);
    }
}

/// Checks a message that is accepted: it encodes to one that is accepted and encodes to the same text; to the same
/// message, unless a sender cuts a text of it.
template <typename Message>
void check_message(std::string_view text) {
    const Result<Message> message = decode<Message>(text);
    if (!message) return check(!message.error().message.empty(), "an error without a text");
    const std::string sent = encode(*message);
    check(sent.size() <= kMaxMessageBytes, "an encoded message is longer than the limit");
    const Result<Message> received = decode<Message>(sent);
    if (!received) return check(false, "an encoded message is refused: " + received.error().message + " in " + sent);
    check(encode(*received) == sent, "a message changes when it is sent on: " + sent);
    const bool may_be_cut = text.size() > kMaxNameBytes;
    check(may_be_cut || *received == *message, "a message changes when it is sent: " + sent);
}

/// Mutates the input, or replaces it by a valid message: chance alone makes few.
template <typename Message>
std::size_t mutate(std::uint8_t* data, std::size_t size, std::size_t max_size, unsigned int seed) {
    std::string text;
    if (seed % 64 == 0) {
        Generator generator(seed);
        if constexpr (std::is_same_v<Message, AgentMessage>) {
            text = encode(generator.agent_message());
        } else {
            text = encode(generator.daemon_message());
        }
    }
    if (text.empty() || text.size() > max_size) return LLVMFuzzerMutate(data, size, max_size);
    std::memcpy(data, text.data(), text.size());
    return text.size();
}

}  // namespace ddprun::protocol
