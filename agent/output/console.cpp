#include "agent/output/console.hpp"

#include <sys/stat.h>

#include <algorithm>

namespace ddprun::agent {
namespace {

bool same_file(int a, int b) {
    struct stat one {};
    struct stat other {};
    return ::fstat(a, &one) == 0 && ::fstat(b, &other) == 0 && one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

}  // namespace

Console::Console(boost::asio::io_context& io, int out_fd, int err_fd) {
    places_[0] = std::make_shared<Place>(io, out_fd);
    places_[1] = same_file(out_fd, err_fd) ? places_[0] : std::make_shared<Place>(io, err_fd);
}

void Console::append(Stream stream, int source, const Segment& segment, std::string_view label) {
    if (segment.text.empty()) return;
    Place& to = place(stream);
    std::string_view text = segment.text;
    const bool continues = to.open_source == source && to.open_stream == stream;
    if (to.line_open && !continues && text.front() != '\r') to.outlet.append("\n");
    if (segment.starts_line && !label.empty()) {
        if (text.front() == '\r') {
            to.outlet.append("\r");
            text.remove_prefix(1);
        }
        to.outlet.append(label);
    }
    to.outlet.append(text);
    to.open_source = source;
    to.open_stream = stream;
    to.line_open = segment.text.back() != '\n' && segment.text.back() != '\r';
}

void Console::write(Stream stream, int source, const Segment& segment, std::string_view label) {
    append(stream, source, segment, label);
    push(stream);
}

bool Console::backlogged() const {
    return std::ranges::any_of(places_, [](const auto& p) { return p->outlet.waiting_bytes() > kBacklogBytes; });
}

std::size_t Console::drain(std::chrono::milliseconds patience) {
    std::size_t left_bytes = 0;
    for (const auto& p : places_) {
        p->outlet.drain(patience);
        left_bytes += p->outlet.waiting_bytes();
    }
    return left_bytes;
}

}  // namespace ddprun::agent
