#include "agent/job_error_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json.hpp>

#include "agent/workers/error_file.hpp"

namespace ddprun::agent {
namespace {

namespace json = boost::json;

/// Returns torchrun's code for an exit status: the exit code, or the signal as a negative number.
int torchrun_code(const ExitStatus& status) {
    return status.kind == ExitStatus::Kind::kSignaled ? -status.number : status.number;
}

std::string message_of(const protocol::FailureReport& culprit) {
    if (!culprit.message.empty()) return culprit.message;
    if (culprit.status.kind == ExitStatus::Kind::kExited) return to_string(culprit.status);
    const int signal = culprit.status.number;
    return fmt::format("Signal {} ({}) received by PID {}", signal, signal_name(signal), culprit.pid);
}

/// Returns the Python traceback at the end of the culprit's stderr, from the first of several that belong together.
std::string traceback_of(const protocol::FailureReport& culprit) {
    const auto& lines = culprit.last_lines;
    const auto begin = std::ranges::find(lines, "Traceback (most recent call last):");
    return fmt::format("{}", fmt::join(begin, lines.end(), "\n"));
}

}  // namespace

ResultFile job_error_file(const std::string& path) {
    return {path, fmt::format("the error file {} (TORCHELASTIC_ERROR_FILE)", path),
            "Name a file that this user can create, or unset the variable."};
}

std::string job_error_text(const protocol::FailureReport& culprit, std::string_view worker_text,
                           std::chrono::seconds since_epoch) {
    const int code = torchrun_code(culprit.status);
    if (!worker_text.empty() && parse_error_file(worker_text)) {
        json::value value = json::parse({worker_text.data(), worker_text.size()});
        if (json::object* message = value.at("message").if_object()) (*message)["errorCode"] = code;
        return json::serialize(value);
    }
    json::object extra{{"timestamp", std::to_string(since_epoch.count())}};
    if (const std::string trace = traceback_of(culprit); !trace.empty()) extra["py_callstack"] = trace;
    return json::serialize(json::object{
        {"message",
         json::object{{"message", message_of(culprit)}, {"extraInfo", std::move(extra)}, {"errorCode", code}}}});
}

}  // namespace ddprun::agent
