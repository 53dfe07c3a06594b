#include "rendezvous/store/codec/wire.hpp"
#include "tests/bench/store/protocol.hpp"

namespace ddprun::bench {
namespace {

using store::wire::append_bytes;
using store::wire::append_number;

/// The code bytes of a dialect (docs/protocol.md). 0 where the dialect has no such request.
struct Codes {
    bool modern;
    char set, get, add, wait, multi_get, barrier;
};
constexpr Codes kOld{.modern = false, .set = 0, .get = 2, .add = 3, .wait = 5, .multi_get = 0, .barrier = 0};
constexpr Codes kModern{.modern = true, .set = 1, .get = 3, .add = 4, .wait = 6, .multi_get = 10, .barrier = 18};

class TcpStoreProtocol final : public Protocol {
public:
    explicit TcpStoreProtocol(const Codes& codes) : codes_(codes) {}

    std::string greeting() const override {
        std::string bytes;
        if (codes_.modern) append_number<std::uint32_t>(bytes.append(1, '\0'), store::wire::kMagic);
        return bytes;
    }

    Request add(std::string_view key) const override {
        Request request = start(codes_.add, {{Expect::Kind::kRaw, sizeof(std::int64_t)}});
        append_bytes(request.bytes, key);
        append_number<std::int64_t>(request.bytes, 1);
        return request;
    }

    Request set(std::string_view key, std::string_view value) const override {
        Request request = start(codes_.set, {});
        append_bytes(request.bytes, key);
        append_bytes(request.bytes, value);
        return request;
    }

    Request check(std::string_view key) const override {
        Request request = start(codes_.wait, {{Expect::Kind::kRaw, 1}});
        append_number<std::uint64_t>(request.bytes, 1);
        append_bytes(request.bytes, key);
        return request;
    }

    Request get(std::string_view key, std::size_t /*value_bytes*/) const override {
        Request request = start(codes_.get, {{Expect::Kind::kBytes, 1}});
        append_bytes(request.bytes, key);
        return request;
    }

    Request release(std::string_view key, std::size_t /*waiters*/) const override { return set(key, "1"); }

    Request multi_get(std::span<const std::string> keys, std::size_t /*value_bytes*/) const override {
        if (codes_.multi_get == 0) return {};
        Request request = start(codes_.multi_get, {{Expect::Kind::kBytes, keys.size()}});
        append_number<std::uint64_t>(request.bytes, keys.size());
        for (const std::string& key : keys) append_bytes(request.bytes, key);
        request.operations = keys.size();
        return request;
    }

    Request barrier(std::string_view key, std::size_t clients) const override {
        if (codes_.barrier == 0) return {};
        Request request = start(codes_.barrier, {{Expect::Kind::kRaw, 1}});
        append_bytes(request.bytes, key);
        append_number<std::int64_t>(request.bytes, std::int64_t(clients));
        return request;
    }

private:
    static Request start(char code, std::vector<Expect> replies) {
        return {.bytes = std::string(1, code), .replies = std::move(replies)};
    }

    Codes codes_;
};

}  // namespace

std::unique_ptr<Protocol> make_old_tcpstore_protocol() { return std::make_unique<TcpStoreProtocol>(kOld); }
std::unique_ptr<Protocol> make_modern_tcpstore_protocol() { return std::make_unique<TcpStoreProtocol>(kModern); }

}  // namespace ddprun::bench
