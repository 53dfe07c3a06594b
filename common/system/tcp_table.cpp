#include "common/system/tcp_table.hpp"

#include <arpa/inet.h>

#include <array>
#include <cstddef>
#include <fstream>
#include <optional>
#include <sstream>

namespace ddprun {
namespace {

std::optional<TcpTableAddress> parse_address(const std::string& text) {
    const auto colon = text.find(':');
    if (colon == std::string::npos) return std::nullopt;
    return TcpTableAddress{text.substr(0, colon),
                           static_cast<std::uint16_t>(std::stoul(text.substr(colon + 1), nullptr, 16))};
}

}  // namespace

std::string numeric_host(const TcpTableAddress& address) {
    constexpr std::size_t kDigits = 8;  // of a word
    std::array<std::uint32_t, 4> words{};
    const std::size_t count = address.host.size() / kDigits;
    if (address.host.size() % kDigits != 0 || (count != 1 && count != words.size())) return "";
    for (std::size_t i = 0; i < count; ++i)
        words[i] = static_cast<std::uint32_t>(std::stoul(address.host.substr(i * kDigits, kDigits), nullptr, 16));
    const bool is_mapped = count == words.size() && words[0] == 0 && words[1] == 0 && words[2] == htonl(0xffff);
    std::array<char, INET6_ADDRSTRLEN> text{};
    const bool is_v4 = count == 1 || is_mapped;
    ::inet_ntop(is_v4 ? AF_INET : AF_INET6, is_mapped ? &words[3] : words.data(), text.data(), text.size());
    return text.data();
}

std::vector<TcpTableSocket> tcp_table() {
    std::vector<TcpTableSocket> sockets;
    for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
        std::ifstream file(table);
        std::string line;
        std::getline(file, line);  // the heading
        while (std::getline(file, line)) {
            std::istringstream fields(line);
            std::string slot, local, remote, state, queues, timer, retransmits, uid, timeout, inode;
            fields >> slot >> local >> remote >> state >> queues >> timer >> retransmits >> uid >> timeout >> inode;
            if (!fields) continue;
            const auto local_end = parse_address(local);
            const auto remote_end = parse_address(remote);
            if (!local_end || !remote_end) continue;
            sockets.push_back(
                {*local_end, *remote_end, std::stoi(state, nullptr, 16), static_cast<uid_t>(std::stoul(uid)), inode});
        }
    }
    return sockets;
}

}  // namespace ddprun
