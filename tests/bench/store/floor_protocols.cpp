// The floors: what the kernel alone costs. Echo sends the bytes that the TCPStore protocol would and gets them back;
// plain moves large values between a bare sender and a bare receiver (serve_plain.cpp has its layout); gate answers
// when a store would, for clients that wait for each other.
#include "rendezvous/store/codec/wire.hpp"
#include "tests/bench/store/protocol.hpp"
#include "tests/bench/store/serve.hpp"

namespace ddprun::bench {
namespace {

class EchoProtocol final : public Protocol {
public:
    Request add(std::string_view key) const override { return echoed(store_->add(key)); }
    Request set(std::string_view key, std::string_view value) const override { return echoed(store_->set(key, value)); }
    Request check(std::string_view key) const override { return echoed(store_->check(key)); }
    Request get(std::string_view key, std::size_t value_bytes) const override {
        Request request = echoed(store_->get(key, value_bytes));
        // As many bytes there and back as the longer of a store's request and reply.
        if (request.bytes.size() < value_bytes) request.bytes.resize(value_bytes);
        return echoed(std::move(request));
    }
    Request release(std::string_view key, std::size_t waiters) const override {
        return echoed(store_->release(key, waiters));
    }
    Request multi_get(std::span<const std::string> keys, std::size_t value_bytes) const override {
        return echoed(store_->multi_get(keys, value_bytes));
    }
    Request barrier(std::string_view key, std::size_t clients) const override {
        return echoed(store_->barrier(key, clients));
    }

private:
    static Request echoed(Request request) {
        request.replies = {{Expect::Kind::kRaw, request.bytes.size()}};
        return request;
    }

    std::unique_ptr<Protocol> store_ = make_modern_tcpstore_protocol();
};

class PlainProtocol final : public Protocol {
public:
    Request add(std::string_view) const override { return order('S', 0, 1); }
    Request set(std::string_view, std::string_view value) const override {
        Request request = order('S', value.size(), 1);
        request.bytes.append(value);
        return request;
    }
    Request check(std::string_view) const override { return order('S', 0, 1); }
    Request get(std::string_view, std::size_t value_bytes) const override {
        return order('G', value_bytes, value_bytes);
    }
    Request release(std::string_view, std::size_t) const override { return {}; }
    Request multi_get(std::span<const std::string>, std::size_t) const override { return {}; }

private:
    static Request order(char code, std::size_t bytes, std::size_t reply_bytes) {
        Request request{.bytes = std::string(1, code), .replies = {{Expect::Kind::kRaw, reply_bytes}}};
        store::wire::append_number<std::uint64_t>(request.bytes, bytes);
        return request;
    }
};

class GateProtocol final : public Protocol {
public:
    Request add(std::string_view) const override { return message(GateCode::kAnswer, 8); }
    Request set(std::string_view, std::string_view) const override { return message(GateCode::kAnswer, 8); }
    Request check(std::string_view) const override { return message(GateCode::kWait, 1); }
    Request get(std::string_view, std::size_t) const override { return message(GateCode::kAnswer, 8); }
    Request release(std::string_view, std::size_t) const override { return message(GateCode::kOpen, 0); }
    Request multi_get(std::span<const std::string>, std::size_t) const override { return {}; }
    Request barrier(std::string_view, std::size_t clients) const override {
        return message(GateCode::kMeet, 1, clients);
    }

private:
    static Request message(GateCode code, std::size_t reply_bytes, std::size_t clients = 0) {
        const GateMessage text{.code = code, .clients = std::uint32_t(clients), .padding = {}};
        Request request{.bytes = std::string(reinterpret_cast<const char*>(&text), sizeof(text)), .replies = {}};
        if (reply_bytes > 0) request.replies = {{Expect::Kind::kRaw, reply_bytes}};
        return request;
    }
};

}  // namespace

std::unique_ptr<Protocol> make_gate_protocol() { return std::make_unique<GateProtocol>(); }
std::unique_ptr<Protocol> make_echo_protocol() { return std::make_unique<EchoProtocol>(); }
std::unique_ptr<Protocol> make_plain_protocol() { return std::make_unique<PlainProtocol>(); }

Request join(std::span<const Request> requests) {
    Request joined{.operations = 0};
    for (const Request& request : requests) {
        joined.bytes += request.bytes;
        joined.operations += request.operations;
        for (const Expect& expect : request.replies) {
            // A run of equal shapes is one shape: finding the end of many small answers costs the client nothing.
            if (!joined.replies.empty() && joined.replies.back().kind == expect.kind) {
                joined.replies.back().count += expect.count;
            } else {
                joined.replies.push_back(expect);
            }
        }
    }
    return joined;
}

}  // namespace ddprun::bench
