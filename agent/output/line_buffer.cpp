#include "agent/output/line_buffer.hpp"

#include <algorithm>

namespace ddprun::agent {

/// Returns the end of the segment that begins at `begin`, or `begin` if the segment is not complete yet. A segment ends
/// behind a '\n', before a '\r' that rewrites the line (neither its first character nor half of a "\r\n"), or at the
/// maximum length.
std::size_t LineBuffer::find_end(std::size_t begin) {
    const std::size_t limit = std::min(pending_.size(), begin + kMaxLineBytes);
    const std::size_t from = std::max(begin, scanned_);
    if (newline_ < from) newline_ = pending_.find('\n', from);
    const std::size_t newline = newline_ < limit ? newline_ : std::string::npos;
    const std::string_view line(pending_.data(), std::min(newline, limit));
    const std::size_t rewrite = line.find('\r', std::max(from, begin + 1));
    if (rewrite != std::string_view::npos) {
        if (rewrite + 1 == pending_.size()) {
            scanned_ = rewrite;  // the next byte decides
            return begin;
        }
        if (pending_[rewrite + 1] != '\n') return rewrite;
    }
    if (newline != std::string_view::npos) return newline + 1;
    scanned_ = limit;
    return limit == begin + kMaxLineBytes ? limit : begin;
}

void LineBuffer::deliver(std::string_view text, const Sink& sink) {
    const bool rewrites = text.front() == '\r' && text != "\r\n";
    const bool completes_crlf = last_ == '\r' && text == "\n";
    sink(Segment{text, rewrites || last_ == '\n' || (last_ == '\r' && !completes_crlf)});
    last_ = text.back();
}

void LineBuffer::feed(std::string_view bytes, const Sink& sink) {
    pending_ += bytes;
    newline_ = pending_.find('\n', scanned_);
    std::size_t begin = 0;
    for (std::size_t end; (end = find_end(begin)) != begin; begin = end) {
        deliver(std::string_view(pending_).substr(begin, end - begin), sink);
    }
    const std::string_view rest = std::string_view(pending_).substr(begin);
    const bool is_progress = !rest.empty() && (rest.front() == '\r' || rest.back() == '\r');
    if (is_progress && progress_ == Progress::kShow) {
        deliver(rest, sink);
        begin = pending_.size();
    }
    pending_.erase(0, begin);
    scanned_ = scanned_ > begin ? scanned_ - begin : 0;
}

void LineBuffer::flush(const Sink& sink) {
    if (!pending_.empty()) deliver(pending_, sink);
    pending_.clear();
    scanned_ = 0;
}

}  // namespace ddprun::agent
