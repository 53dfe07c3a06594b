#include "ctl/dump.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <string_view>
#include <vector>

#include "common/exit_codes.hpp"
#include "common/text/number.hpp"
#include "common/text/print.hpp"
#include "ctl/c10d_json.hpp"
#include "ctl/find_jobs.hpp"
#include "ctl/session.hpp"
#include "ctl/summary.hpp"
#include "rendezvous/protocol/messages.hpp"

namespace ddprun::ctl {
namespace {

namespace asio = boost::asio;
using namespace protocol;

/// The number of operations of each rank for the summary. A dump has all operations of the flight record.
constexpr int kOperationsForSummary = 16;

/// What the daemon answers to one request.
struct Overview {
    std::vector<RankRecord> records;
    Inspected end;
};

/// Sends one request and collects its answer.
asio::awaitable<Result<Overview>> ask(client::ControlClient& daemon, std::optional<Rank> rank, int operations) {
    const AgentMessage question = Inspect{kProtocolVersion, rank, operations};
    daemon.send(question);
    Overview answer;
    while (true) {
        Result<DaemonMessage> received = co_await next_answer(daemon);
        if (!received) co_return received.error();
        if (auto* shown = std::get_if<RecordReply>(&*received)) answer.records.push_back(std::move(shown->record));
        if (auto* end = std::get_if<Inspected>(&*received)) {
            answer.end = std::move(*end);
            std::ranges::sort(answer.records, {}, [](const RankRecord& record) { return number(record.rank); });
            co_return answer;
        }
    }
}

Result<void> write_file(const std::filesystem::path& path, const std::string& text) {
    errno = 0;
    std::ofstream file(path, std::ios::binary);
    file << text;
    file.close();
    if (!file) return system_error(fmt::format("cannot write {}", path.string()), errno);
    return {};
}

/// Returns whether an earlier dump wrote that file. Files of other programs are kept.
bool is_dump(const std::filesystem::path& path) {
    const std::string name = path.filename().string();
    if (!name.starts_with("rank_") || !name.ends_with(".json")) return false;
    std::array<char, 128> head{};
    std::ifstream(path, std::ios::binary).read(head.data(), head.size());
    const std::string mark = fmt::format("\"comm_lib_version\":\"{}", kDumpLibrary);
    return std::string_view(head.data(), head.size()).find(mark) != std::string_view::npos;
}

/// Removes the dumps of a job that had more ranks: an analysis of the folder would take them for ranks of this one.
Result<void> remove_older_dumps(const std::filesystem::path& folder, const std::set<std::filesystem::path>& newer) {
    std::error_code error;
    std::vector<std::filesystem::path> older;
    for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
        if (!newer.contains(at->path()) && is_dump(at->path())) older.push_back(at->path());
    }
    for (const std::filesystem::path& path : older) {
        if (!error) std::filesystem::remove(path, error);
    }
    if (!error) return {};
    return Error{Errc::kSystem, fmt::format("cannot remove older dumps from {}: {}. Choose another folder",
                                            folder.string(), error.message())};
}

asio::awaitable<Result<std::size_t>> write_records(client::ControlClient& daemon, const Overview& overview,
                                                   const std::string& folder) {
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) co_return Error{Errc::kSystem, fmt::format("cannot make the folder {}: {}", folder, error.message())};
    std::set<std::filesystem::path> written;
    for (const RankRecord& known : overview.records) {
        Result<Overview> one = co_await ask(daemon, known.rank, kMaxOperationsShown);
        if (!one) co_return one.error();
        for (const RankRecord& record : one->records) {
            const auto path = std::filesystem::path(folder) / fmt::format("rank_{}.json", number(record.rank));
            const auto done = write_file(path, to_c10d_json(record, one->end.run_id));
            if (!done) co_return Error{Errc::kSystem, done.error().message};
            written.insert(path);
        }
    }
    const Result<void> cleared = remove_older_dumps(folder, written);
    if (!cleared) co_return cleared.error();
    co_return written.size();
}

/// Returns the command of the job's workers on this machine; empty if it has none here or cannot be read.
std::string command_at(const Endpoint& endpoint) {
    for (const Job& job : find_jobs()) {
        const Result<Endpoint> known = parse_endpoint(job.endpoint, 0);
        if (known && *known == endpoint && job.workers > 0) return job.command;
    }
    return "";
}

/// Reports that there is nothing to dump. Files of an earlier dump are kept.
int fail_without_records(const DumpOptions& options) {
    const std::string written =
        options.output.empty() ? "" : fmt::format("; nothing was written to {}", options.output);
    return fail({Errc::kNotFound, fmt::format("no rank has a flight record{}", written)}, exit_code::kNoRecord);
}

asio::awaitable<int> dump(client::ControlClient& daemon, const Endpoint& endpoint, const DumpOptions& options) {
    const Result<Overview> overview = co_await ask(daemon, std::nullopt, kOperationsForSummary);
    if (!overview) co_return fail(overview.error(), exit_code::kInfrastructure);
    const Result<void> printed = print_to_stdout(summarize(overview->records, overview->end, command_at(endpoint)));
    if (!printed) co_return fail(printed.error(), exit_code::kOutput);
    const bool has_record =
        std::ranges::any_of(overview->records, [](const RankRecord& record) { return record.view.written; });
    if (!has_record) co_return fail_without_records(options);
    if (options.output.empty()) co_return exit_code::kSuccess;
    const Result<std::size_t> written = co_await write_records(daemon, *overview, options.output);
    if (!written)
        co_return fail(written.error(),
                       written.error().code == Errc::kSystem ? exit_code::kOutput : exit_code::kInfrastructure);
    const Result<void> reported =
        print_to_stdout(fmt::format("{} in {}; `ddp-fr-trace {}` analyses them with PyTorch\n",
                                    counted(*written, "file"), options.output, options.output));
    co_return reported ? exit_code::kSuccess : fail(reported.error(), exit_code::kOutput);
}

}  // namespace

int run_dump(const DumpOptions& options) {
    return run_session(options, [&](client::ControlClient& daemon, const Endpoint& endpoint) {
        return dump(daemon, endpoint, options);
    });
}

}  // namespace ddprun::ctl
