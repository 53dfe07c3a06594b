#include "common/system/port_holder.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "common/system/tcp_table.hpp"
#include "common/text/cut.hpp"

namespace fs = std::filesystem;

namespace ddprun {
namespace {

/// Spells a numeric address as /proc/net/tcp (8 digits) or tcp6 (32 digits) does; empty for any other text.
std::string proc_spelling(const std::string& address) {
    std::array<std::uint32_t, 4> words{};
    std::size_t count = 0;
    if (::inet_pton(AF_INET, address.c_str(), words.data()) == 1)
        count = 1;
    else if (::inet_pton(AF_INET6, address.c_str(), words.data()) == 1)
        count = 4;
    std::string text;
    for (std::size_t i = 0; i < count; ++i) text += fmt::format("{:08X}", words[i]);
    return text;
}

bool is_all_zero(const std::string& spelling) { return spelling.find_first_not_of('0') == std::string::npos; }

/// Returns whether a listener at `held` prevents one at `wanted`. By default IPv6's wildcard covers IPv4 as well.
bool conflicts(const std::string& held, const std::string& wanted) {
    if (held == wanted) return true;
    if (is_all_zero(wanted) && wanted.size() == 32) return true;
    if (is_all_zero(held)) return held.size() == wanted.size() || held.size() == 32;
    return is_all_zero(wanted) && held.size() == wanted.size();
}

bool holds_socket(const fs::path& process, const std::string& link) {
    std::error_code ec;  // of a process that may not be inspected, or that has just ended
    for (fs::directory_iterator it(process / "fd", ec), end; !ec && it != end; it.increment(ec)) {
        std::error_code unreadable;
        if (fs::read_symlink(it->path(), unreadable) == link) return true;
    }
    return false;
}

std::optional<pid_t> process_with_socket(const std::string& inode) {
    const std::string link = fmt::format("socket:[{}]", inode);
    std::error_code ec;
    for (fs::directory_iterator it("/proc", ec), end; !ec && it != end; it.increment(ec)) {
        const std::string name = it->path().filename().string();
        if (name.find_first_not_of("0123456789") != std::string::npos) continue;
        if (holds_socket(it->path(), link)) return static_cast<pid_t>(std::stol(name));
    }
    return std::nullopt;
}

/// Returns the text of a file in /proc, cut after a word if it is long.
std::string first_words(const std::string& path) {
    constexpr std::size_t kMaxBytes = 120;  // enough to recognise a command
    std::ifstream file(path, std::ios::binary);
    std::string text(4 * kMaxBytes, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(file.gcount()));
    while (!text.empty() && (text.back() == '\0' || text.back() == '\n')) text.pop_back();
    // Arguments end with a zero byte, and control characters in them must not reach a terminal.
    std::ranges::replace_if(
        text, [](unsigned char c) { return c < 0x20 || c == 0x7f; }, ' ');
    if (text.size() <= kMaxBytes) return text;
    const auto blank = text.rfind(' ', kMaxBytes);
    if (blank == std::string::npos) return cut(text, kMaxBytes);
    return fmt::format("{} {}", text.substr(0, blank), kCutMark);
}

}  // namespace

std::optional<PortHolder> find_port_holder(const Endpoint& endpoint) {
    const std::string wanted = proc_spelling(endpoint.host);
    const auto sockets = tcp_table();
    const auto socket = std::ranges::find_if(sockets, [&](const TcpTableSocket& s) {
        return s.state == TCP_LISTEN && s.local.port == endpoint.port && conflicts(s.local.host, wanted);
    });
    if (socket == sockets.end()) return std::nullopt;
    PortHolder holder;
    holder.uid = socket->uid;
    holder.pid = process_with_socket(socket->inode);
    if (holder.pid) {
        holder.program = first_words(fmt::format("/proc/{}/comm", *holder.pid));
        holder.command = first_words(fmt::format("/proc/{}/cmdline", *holder.pid));
    }
    return holder;
}

std::string explain_port_in_use(const Endpoint& endpoint) {
    const auto holder = find_port_holder(endpoint);
    if (!holder)
        return "in use, perhaps by an outgoing connection. Choose another port (0: a free one), or try again later";
    return fmt::format("held by {}. End that process, or choose another port (0: a free one)", to_string(*holder));
}

std::string to_string(const PortHolder& holder) {
    if (!holder.pid) return fmt::format("a process of user {}", holder.uid);
    const std::string& command = holder.command.empty() ? holder.program : holder.command;
    if (holder.uid != ::geteuid()) return fmt::format("pid {} ({}) of user {}", *holder.pid, command, holder.uid);
    return fmt::format("pid {} ({})", *holder.pid, command);
}

}  // namespace ddprun
