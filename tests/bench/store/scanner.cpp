#include "tests/bench/store/scanner.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <stdexcept>

#include "rendezvous/store/codec/wire.hpp"

namespace ddprun::bench {

void ReplyScanner::feed(std::string_view bytes) {
    while (!bytes.empty()) {
        if (queue_.empty()) throw std::runtime_error("the server sent more than was asked for");
        std::size_t taken = 0;
        if (skip_ > 0) {
            taken = std::min<std::uint64_t>(skip_, bytes.size());
            skip_ -= taken;
            if (skip_ == 0) finish_one();
        } else if (queue_.front().kind == Expect::Kind::kRaw) {
            taken = take_raw(bytes);
        } else if (queue_.front().kind == Expect::Kind::kBytes) {
            taken = take_length(bytes);
        } else {
            taken = take_line(bytes);
        }
        bytes.remove_prefix(taken);
    }
}

std::size_t ReplyScanner::take_raw(std::string_view bytes) {
    Expect& expect = queue_.front();
    const std::size_t taken = std::min<std::uint64_t>(expect.count, bytes.size());
    expect.count -= taken;
    if (expect.count == 0) queue_.pop_front();
    return taken;
}

std::size_t ReplyScanner::take_length(std::string_view bytes) {
    const std::size_t taken = std::min(sizeof(std::uint64_t) - head_.size(), bytes.size());
    head_.append(bytes.substr(0, taken));
    if (head_.size() == sizeof(std::uint64_t)) {
        skip_ = store::wire::load_number<std::uint64_t>(head_.data());
        head_.clear();
        if (skip_ > (std::uint64_t{1} << 32)) throw std::runtime_error("the server's answer is not the expected one");
        if (skip_ == 0) finish_one();
    }
    return taken;
}

std::size_t ReplyScanner::take_line(std::string_view bytes) {
    const std::size_t end = bytes.find('\n');
    const std::size_t taken = end == std::string_view::npos ? bytes.size() : end + 1;
    head_.append(bytes.substr(0, taken));
    if (end != std::string_view::npos) finish_line();
    return taken;
}

void ReplyScanner::finish_line() {
    std::int64_t number = 0;
    std::from_chars(head_.data() + 1, head_.data() + head_.size(), number);
    const char type = head_.front();
    if (type == '-') throw std::runtime_error(fmt::format("redis refused a request: {}", head_));
    if (type != '$' && type != '*' && type != ':' && type != '+') {
        throw std::runtime_error("the server's answer is not redis'");
    }
    head_.clear();
    if (type == '$' && number >= 0) {
        skip_ = std::uint64_t(number) + 2;  // the value and its line end
        return;
    }
    if (type == '*' && number > 0)
        queue_.front().count += std::uint64_t(number);  // its elements are replies themselves
    finish_one();
}

void ReplyScanner::finish_one() {
    if (--queue_.front().count == 0) queue_.pop_front();
}

}  // namespace ddprun::bench
