#pragma once
// Talks with the daemon of a job, for every command of ddpctl: finds the job, connects, and bounds each wait.

#include <boost/asio/awaitable.hpp>

#include <functional>

#include "common/endpoint.hpp"
#include "common/error.hpp"
#include "ctl/options.hpp"
#include "rendezvous/client/control_client.hpp"

namespace ddprun::ctl {

/// Asks the daemon at `endpoint`, prints what it answers, and returns the exit code.
using Talk = std::function<boost::asio::awaitable<int>(client::ControlClient& daemon, const Endpoint& endpoint)>;

/// Connects to the daemon of the job and runs `talk`. Returns its exit code, or that of a job that cannot be found or
/// reached, which it reports on stderr. `ended` is passed if the daemon was reached before: it returns the exit code if
/// the port of that daemon refuses connections now.
[[nodiscard]] int run_session(const JobOptions& options, const Talk& talk, const std::function<int()>& ended = {});

/// Returns the next message. Errors: kRefused with the daemon's reason, kClosed, kMalformed.
[[nodiscard]] boost::asio::awaitable<Result<protocol::DaemonMessage>> next_answer(client::ControlClient& daemon);

/// Prints the error to stderr and returns `code`.
[[nodiscard]] int fail(const Error& error, int code);

}  // namespace ddprun::ctl
