#include "agent/output/line_filter.hpp"

#include <algorithm>

namespace ddprun::agent {

void LineFilter::feed(std::string_view bytes, std::string_view stamp) {
    stamp_ = stamp;
    segments_.feed(bytes, [this](const Segment& segment) { take(segment); });
}

void LineFilter::finish() {
    segments_.flush([this](const Segment& segment) { take(segment); });
    end_line();
    file_.close();
}

void LineFilter::take(const Segment& segment) {
    std::string_view text = segment.text;
    if (segment.starts_line) line_.clear();
    const bool ends = text.ends_with('\n');
    if (ends) text.remove_suffix(1);
    if (text.ends_with('\r')) text.remove_suffix(1);
    if (text.starts_with('\r')) text.remove_prefix(1);
    line_ += text.substr(0, kMaxLineBytes - line_.size());
    if (ends) end_line();
}

void LineFilter::end_line() {
    const auto is_in_line = [this](const std::string& text) { return line_.find(text) != std::string::npos; };
    if (!line_.empty() && std::ranges::any_of(texts_, is_in_line)) file_.write(stamp_ + label_ + line_ + "\n");
    line_.clear();
}

}  // namespace ddprun::agent
