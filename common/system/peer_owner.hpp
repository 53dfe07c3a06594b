#pragma once
// Finds the user at the other end of a TCP connection, if that end is on this host. Asks the kernel's socket
// diagnostics (sock_diag(7)), which needs no privilege; where these are missing, as in some containers, /proc/net/tcp.
// Single owner.

#include <sys/socket.h>
#include <sys/types.h>

#include <cstdint>
#include <string>

#include "common/system/unique_fd.hpp"

namespace ddprun {

/// The other end of a connection.
struct PeerOwner {
    enum class Kind {
        kOtherHost,  ///< its address is none of this network namespace: nothing is known about the process
        kUser,       ///< a socket of this host, made by `uid`
        kUnknown,    ///< an address of this host without an open socket: it was closed, or its address is translated
    };
    Kind kind = Kind::kUnknown;
    uid_t uid = 0;  ///< as seen in this process' user namespace; of a kUser
};

/// Returns whether the other end is on another host, or belongs to the user of this process.
[[nodiscard]] bool is_own_or_remote(const PeerOwner& owner);
/// Returns the owner of a peer that is_own_or_remote() excludes: "a process of user 1000", or "a process that has
/// closed its socket".
[[nodiscard]] std::string to_string(const PeerOwner& owner);

class PeerOwners {
public:
    PeerOwners();

    /// Returns the owner of the other end of a connected socket. Takes a few microseconds.
    [[nodiscard]] PeerOwner find(int socket);
    /// Returns the owner of the socket of this host that is connected from `local` to `remote`; kUnknown if there is
    /// none, or if this host has no socket diagnostics: the tables, which may be long, are not read. A later connection
    /// may have the same addresses: look at its other end afterwards.
    [[nodiscard]] PeerOwner find(const sockaddr_storage& local, const sockaddr_storage& remote);
    /// Returns whether `address` belongs to this host: the kernel would deliver a packet to it locally.
    [[nodiscard]] bool is_own_address(const sockaddr_storage& address);

private:
    /// A connection as its `local` end sees it.
    struct Connection {
        sockaddr_storage local{};
        sockaddr_storage remote{};
    };
    struct Found {
        bool any = false;   ///< a socket with these addresses; it may be closed
        bool open = false;  ///< a process has it, and it is connected
        uid_t uid = 0;
    };
    [[nodiscard]] Found look_up(const Connection& connection);
    [[nodiscard]] static Found look_up_in_table(const Connection& connection);
    /// Sends a request and reads the first message of the answer into `answer`. Returns its size, or 0.
    [[nodiscard]] static std::size_t ask(const UniqueFd& netlink, const void* request, std::size_t bytes,
                                         std::uint32_t sequence, void* answer, std::size_t capacity);

    UniqueFd sockets_;  ///< socket diagnostics
    UniqueFd routes_;
    std::uint32_t sequence_ = 0;
};

}  // namespace ddprun
