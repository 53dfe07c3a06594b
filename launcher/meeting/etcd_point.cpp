#include "launcher/meeting/etcd_point.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "common/text/list.hpp"
#include "common/text/number.hpp"

namespace ddprun::launcher {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kTryLimit{5000};  // a request that a dying leader took is answered after 7 s
constexpr milliseconds kTryAgain{200};

/// Another try may succeed after these.
bool is_passing(const Error& error) {
    return error.code == boost::system::errc::connection_refused || error.code == Errc::kUnreachable ||
           error.code == Errc::kTimeout || error.code == Errc::kClosed;
}

}  // namespace

Result<std::optional<Published>> EtcdPoint::read(const std::string& name) {
    const auto body = call(etcd::kRangePath, etcd::range_request(name), settings_.read_timeout);
    if (!body) return body.error();
    auto parsed = etcd::parse_range(*body);
    return parsed ? parsed
                  : with_context(fmt::format("cannot read from etcd at {}", to_string(server())), parsed.error());
}

Result<Claim> EtcdPoint::claim(const std::string& name, const std::string& value,
                               const std::optional<Published>& replaces) {
    const auto version = replaces ? std::optional(replaces->version) : std::nullopt;
    const auto body = call(etcd::kTxnPath, etcd::claim_request(name, value, version), settings_.read_timeout);
    if (!body) return body.error();
    auto parsed = etcd::parse_claim(*body, value);
    return parsed ? parsed
                  : with_context(fmt::format("cannot write to etcd at {}", to_string(server())), parsed.error());
}

Result<void> EtcdPoint::withdraw(const std::string& name, const Published& mine) {
    const auto body = call(etcd::kTxnPath, etcd::withdraw_request(name, mine.version),
                           std::min(settings_.read_timeout, kWithdrawLimit));
    return body ? Result<void>() : body.error();
}

std::string EtcdPoint::where(const std::string& name) const {
    return fmt::format("etcd at {}, key '{}'", servers(), name);
}

std::string EtcdPoint::removal(const std::string& name) const { return fmt::format("etcdctl del '{}'", name); }

/// Returns advice for a connection that is closed without an answer, as a port for TLS closes a plain one.
std::string EtcdPoint::tls_hint() const {
    return settings_.tls.on ? "" : " If etcd there uses TLS, pass --rdzv-conf protocol=https,cacert=FILE.";
}

std::string EtcdPoint::servers() const {
    std::vector<std::string> names;
    for (const Endpoint& each : settings_.servers) names.push_back(to_string(each));
    return list_of(std::move(names));
}

/// Tries all servers in turn until one answers. Errors: of the first answer that no other try can better; kTimeout.
Result<std::string> EtcdPoint::call(std::string_view path, const std::string& body, milliseconds limit) {
    const TimePoint begin = Clock::now();
    const TimePoint give_up = begin + limit;
    for (bool reported = false;;) {
        Error last;
        bool closed = false;
        for (std::size_t i = 0; i < settings_.servers.size(); ++i) {
            auto answer = try_call(path, body, std::min(give_up, Clock::now() + kTryLimit));
            if (answer || !is_passing(answer.error())) return answer;
            closed = answer.error().code == Errc::kClosed;
            last = with_context(to_string(server()), answer.error());
            current_ = (current_ + 1) % settings_.servers.size();
        }
        const TimePoint now = Clock::now();
        if (now + kTryAgain >= give_up) {
            return Error{Errc::kTimeout,
                         fmt::format("cannot reach etcd at {} for {} ({}). Check that it runs there, --rdzv-endpoint, "
                                     "and a firewall; --rdzv-conf read_timeout=SECONDS sets how long ddprun tries.{}",
                                     servers(), seconds_text(limit), last.message, closed ? tls_hint() : "")};
        }
        if (!reported && now - begin >= kReportWaitAfter && stderr_has_room()) {
            reported = true;
            spdlog::info("waiting for etcd ({}); giving up in {}", last.message, duration_text(give_up - now));
        }
        std::this_thread::sleep_for(kTryAgain);
    }
}

/// Asks one server, after a login if that is needed. A token that has expired is replaced once.
Result<std::string> EtcdPoint::try_call(std::string_view path, const std::string& body, TimePoint deadline) {
    for (bool fresh = false;;) {
        if (!settings_.user.empty() && token_.empty()) {
            const auto answer =
                post(etcd::kLoginPath, etcd::login_request(settings_.user, settings_.password), deadline);
            if (!answer) return answer.error();
            auto token = etcd::parse_login(*answer);
            if (!token)
                return with_context(fmt::format("cannot log in to etcd at {}", to_string(server())), token.error());
            token_ = std::move(*token);
            fresh = true;
        }
        auto answer = post(path, body, deadline);
        const bool expired = !answer && answer.error().code == Errc::kMismatch;
        if (!expired || fresh || settings_.user.empty()) return answer;
        token_.clear();
    }
}

/// Performs one request. Errors: kMismatch for a token that is not valid, and those of request_http() and explain().
Result<std::string> EtcdPoint::post(std::string_view path, const std::string& body, TimePoint deadline) {
    auto answer = request_http(server(), settings_.tls, {std::string(path), body, token_}, deadline);
    if (!answer && answer.error().code == Errc::kMalformed)
        return with_context(fmt::format("no etcd answers at {}", to_string(server())), answer.error());
    if (!answer) return answer.error();
    own_address_ = answer->own_address;
    if (answer->status == 200) return std::move(answer->body);
    return explain(etcd::parse_failure(answer->status, answer->body), deadline);
}

Error EtcdPoint::explain(const etcd::FailedAnswer& failed, TimePoint deadline) const {
    const std::string where = to_string(server());
    const std::string as_user = settings_.user.empty() ? "" : fmt::format(" as user '{}'", settings_.user);
    const bool anonymous = failed.failure == etcd::Failure::kPermission && settings_.user.empty();
    switch (anonymous ? etcd::Failure::kLogin : failed.failure) {
        case etcd::Failure::kTryAgain: return {Errc::kUnreachable, failed.text};
        case etcd::Failure::kToken:
            return {Errc::kMismatch,
                    fmt::format("etcd at {} does not accept its own login token: {}", where, failed.text)};
        case etcd::Failure::kLogin:
            return {
                Errc::kRefused,
                fmt::format("cannot log in to etcd at {}{}: {}. Pass --rdzv-conf username=NAME if it asks for users, "
                            "and the password in DDPRUN_ETCD_PASSWORD or in a file (password_file=FILE).",
                            where, as_user, failed.text)};
        case etcd::Failure::kPermission:
            return {Errc::kRefused,
                    fmt::format("etcd at {} refuses the key of this job{}: {}. Ask its administrator for a role with "
                                "read and write access, or pass another --rdzv-conf etcd_prefix=.",
                                where, as_user, failed.text)};
        case etcd::Failure::kWantsTls:
            return {Errc::kRefused,
                    fmt::format("etcd at {} speaks TLS only: pass --rdzv-conf protocol=https,cacert=FILE.", where)};
        case etcd::Failure::kCommonName:
            return {Errc::kRefused,
                    fmt::format("etcd at {} has users, and then its gateway refuses a client certificate with a common "
                                "name: {}. Pass a certificate without one (--rdzv-conf cert=FILE,key=FILE).",
                                where, failed.text)};
        case etcd::Failure::kNoGateway: return no_gateway(failed.text, deadline);
        case etcd::Failure::kOther: break;
    }
    return {Errc::kRefused,
            fmt::format("etcd at {} refuses a request: {}. Check --rdzv-endpoint.", where, failed.text)};
}

/// Distinguishes an etcd without the v3 gateway from another server.
Error EtcdPoint::no_gateway(const std::string& answered, TimePoint deadline) const {
    const auto answer = request_http(server(), settings_.tls, {"/version", "", ""}, deadline);
    const auto version = answer && answer->status == 200 ? etcd::parse_version(answer->body) : std::nullopt;
    if (version) {
        return {
            Errc::kMismatch,
            fmt::format("etcd {} at {} has no JSON gateway at /v3: it is older than 3.4, or runs with "
                        "--enable-grpc-gateway=false. Use a newer one, --rdzv-dir DIR, or --rdzv-endpoint HOST alone.",
                        *version, to_string(server()))};
    }
    return {Errc::kMalformed, fmt::format("another server than etcd answers at {} ({}). Check --rdzv-endpoint.",
                                          to_string(server()), answered)};
}

}  // namespace ddprun::launcher
