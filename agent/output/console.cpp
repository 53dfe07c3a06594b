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
    outputs_[0] = std::make_shared<Output>(io, out_fd);
    outputs_[1] = same_file(out_fd, err_fd) ? outputs_[0] : std::make_shared<Output>(io, err_fd);
}

void Console::append(Stream stream, int source, const Segment& segment, std::string_view label) {
    if (segment.text.empty()) return;
    Output& to = output(stream);
    std::string_view text = segment.text;
    const bool continues = to.open_source == source && to.open_stream == stream;
    if (to.line_open && !continues && text.front() != '\r') to.sink.append("\n");
    if (segment.starts_line && !label.empty()) {
        if (text.front() == '\r') {
            to.sink.append("\r");
            text.remove_prefix(1);
        }
        to.sink.append(label);
    }
    to.sink.append(text);
    to.open_source = source;
    to.open_stream = stream;
    to.line_open = segment.text.back() != '\n' && segment.text.back() != '\r';
}

void Console::write(Stream stream, int source, const Segment& segment, std::string_view label) {
    append(stream, source, segment, label);
    push(stream);
}

bool Console::backlogged() const {
    return std::ranges::any_of(outputs_, [](const auto& p) { return p->sink.waiting_bytes() > kBacklogBytes; });
}

std::size_t Console::drain(std::chrono::milliseconds timeout) {
    std::size_t left_bytes = 0;
    for (const auto& p : outputs_) {
        p->sink.drain(timeout);
        left_bytes += p->sink.waiting_bytes();
    }
    return left_bytes;
}

}  // namespace ddprun::agent
