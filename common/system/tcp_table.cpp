#include "common/system/tcp_table.hpp"

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
