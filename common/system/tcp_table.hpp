#pragma once
// Reads the TCP sockets of this network namespace from /proc/net/tcp and tcp6.

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ddprun {

/// One end of a TCP connection, as /proc/net/tcp writes it.
struct TcpTableAddress {
    std::string host;  ///< 32-bit words in hexadecimal, each in the machine's byte order: 8 digits (IPv4) or 32
    std::uint16_t port = 0;
    bool operator==(const TcpTableAddress&) const = default;
};

/// Returns the address as it is written for people, without the port: IPv4 is never written as IPv6. Empty: malformed.
[[nodiscard]] std::string numeric_host(const TcpTableAddress& address);

/// A line of the table.
struct TcpTableSocket {
    TcpTableAddress local;
    TcpTableAddress remote;
    int state = 0;      ///< TCP_ESTABLISHED, TCP_LISTEN, … of <netinet/tcp.h>
    uid_t uid = 0;      ///< the owner; 0 as well if no process has the socket any more
    std::string inode;  ///< "0" if no process has the socket
};

/// Returns all sockets; none if /proc cannot be read. Costs about a microsecond for each socket of the machine.
[[nodiscard]] std::vector<TcpTableSocket> tcp_table();

}  // namespace ddprun
