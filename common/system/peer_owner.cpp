#include "common/system/peer_owner.hpp"

#include <fmt/format.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "common/system/tcp_table.hpp"

namespace ddprun {
namespace {

constexpr std::size_t kAnswerBytes = 1024;  // one socket or route with all its attributes needs less

UniqueFd netlink_socket(int protocol) {
    UniqueFd netlink(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol));
    const sockaddr_nl kernel{.nl_family = AF_NETLINK, .nl_pad = 0, .nl_pid = 0, .nl_groups = 0};
    // Connected: messages of other processes are not received.
    if (!netlink || ::connect(netlink.get(), reinterpret_cast<const sockaddr*>(&kernel), sizeof kernel) != 0) return {};
    return netlink;
}

const sockaddr_in& v4(const sockaddr_storage& address) { return reinterpret_cast<const sockaddr_in&>(address); }
const sockaddr_in6& v6(const sockaddr_storage& address) { return reinterpret_cast<const sockaddr_in6&>(address); }

/// Returns an IPv4 address of an IPv6 socket as plain IPv4: the kernel finds the sockets of both kinds by that.
sockaddr_storage unmapped(const sockaddr_storage& address) {
    if (address.ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&v6(address).sin6_addr)) return address;
    sockaddr_storage plain{};
    auto& out = reinterpret_cast<sockaddr_in&>(plain);
    out.sin_family = AF_INET;
    out.sin_port = v6(address).sin6_port;
    std::memcpy(&out.sin_addr, &v6(address).sin6_addr.s6_addr[12], sizeof out.sin_addr);
    return plain;
}

bool same_host(const sockaddr_storage& a, const sockaddr_storage& b) {
    if (a.ss_family == AF_INET) return v4(a).sin_addr.s_addr == v4(b).sin_addr.s_addr;
    return IN6_ARE_ADDR_EQUAL(&v6(a).sin6_addr, &v6(b).sin6_addr);
}

bool is_loopback(const sockaddr_storage& address) {
    if (address.ss_family == AF_INET) return ntohl(v4(address).sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&v6(address).sin6_addr);
}

/// Writes address and port of one end as socket diagnostics have them.
void put(const sockaddr_storage& from, __be32 (&address)[4], __be16& port) {
    if (from.ss_family == AF_INET) {
        address[0] = v4(from).sin_addr.s_addr;
        port = v4(from).sin_port;
    } else {
        std::memcpy(address, &v6(from).sin6_addr, sizeof v6(from).sin6_addr);
        port = v6(from).sin6_port;
    }
}

/// Returns the spellings of /proc/net/tcp for an address: of an IPv4 one as that of an IPv6 socket as well.
std::array<TcpTableAddress, 2> spellings(const sockaddr_storage& address) {
    if (address.ss_family == AF_INET) {
        const std::string digits = fmt::format("{:08X}", v4(address).sin_addr.s_addr);
        const std::uint16_t port = ntohs(v4(address).sin_port);
        const std::string mapped = fmt::format("{:08X}{:08X}{:08X}", 0, 0, htonl(0xffff));
        return {TcpTableAddress{digits, port}, TcpTableAddress{mapped + digits, port}};
    }
    std::string digits;
    for (const std::uint32_t word : v6(address).sin6_addr.s6_addr32) digits += fmt::format("{:08X}", word);
    return {TcpTableAddress{digits, ntohs(v6(address).sin6_port)}, TcpTableAddress{}};
}

/// Returns whether a socket in this state may belong to a connection whose other end has not been closed. A listening
/// socket, which the kernel finds if there is no connection, does not; nor does one that is only connecting.
bool is_connected(int state) { return state == TCP_ESTABLISHED || state == TCP_FIN_WAIT1 || state == TCP_FIN_WAIT2; }

}  // namespace

bool is_own_or_remote(const PeerOwner& owner) {
    if (owner.kind == PeerOwner::Kind::kOtherHost) return true;
    return owner.kind == PeerOwner::Kind::kUser && owner.uid == ::geteuid();
}

std::string to_string(const PeerOwner& owner) {
    if (owner.kind == PeerOwner::Kind::kUser) return fmt::format("a process of user {}", owner.uid);
    return owner.kind == PeerOwner::Kind::kUnknown ? "a process that has closed its socket" : "another host";
}

PeerOwners::PeerOwners() : sockets_(netlink_socket(NETLINK_SOCK_DIAG)), routes_(netlink_socket(NETLINK_ROUTE)) {}

PeerOwner PeerOwners::find(int socket) {
    Connection ours;
    const auto address = [socket](auto get, sockaddr_storage& out) {
        socklen_t size = sizeof out;
        if (get(socket, reinterpret_cast<sockaddr*>(&out), &size) != 0) return false;
        out = unmapped(out);
        return true;
    };
    if (!address(::getsockname, ours.local) || !address(::getpeername, ours.remote)) return {};
    Connection theirs{.local = ours.remote, .remote = ours.local};
    Found found = look_up(theirs);
    if (!found.any) {
        if (!same_host(ours.local, ours.remote) && !is_own_address(theirs.local)) return {PeerOwner::Kind::kOtherHost};
        // The kernel has the same answer for "no such socket" and "no diagnostics here". Our end exists.
        if (look_up(ours).any) return {};
        found = look_up_in_table(theirs);
    }
    // If our end is still connected, no later connection can have taken these addresses before they were looked up.
    if (!found.open || !address(::getpeername, ours.remote)) return {};
    return {PeerOwner::Kind::kUser, found.uid};
}

PeerOwner PeerOwners::find(const sockaddr_storage& local, const sockaddr_storage& remote) {
    const Connection connection{unmapped(local), unmapped(remote)};
    const Found found = look_up(connection);
    return found.open ? PeerOwner{PeerOwner::Kind::kUser, found.uid} : PeerOwner();
}

PeerOwners::Found PeerOwners::look_up_in_table(const Connection& connection) {
    Found found;
    const auto is = [](const TcpTableAddress& end, const sockaddr_storage& wanted) {
        return std::ranges::count(spellings(wanted), end) > 0;
    };
    for (const TcpTableSocket& line : tcp_table()) {
        if (!is(line.local, connection.local) || !is(line.remote, connection.remote)) continue;
        found = {true, line.inode != "0" && is_connected(line.state), line.uid};
    }
    return found;
}

PeerOwners::Found PeerOwners::look_up(const Connection& connection) {
    struct {
        nlmsghdr header;
        inet_diag_req_v2 body;
    } request{};
    request.header.nlmsg_len = sizeof request;
    request.header.nlmsg_type = SOCK_DIAG_BY_FAMILY;
    request.header.nlmsg_flags = NLM_F_REQUEST;
    request.header.nlmsg_seq = ++sequence_;
    request.body.sdiag_family = static_cast<__u8>(connection.local.ss_family);
    request.body.sdiag_protocol = IPPROTO_TCP;
    request.body.idiag_states = ~0u;
    inet_diag_sockid& id = request.body.id;
    put(connection.local, id.idiag_src, id.idiag_sport);
    put(connection.remote, id.idiag_dst, id.idiag_dport);
    if (connection.local.ss_family == AF_INET6) id.idiag_if = v6(connection.local).sin6_scope_id;
    id.idiag_cookie[0] = id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;

    alignas(nlmsghdr) std::array<char, kAnswerBytes> answer{};
    const std::size_t size = ask(sockets_, &request, sizeof request, sequence_, answer.data(), answer.size());
    const auto* const header = reinterpret_cast<const nlmsghdr*>(answer.data());
    if (size < NLMSG_LENGTH(sizeof(inet_diag_msg)) || header->nlmsg_type != SOCK_DIAG_BY_FAMILY) return {};
    const auto* const socket = static_cast<const inet_diag_msg*>(NLMSG_DATA(header));
    // A listening socket has no remote port. A socket without an inode has no owner: its process has closed it, and the
    // kernel may say that its user is root.
    const bool is_it = socket->id.idiag_sport == id.idiag_sport && socket->id.idiag_dport == id.idiag_dport;
    return {is_it, is_it && socket->idiag_inode != 0 && is_connected(socket->idiag_state), socket->idiag_uid};
}

bool PeerOwners::is_own_address(const sockaddr_storage& address) {
    const sockaddr_storage wanted = unmapped(address);
    const bool is_v4 = wanted.ss_family == AF_INET;
    const std::size_t address_bytes = is_v4 ? sizeof(in_addr) : sizeof(in6_addr);
    struct {
        nlmsghdr header;
        rtmsg body;
        rtattr destination;
        std::array<char, sizeof(in6_addr)> address;
        rtattr interface;
        __u32 index;
    } request{};
    std::size_t bytes = offsetof(decltype(request), address) + address_bytes;
    request.header.nlmsg_type = RTM_GETROUTE;
    request.header.nlmsg_flags = NLM_F_REQUEST;
    request.header.nlmsg_seq = ++sequence_;
    request.body.rtm_family = static_cast<unsigned char>(wanted.ss_family);
    request.body.rtm_dst_len = static_cast<unsigned char>(8 * address_bytes);
    request.destination.rta_type = RTA_DST;
    request.destination.rta_len = static_cast<unsigned short>(RTA_LENGTH(address_bytes));
    if (is_v4) {
        std::memcpy(request.address.data(), &v4(wanted).sin_addr, address_bytes);
    } else {
        std::memcpy(request.address.data(), &v6(wanted).sin6_addr, address_bytes);
        if (v6(wanted).sin6_scope_id != 0) {  // a link-local address, which means an interface as well
            request.interface.rta_type = RTA_OIF;
            request.interface.rta_len = RTA_LENGTH(sizeof request.index);
            request.index = v6(wanted).sin6_scope_id;
            bytes = sizeof request;
        }
    }
    request.header.nlmsg_len = static_cast<__u32>(bytes);

    alignas(nlmsghdr) std::array<char, kAnswerBytes> answer{};
    const std::size_t size = ask(routes_, &request, bytes, sequence_, answer.data(), answer.size());
    const auto* const header = reinterpret_cast<const nlmsghdr*>(answer.data());
    if (size < NLMSG_LENGTH(sizeof(rtmsg)) || header->nlmsg_type != RTM_NEWROUTE) return is_loopback(wanted);
    return static_cast<const rtmsg*>(NLMSG_DATA(header))->rtm_type == RTN_LOCAL;
}

std::size_t PeerOwners::ask(const UniqueFd& netlink, const void* request, std::size_t bytes, std::uint32_t sequence,
                            void* answer, std::size_t capacity) {
    if (!netlink || ::send(netlink.get(), request, bytes, 0) != static_cast<ssize_t>(bytes)) return 0;
    // The kernel has answered when send() returns. An answer to an earlier request is skipped.
    while (true) {
        const ssize_t size = ::recv(netlink.get(), answer, capacity, MSG_DONTWAIT);
        if (size < static_cast<ssize_t>(sizeof(nlmsghdr))) return 0;
        if (static_cast<const nlmsghdr*>(answer)->nlmsg_seq == sequence) return static_cast<std::size_t>(size);
    }
}

}  // namespace ddprun
