#pragma once
// JobMeeting: the meeting point of this job as the user has described it, and this node's use of it: before the agent
// starts it finds or hosts the daemon, at the end it withdraws the address. Owned by launch(), main thread; it has no
// descriptor or thread between its calls, so the process may fork.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/error.hpp"
#include "common/system/process.hpp"
#include "launcher/host/placement.hpp"
#include "launcher/host/this_host.hpp"
#include "launcher/host_daemon.hpp"
#include "launcher/meeting/meet.hpp"
#include "launcher/options/options.hpp"

namespace ddprun::launcher {

/// The variable with the password of the etcd user that --rdzv-conf names.
inline constexpr const char* kPasswordVariable = "DDPRUN_ETCD_PASSWORD";

class JobMeeting {
public:
    /// Takes --rdzv-dir, the etcd options or an allocation without hosts from `options`, which has one of them. Errors:
    /// kUsage, the password is missing or its file cannot be read, or there is no home to meet in.
    [[nodiscard]] static Result<JobMeeting> make(const Options& options, const Environment& environment);

    /// Returns the daemon of the job, hosted here as `request` describes or by another node. `request.bind` has the
    /// port; its address is chosen here.
    [[nodiscard]] Result<Hosted> host_or_join(const DaemonRequest& request, const AddressHere& address_here);

    /// Withdraws the address of a daemon that was hosted here and has ended. A failure is only logged.
    void withdraw();

private:
    JobMeeting(std::unique_ptr<MeetingPoint> point, std::string name, const MeetingSettings& settings)
        : point_(std::move(point)), name_(std::move(name)), settings_(settings) {}

    std::unique_ptr<MeetingPoint> point_;
    std::string name_;  ///< "ddprun/ID"
    MeetingSettings settings_;
    std::optional<Published> mine_;
};

/// Returns whether the nodes meet in a directory of the user's home, because their starter names no hosts.
[[nodiscard]] bool meets_in_home(const Options& options);

/// Returns the address at which other nodes reach this machine: `seen_from`, the local address of a connection to
/// another host; else the address of this machine's own name, unless it is a loopback address. Pure but for
/// `address_here`.
[[nodiscard]] std::string address_for_others(const std::string& seen_from, const ThisHost& self,
                                             const AddressHere& address_here);

}  // namespace ddprun::launcher
