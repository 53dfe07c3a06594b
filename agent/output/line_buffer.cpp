#include "agent/output/line_buffer.hpp"

#include <algorithm>
#include <cassert>

namespace ddprun::agent {

/// Returns the end of the segment of `text` that begins at `begin`, or `begin` if the segment is not complete yet. A
/// segment ends behind a '\n', before a '\r' that rewrites the line (neither its first character nor half of a "\r\n"),
/// or at the maximum length.
std::size_t LineBuffer::find_end(std::string_view text, std::size_t begin) {
    const std::size_t limit = std::min(text.size(), begin + kMaxLineBytes);
    const std::size_t from = std::max(begin, scanned_);
    if (newline_ < from) newline_ = text.find('\n', from);
    if (rewrite_ < std::max(from, begin + 1)) rewrite_ = text.find('\r', std::max(from, begin + 1));
    if (rewrite_ < std::min(newline_, limit)) {
        if (rewrite_ + 1 == text.size()) {
            scanned_ = rewrite_;  // the next byte decides
            return begin;
        }
        if (text[rewrite_ + 1] != '\n') return rewrite_;
    }
    if (newline_ < limit) return newline_ + 1;
    scanned_ = limit;
    return limit == begin + kMaxLineBytes ? limit : begin;
}

void LineBuffer::deliver(std::string_view text, const Sink& sink) {
    const bool rewrites = text.front() == '\r' && text != "\r\n";
    const bool completes_crlf = last_ == '\r' && text == "\n";
    sink(Segment{text, rewrites || last_ == '\n' || (last_ == '\r' && !completes_crlf)});
    last_ = text.back();
}

void LineBuffer::feed(std::string_view bytes, const Sink& sink, Unit unit) {
    if (!pending_.empty() && !bytes.empty()) {  // only the line that is open is copied
        const std::size_t end = std::min(bytes.find('\n'), bytes.size() - 1) + 1;
        pending_ += bytes.substr(0, end);
        bytes.remove_prefix(end);
        pending_.erase(0, scan(pending_, sink, unit));
    }
    if (bytes.empty()) return;
    assert(pending_.empty());  // it ended with a line end
    pending_ = bytes.substr(scan(bytes, sink, unit));
}

/// Delivers the segments of `text`, which begins where the latest one ended. Returns their size.
std::size_t LineBuffer::scan(std::string_view text, const Sink& sink, Unit unit) {
    newline_ = text.find('\n', scanned_);
    rewrite_ = text.find('\r', scanned_);
    std::size_t begin = 0;
    if (unit == Unit::kLines && rewrite_ == std::string_view::npos && newline_ != std::string_view::npos) {
        if (last_ != '\n' && newline_ < kMaxLineBytes) {  // the end of a line whose beginning was delivered
            begin = newline_ + 1;
            deliver(text.substr(0, begin), sink);
        }
        const std::size_t end = text.rfind('\n') + 1;
        if (end > begin && end - begin <= kMaxLineBytes) {
            deliver(text.substr(begin, end - begin), sink);
            begin = end;
        }
    }
    for (std::size_t end; (end = find_end(text, begin)) != begin; begin = end) {
        deliver(text.substr(begin, end - begin), sink);
    }
    const std::string_view rest = text.substr(begin);
    const bool is_progress = !rest.empty() && (rest.front() == '\r' || rest.back() == '\r');
    if (is_progress && progress_ == Progress::kShow) {
        deliver(rest, sink);
        begin = text.size();
    }
    scanned_ = scanned_ > begin ? scanned_ - begin : 0;
    return begin;
}

void LineBuffer::flush(const Sink& sink) {
    if (!pending_.empty()) deliver(pending_, sink);
    pending_.clear();
    scanned_ = 0;
}

}  // namespace ddprun::agent
