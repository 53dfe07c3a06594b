#include "worker_lib/src/checkpoint/together.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <exception>
#include <vector>

#include "ddp/error.hpp"

namespace ddp::detail {
namespace {

void broadcast(ProcessGroup& group, Buffer buffer, int root, std::string_view label) {
    group.broadcast(buffer, root, {.timeout = kDiskTimeout, .label = label}).wait();
}

std::string broadcast_text(ProcessGroup& group, const std::string& mine, int root, std::string_view label) {
    std::uint64_t length = mine.size();
    broadcast(group, length, root, label);
    std::vector<std::uint8_t> bytes(mine.begin(), mine.end());
    bytes.resize(length);
    broadcast(group, bytes, root, label);
    return {bytes.begin(), bytes.end()};
}

}  // namespace

void together(ProcessGroup& group, std::string_view label, const std::function<void()>& action) {
    std::string text;
    auto code = static_cast<std::uint64_t>(ErrorCode::Io);
    bool failed = true;
    try {
        action();
        failed = false;
    } catch (const Error& error) {
        code = static_cast<std::uint64_t>(error.code());
        text = error.what();
    } catch (const std::exception& error) {
        text = fmt::format("checkpoint: {}", error.what());
    }
    int first = failed ? group.rank() : group.size();
    group.all_reduce(first, ReduceOp::Min, {.timeout = kDiskTimeout, .label = label}).wait();
    if (first == group.size()) return;
    broadcast(group, code, first, label);
    text = broadcast_text(group, text, first, label);
    throw Error(static_cast<ErrorCode>(code), text);
}

std::string on_rank_0(ProcessGroup& group, std::string_view label, const std::function<std::string()>& action) {
    std::string result;
    together(group, label, [&] {
        if (group.rank() == 0) result = action();
    });
    return broadcast_text(group, result, 0, label);
}

}  // namespace ddp::detail
