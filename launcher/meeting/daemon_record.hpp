#pragma once
// DaemonRecord: the value that the host of a daemon publishes at the meeting point, one line of JSON. Pure.

#include <string>
#include <string_view>

#include "common/endpoint.hpp"
#include "common/error.hpp"

namespace ddprun::launcher {

struct DaemonRecord {
    Endpoint address;   ///< numeric
    std::string host;   ///< name of the machine, for messages and for a loopback address
    int pid = 0;        ///< of ddprund, for messages
    std::string claim;  ///< random, so that no two values are equal
    friend bool operator==(const DaemonRecord&, const DaemonRecord&) = default;
};

/// Returns {"version":1,"address":"10.0.0.1:40001","host":"n1","pid":71,"claim":"…"}.
[[nodiscard]] std::string to_json(const DaemonRecord& record);

/// Parses it. Errors: kMalformed; kMismatch, another version of ddprun has written it.
[[nodiscard]] Result<DaemonRecord> parse_daemon_record(std::string_view text);

/// Returns "10.0.0.1:40001 (host n1, pid 71)", safe for a terminal.
[[nodiscard]] std::string to_string(const DaemonRecord& record);

}  // namespace ddprun::launcher
