#include "ctl/session.hpp"

#include <fmt/format.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

#include "common/clock.hpp"
#include "common/exit_codes.hpp"
#include "common/job_key.hpp"
#include "common/system/process.hpp"
#include "common/text/escape.hpp"
#include "ctl/find_jobs.hpp"

namespace ddprun::ctl {
namespace {

namespace asio = boost::asio;

Result<Endpoint> the_only_job(const std::string& typed) {
    const std::vector<Job> jobs = find_jobs();
    if (jobs.empty()) {
        return Error{Errc::kUsage,
                     "no job of yours has a node on this machine. Run ddpctl on a node of the job, or pass "
                     "--rdzv-endpoint HOST:PORT"};
    }
    if (jobs.size() == 1) return parse_endpoint(jobs.front().endpoint, 0);
    std::string text = fmt::format("{} jobs of yours run on this machine. Choose one:", jobs.size());
    for (const Job& job : jobs)
        text += fmt::format("\n  ddpctl {} --rdzv-endpoint {}   # job {}", typed, job.endpoint, describe(job));
    return Error{Errc::kUsage, std::move(text)};
}

/// Returns the rules for the connection to the daemon, with the job key if it may leave this host.
Result<client::Security> security_for(const Endpoint& endpoint, bool insecure) {
    if (insecure || !may_leave_host(endpoint)) return client::make_security({}, insecure);
    auto key = JobKey::load(parse_environment(::environ), MissingKey::kFail);
    return key ? client::make_security(*key, false) : key.error();
}

asio::awaitable<int> connect_and_talk(const Endpoint& endpoint, std::chrono::milliseconds timeout,
                                      client::Security security, const Talk& talk, const std::function<int()>& ended) {
    client::Pace pace;
    if (ended) pace.refused_until = TimePoint::min();
    auto daemon = co_await client::ControlClient::connect(endpoint, Clock::now() + timeout, pace, std::move(security));
    if (!daemon && ended && daemon.error().code == Errc::kClosed) co_return ended();
    if (!daemon) co_return fail(daemon.error(), exit_code::kInfrastructure);
    co_return co_await talk(**daemon, endpoint);
}

}  // namespace

int run_session(const JobOptions& options, const Talk& talk, const std::function<int()>& ended) {
    const Result<Endpoint> endpoint =
        options.endpoint ? Result<Endpoint>(*options.endpoint) : the_only_job(options.typed);
    if (!endpoint) return fail(endpoint.error(), exit_code::kUsage);
    const Result<client::Security> security = security_for(*endpoint, options.insecure);
    if (!security) return fail(security.error(), exit_code::kUsage);
    asio::io_context io(1);
    std::optional<int> code;
    asio::co_spawn(io, connect_and_talk(*endpoint, options.timeout, *security, talk, ended),
                   [&](std::exception_ptr thrown, int result) {
                       if (thrown) std::rethrow_exception(thrown);
                       code = result;
                       io.stop();
                   });
    while (!code && !io.stopped()) {
        if (io.run_one_for(options.timeout + std::chrono::seconds(4)) > 0) continue;
        return fail({Errc::kTimeout, fmt::format("the rendezvous daemon at {} does not answer", to_string(*endpoint))},
                    exit_code::kInfrastructure);
    }
    return code.value_or(exit_code::kInternal);
}

asio::awaitable<Result<protocol::DaemonMessage>> next_answer(client::ControlClient& daemon) {
    Result<protocol::DaemonMessage> received = co_await daemon.receive();
    if (!received) {
        Error error = received.error();
        if (error.code == Errc::kClosed) error.message += ". Has the job ended, or is its ddprun an older one?";
        co_return error;
    }
    if (const auto* rejected = std::get_if<protocol::Rejected>(&*received))
        co_return Error{Errc::kRefused, escape_controls(rejected->reason)};
    co_return received;
}

int fail(const Error& error, int code) {
    std::fputs(fmt::format("ddpctl: {}\n", error.message).c_str(), stderr);
    return code;
}

}  // namespace ddprun::ctl
