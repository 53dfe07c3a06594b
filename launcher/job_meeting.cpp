#include "launcher/job_meeting.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "common/ids.hpp"
#include "common/system/standard_fds.hpp"
#include "launcher/meeting/directory_point.hpp"
#include "launcher/meeting/etcd_point.hpp"
#include "launcher/meeting/reach.hpp"

namespace ddprun::launcher {
namespace {

constexpr std::string_view kDefaultPrefix = "ddprun";
constexpr std::chrono::seconds kAnswerLimit{3};  // of a daemon, which answers at once unless it is stopped or cut off
constexpr std::chrono::seconds kDefaultReadTimeout{60};
constexpr std::chrono::seconds kDefaultJoinTimeout{600};
constexpr std::string_view kInsteadOfHome = "--rdzv-endpoint HOST:PORT to all nodes";

/// ThisNode: performs for meet() what happens on this machine. Owns a daemon that it has started.
class ThisNode final : public MeetingNode {
public:
    ThisNode(DaemonRequest request, const AddressHere& address_here)
        : request_(std::move(request)), address_here_(address_here), self_(this_host()) {
        request_.at_meeting_point = true;
    }

    Result<std::optional<DaemonRecord>> start_daemon(const std::string& seen_from) override {
        const std::optional<std::string>& chosen = request_.store_address;  // --local-addr
        request_.bind.host = chosen ? *chosen : address_for_others(seen_from, self_, address_here_);
        auto hosted = launcher::host_or_join(request_);
        if (!hosted) return hosted.error();
        if (!hosted->started_here) return std::optional<DaemonRecord>{};
        hosted_ = std::move(*hosted);
        return std::optional(DaemonRecord{hosted_.endpoint, self_.name, hosted_.pid, random_id()});
    }
    void stop_daemon() override { release_daemon(hosted_.lifeline); }
    bool daemon_runs() override { return !daemon_ends_within(hosted_.lifeline, std::chrono::milliseconds(0)); }
    Reach reach(const Endpoint& address) override { return ask_daemon(address, Clock::now() + kAnswerLimit); }
    void report(const std::string& line) override { spdlog::info("{}", line); }
    void pause(Duration duration) override { std::this_thread::sleep_for(duration); }
    TimePoint now() const override { return Clock::now(); }
    std::string host() const override { return self_.name; }

    Hosted take() { return std::move(hosted_); }

private:
    DaemonRequest request_;
    const AddressHere& address_here_;
    ThisHost self_;
    Hosted hosted_;
};

/// Returns the password of the user in --rdzv-conf.
Result<std::string> password_of(const EtcdConf& conf, const Environment& environment) {
    if (conf.user.empty()) return std::string();
    if (!conf.password_file.empty()) {
        std::ifstream file(conf.password_file);
        std::string password;
        if (std::getline(file, password) && !password.empty()) return password;
        return Error{Errc::kUsage,
                     fmt::format("--rdzv-conf password_file={}: cannot read a password from the first line "
                                 "of this file. Check its name and permissions.",
                                 conf.password_file)};
    }
    const auto variable = environment.find(kPasswordVariable);
    if (variable != environment.end() && !variable->second.empty()) return variable->second;
    return Error{Errc::kUsage,
                 fmt::format("--rdzv-conf username={}: the password is missing. Set {}, or write it into a "
                             "file and pass password_file=FILE.",
                             conf.user, kPasswordVariable)};
}

/// Returns the directory in which the nodes of a starter meet that names no hosts; makes it if it is not there.
Result<std::filesystem::path> meeting_folder(const Environment& environment) {
    const auto home = environment.find("HOME");
    if (home == environment.end() || home->second.empty())
        return Error{Errc::kUsage,
                     fmt::format("HOME is not set, below which the nodes would meet. Pass {}.", kInsteadOfHome)};
    const auto folder = std::filesystem::path(home->second) / ".ddprun" / "meeting";
    for (const auto& path : {folder.parent_path(), folder}) {
        if (::mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) continue;
        Error error = system_error(fmt::format("cannot make {}, in which the nodes would meet", path.string()), errno);
        return Error{Errc::kUsage, fmt::format("{}. Pass {}.", error.message, kInsteadOfHome)};
    }
    return folder;
}

}  // namespace

bool meets_in_home(const Options& options) {
    return options.allocation && options.allocation->hosts.empty() && !options.rdzv_dir && !uses_etcd(options);
}

Result<JobMeeting> JobMeeting::make(const Options& options, const Environment& environment) {
    const RdzvConf& conf = options.rdzv_conf;
    const auto read_timeout = conf.read_timeout.value_or(kDefaultReadTimeout);
    const MeetingSettings settings{conf.is_host.value_or(true), options.spare, read_timeout,
                                   conf.join_timeout.value_or(kDefaultJoinTimeout)};
    const std::string id = options.rdzv_id.value_or("");
    if (meets_in_home(options)) {
        auto folder = meeting_folder(environment);
        if (!folder) return folder.error();
        return JobMeeting(std::make_unique<DirectoryPoint>(*folder, read_timeout, DirectoryPoint::Names::kUsedOnce,
                                                           std::string(kInsteadOfHome)),
                          options.allocation->name, settings);
    }
    if (options.rdzv_dir) {
        return JobMeeting(std::make_unique<DirectoryPoint>(*options.rdzv_dir, read_timeout),
                          fmt::format("{}/{}", kDefaultPrefix, id), settings);
    }
    auto password = password_of(conf.etcd, environment);
    if (!password) return password.error();
    if (!conf.etcd.user.empty() && !conf.etcd.tls) {
        spdlog::warn("INSECURE: the password of etcd user '{}' is sent unencrypted; pass --rdzv-conf protocol=https",
                     conf.etcd.user);
    }
    std::string prefix = conf.etcd.prefix.value_or(std::string(kDefaultPrefix));
    while (prefix.ends_with('/')) prefix.pop_back();
    EtcdSettings etcd{options.etcd_servers,
                      {conf.etcd.tls, conf.etcd.ca_file, conf.etcd.cert_file, conf.etcd.key_file},
                      conf.etcd.user,
                      std::move(*password),
                      read_timeout};
    return JobMeeting(std::make_unique<EtcdPoint>(std::move(etcd)), fmt::format("{}/{}", prefix, id), settings);
}

Result<Hosted> JobMeeting::host_or_join(const DaemonRequest& request, const AddressHere& address_here) {
    ThisNode node(request, address_here);
    auto meeting = meet(*point_, name_, settings_, node);
    if (!meeting) return meeting.error();
    mine_ = std::move(meeting->mine);
    spdlog::debug("{} {} at {}", mine_ ? "published" : "joining the daemon", to_string(meeting->daemon),
                  point_->where(name_));
    return mine_ ? node.take() : Hosted{meeting->daemon.address, false};
}

void JobMeeting::withdraw() {
    if (!mine_) return;
    const Result<void> withdrawn = point_->withdraw(name_, *mine_);
    mine_.reset();
    if (withdrawn || !stderr_has_room()) return;
    spdlog::warn("the address of the ended job stays published ({}); the next job of this name replaces it",
                 withdrawn.error().message);
}

std::string address_for_others(const std::string& seen_from, const ThisHost& self, const AddressHere& address_here) {
    const bool scoped = seen_from.find('%') != std::string::npos;  // an IPv6 address that means a link of this host
    if (!seen_from.empty() && !scoped && !is_loopback(seen_from)) return seen_from;
    const std::string own = self.name.empty() ? "" : address_here(self.name).value_or("");
    if (!own.empty() && !is_loopback(own) && !is_wildcard(own)) return own;
    return self.addresses.empty() ? "127.0.0.1" : self.addresses.front();
}

}  // namespace ddprun::launcher
