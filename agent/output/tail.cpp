#include "agent/output/tail.hpp"

#include "common/text/utf8.hpp"

namespace ddprun::agent {
namespace {

constexpr std::string_view kTraceback = "Traceback (most recent call last):";

}  // namespace

void Tail::append(std::string_view bytes) {
    for (const char c : bytes) {
        if (c == '\n') {
            if (current_.starts_with(kTraceback)) ++tracebacks_;
            finished_.push_back(std::move(current_));
            if (finished_.size() > kMaxLines) finished_.pop_front();
            current_.clear();
            rewrite_ = false;
        } else if (c == '\r') {
            rewrite_ = true;
        } else {
            if (rewrite_) current_.clear();
            rewrite_ = false;
            if (current_.size() <= kMaxLineBytes)
                current_ += c;  // keeps one byte more than is shown, so that the cut is marked
        }
    }
}

std::vector<std::string> Tail::lines() const {
    std::vector<std::string> result;
    for (const std::string& line : finished_) result.push_back(printable(line, kMaxLineBytes));
    if (!current_.empty()) result.push_back(printable(current_, kMaxLineBytes));
    if (result.size() > kMaxLines) result.erase(result.begin());
    return result;
}

}  // namespace ddprun::agent
