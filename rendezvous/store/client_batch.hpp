#pragma once
// Batch: several requests that go to the store in one write; it answers in order. For requests that are answered at
// once: a WAIT would be ended by the request after it. Pure.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/store/client_requests.hpp"

namespace ddprun::store {

class Batch {
public:
    /// What the store answers to one request.
    enum class Answers : std::uint8_t { kNothing, kByte, kNumber, kBytes };

    void set(std::string_view key, std::string_view value) {
        put(request_of(RequestKind::kSet, key, value), Answers::kNothing);
    }
    void append(std::string_view key, std::string_view value) {
        put(request_of(RequestKind::kAppend, key, value), Answers::kNothing);
    }
    /// Answer::number is the sum.
    void add(std::string_view key, std::int64_t amount) {
        put(request_of(RequestKind::kAdd, key, amount), Answers::kNumber);
    }
    /// Answer::bytes is the value. Only for a key that is there: without it PyTorch's servers end the connection, and
    /// others answer the empty value.
    void get(std::string_view key) { put(request_of(RequestKind::kGet, key), Answers::kBytes); }
    /// Answer::number is 0 if all of them are there, else 1.
    void check(std::span<const std::string> keys) { put(request_of(RequestKind::kCheck, keys), Answers::kByte); }
    /// Answer::number is 1 if it was there, else 0.
    void delete_key(std::string_view key) { put(request_of(RequestKind::kDeleteKey, key), Answers::kNumber); }

    [[nodiscard]] std::size_t size() const { return answers_.size(); }
    [[nodiscard]] const std::string& requests() const { return requests_; }
    [[nodiscard]] std::span<const Answers> answers() const { return answers_; }

private:
    void put(std::string_view request, Answers answer) {
        requests_ += request;
        answers_.push_back(answer);
    }
    std::string requests_;
    std::vector<Answers> answers_;
};

/// One for each request of the batch, empty where the store sends nothing.
struct Answer {
    std::string bytes;
    std::int64_t number = 0;
};

}  // namespace ddprun::store
