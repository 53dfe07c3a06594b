#pragma once
// ReplyScanner: finds the ends of the answers in a connection's bytes, in any split, without keeping them.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>

#include "tests/bench/store/protocol.hpp"

namespace ddprun::bench {

class ReplyScanner {
public:
    void expect(const Request& request) {
        for (const Expect& reply : request.replies) {
            if (reply.count > 0) queue_.push_back(reply);
        }
    }
    /// All expected answers have come.
    [[nodiscard]] bool complete() const { return queue_.empty(); }
    /// Throws when the bytes cannot be the expected answers, or redis says that it failed.
    void feed(std::string_view bytes);

private:
    std::size_t take_raw(std::string_view bytes);
    std::size_t take_length(std::string_view bytes);
    std::size_t take_line(std::string_view bytes);
    void finish_line();
    void finish_one();

    std::deque<Expect> queue_;
    std::string head_;        // of the answer that has begun: its length, or its line
    std::uint64_t skip_ = 0;  // what is left of its body
};

}  // namespace ddprun::bench
