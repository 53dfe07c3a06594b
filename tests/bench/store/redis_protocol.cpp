#include <fmt/format.h>

#include <initializer_list>

#include "tests/bench/store/protocol.hpp"

namespace ddprun::bench {
namespace {

Request command(std::span<const std::string_view> words) {
    Request request{.bytes = fmt::format("*{}\r\n", words.size()), .replies = {{Expect::Kind::kResp, 1}}};
    for (const std::string_view word : words) {
        request.bytes.append(fmt::format("${}\r\n", word.size())).append(word).append("\r\n");
    }
    return request;
}

Request command(std::initializer_list<std::string_view> words) {
    return command(std::span(words.begin(), words.size()));
}

class RedisProtocol final : public Protocol {
public:
    Request add(std::string_view key) const override { return command({"INCR", key}); }
    Request set(std::string_view key, std::string_view value) const override { return command({"SET", key, value}); }
    Request check(std::string_view key) const override { return command({"EXISTS", key}); }
    Request get(std::string_view key, std::size_t) const override { return command({"GET", key}); }
    // Redis has no wait for a key; its blocking request is a pop from a list, which takes one element for each waiter.
    Request block(std::string_view key) const override { return command({"BLPOP", std::string(key) + "/list", "0"}); }
    Request release(std::string_view key, std::size_t waiters) const override {
        const std::string list = std::string(key) + "/list";
        std::vector<std::string_view> words{"RPUSH", list};
        words.insert(words.end(), waiters, "1");
        return command(words);
    }
    Request multi_get(std::span<const std::string> keys, std::size_t) const override {
        std::vector<std::string_view> words{"MGET"};
        words.insert(words.end(), keys.begin(), keys.end());
        Request request = command(words);
        request.operations = keys.size();
        return request;
    }
};

}  // namespace

std::unique_ptr<Protocol> make_redis_protocol() { return std::make_unique<RedisProtocol>(); }

}  // namespace ddprun::bench
