#pragma once
// ServerContext: the state that the parts of one EpollServer share. The EpollServer owns it; one thread.

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <functional>
#include <new>
#include <optional>
#include <string>
#include <string_view>

#include "common/clock.hpp"
#include "common/line_limit.hpp"
#include "common/system/peer_owner.hpp"
#include "common/system/unique_fd.hpp"
#include "common/text/number.hpp"
#include "rendezvous/store/codec/block.hpp"
#include "rendezvous/store/codec/limits.hpp"
#include "rendezvous/store/server/connections.hpp"
#include "rendezvous/store/server/statistics.hpp"

namespace ddprun::store {

/// Returns whether clients from a numeric address are served.
using AdmitsHost = std::function<bool(const std::string& address)>;

/// Takes a client of another host that is admitted by its address, and may have it adopted later.
using ScreensClient = std::function<void(UniqueFd socket, const std::string& address)>;

struct ServerContext {
    Options options;
    std::function<TimePoint()> now;
    std::string name;               ///< "10.0.0.7:41234", for the log
    UniqueFd epoll;                 ///< a connection's events carry its number; the listener's carry 0
    BlockMemory block_memory = {};  ///< of all blocks, wherever they are
    Connections connections = {};
    Statistics statistics = {};
    LineLimit log_limit = {};
    std::optional<PeerOwners> owners = {};  ///< with own_user_only
    AdmitsHost admits_host = {};            ///< of clients on other hosts, with own_user_only; empty: all are served
    ScreensClient screens_client = {};      ///< of those that admits_host accepts; empty: they are served at once

    /// Logs the line that `line()` makes, unless there were many just now, or there is no memory for it.
    template <typename Line>
    void warn(Line line) {
        const auto left_out = log_limit.admit(now());
        if (!left_out) return;
        try {
            if (*left_out > 0) {
                log(fmt::format("store {}: {} lines of this log were left out before this one (at most {} in {})", name,
                                *left_out, LineLimit::kLines, seconds_text(LineLimit::kWindow)));
            }
            log(line());
        } catch (const std::bad_alloc&) {  // the event matters more than its line
        }
    }

private:
    static void log(std::string_view line) { spdlog::warn("{}", line); }
};

}  // namespace ddprun::store
