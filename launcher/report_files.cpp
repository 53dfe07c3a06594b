#include "launcher/report_files.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <utility>

#include "agent/job_error_file.hpp"
#include "agent/job_report.hpp"
#include "common/clock.hpp"
#include "common/system/within.hpp"
#include "common/text/number.hpp"
#include "common/text/words.hpp"

namespace ddprun::launcher {
namespace {

namespace json = boost::json;
using agent::kFileSystemTimeout;

/// Returns the result of `call`, which works on `file`; an error if its file system hangs.
template <typename Call>
auto in_time(const std::string& file, Call call) -> decltype(call()) {
    if (auto done = within(kFileSystemTimeout, std::move(call))) return std::move(*done);
    return Error{Errc::kTimeout, fmt::format("cannot write {}: its file system has not answered within {}", file,
                                             seconds_text(kFileSystemTimeout))};
}

/// A longer file is none of ours: the texts in a report are bounded.
constexpr std::uintmax_t kMaxReportBytes = 4u << 20;

bool is_report(const std::string& text) {
    const json::object object = parse_report_object(text);
    return object.contains("version") && object.contains("result");
}

/// Refuses a path at which there is a file with another content than a report: it may be a mistyped path.
Result<void> check_replaceable(const agent::ResultFile& file) {
    std::error_code unknown;  // what cannot be read is refused below, or by check_writable()
    if (!std::filesystem::is_regular_file(file.path, unknown)) return {};
    const std::uintmax_t bytes = std::filesystem::file_size(file.path, unknown);
    if (bytes == 0) return {};
    std::string text;
    if (bytes <= kMaxReportBytes) {
        std::ifstream stream(file.path, std::ios::binary);
        text.assign(std::istreambuf_iterator<char>(stream), {});
    }
    if (is_report(text)) return {};
    return Error{Errc::kUsage, fmt::format("cannot write {}: that file exists and is not a report of ddprun. Name "
                                           "another file, or remove this one if it is not needed",
                                           file.name)};
}

/// Returns whether both paths name one regular file.
bool is_same_file(const std::string& path, const std::string& other) {
    std::error_code none;
    return !other.empty() && std::filesystem::is_regular_file(path, none) &&
           std::filesystem::equivalent(path, other, none);
}

/// Returns whether stdout or stderr goes to this regular file, which the report would replace.
bool takes_output(const std::string& path) {
    return is_same_file(path, "/proc/self/fd/1") || is_same_file(path, "/proc/self/fd/2");
}

Error usage(Error error) { return {Errc::kUsage, sentence(error.message)}; }

/// Opens a file of lines that several processes append to.
Result<UniqueFd> open_for_appending(const std::string& path) {
    // Without O_NONBLOCK a named pipe would wait for its reader here; the thread that writes may wait.
    UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOCTTY | O_NONBLOCK | O_CLOEXEC, 0666));
    if (!fd) {
        Error error = system_error(fmt::format("cannot write the events {} (--events)", path), errno);
        error.message += ". Name a file that this user can create";
        return error;
    }
    ::fcntl(fd.get(), F_SETFL, O_APPEND);
    return fd;
}

}  // namespace

json::object parse_report_object(std::string_view text) {
    json::parse_options options;
    options.max_depth = 64;
    boost::system::error_code malformed;
    json::value value = json::parse({text.data(), text.size()}, malformed, {}, options);
    json::object* const object = malformed ? nullptr : value.if_object();
    return object != nullptr ? std::move(*object) : json::object();
}

Result<void> prepare_report(const std::string& path, const std::string& events) {
    if (path.empty()) return {};
    const agent::ResultFile file = agent::report_file(path);
    const Result<void> ready = in_time(file.name, [file, events]() -> Result<void> {
        if (is_same_file(file.path, events)) {
            return Error{Errc::kUsage,
                         fmt::format("cannot write {}: --events names the same file. Name two files", file.name)};
        }
        if (takes_output(file.path)) {
            return Error{Errc::kUsage, fmt::format("cannot write {}: the output of ddprun goes to that file, and the "
                                                   "report would replace it. Name another file",
                                                   file.name)};
        }
        if (const Result<void> replaceable = check_replaceable(file); !replaceable) return replaceable;
        if (const Result<void> cleared = agent::clear_file(file); !cleared) return cleared;
        return agent::check_writable(file);
    });
    if (!ready) return usage(ready.error());
    return {};
}

Result<UniqueFd> open_events(const std::string& path) {
    if (path.empty()) return UniqueFd();
    const std::string name = fmt::format("the events {} (--events)", path);
    Result<UniqueFd> opened = in_time(name, [path] { return open_for_appending(path); });
    if (!opened) return usage(opened.error());
    return opened;
}

void clear_error_file(const std::string& path) {
    if (path.empty()) return;
    const agent::ResultFile file = agent::job_error_file(path);
    const Result<void> cleared = in_time(file.name, [file] { return agent::clear_file(file); });
    if (!cleared) spdlog::warn("{}", cleared.error().message);
}

void write_report(const std::string& path, const json::object& report) {
    if (path.empty()) return;
    agent::ResultWrites writes;
    const agent::ResultFile file = agent::report_file(path);
    writes.start(file.name, [file, text = agent::report_text(report)]() -> Result<void> {
        if (const Result<void> replaceable = check_replaceable(file); !replaceable) return replaceable;
        return agent::write_file(file, text, agent::Existing::kReplace);
    });
    for (const std::string& problem : writes.finish(Clock::now() + kFileSystemTimeout)) spdlog::warn("{}", problem);
}

json::object refusal_report(const Error& error, int code, const agent::JobName& job) {
    agent::JobReport report;
    report.result = agent::result_of(nullptr, code);
    report.exit_code = code;
    report.reason = error.message;
    report.job = job;
    report.run_id = job.run_id;
    return agent::to_json(report);
}

json::object cluster_report(const ClusterEnd& end, const agent::JobName& job) {
    json::object report = end.report;
    if (report.empty() || !end.reason.empty()) {
        const std::string reason = end.exit_code == 0 ? "every worker exited with code 0" : end.reason;
        const json::object own = refusal_report({Errc::kSystem, reason}, end.exit_code, job);
        if (report.empty()) report = own;
        for (const char* key : {"result", "reason", "signal_name"}) report[key] = own.at(key);
        report["hint"] = end.hint.empty() ? "" : sentence(end.hint);
    }
    report["exit_code"] = end.exit_code;
    report["host"] = report["node_rank"] = nullptr;  // those of the node that has left it
    return report;
}

}  // namespace ddprun::launcher
