#include "agent/config/destinations.hpp"

#include "tests/catch.hpp"

using namespace ddprun;
using namespace ddprun::agent;

namespace {

const StreamCodes kOutOnly{StreamCode::kStdout};
const StreamCodes kErrOnly{StreamCode::kStderr};
const StreamCodes kBothStreams{StreamCode::kBoth};

std::string shown(const OutputConfig& output, int rank) {
    std::string text;
    for (const StreamCode stream : {StreamCode::kStdout, StreamCode::kStderr}) {
        const Destinations to = destinations_of(output, LocalRank{rank}, stream);
        if (!text.empty()) text += " ";
        text += std::string(to.console ? "console" : "-") + (to.labelled ? "+label" : "") + (to.file ? "+file" : "") +
                (to.duplicates ? "+duplicates" : "");
    }
    return text;
}

}  // namespace

TEST_CASE("streams go to the console unless they are redirected, and files are kept of all with a folder", "[agent]") {
    CHECK(shown({}, 0) == "console console");
    CHECK(shown({.log_dir = "logs"}, 0) == "console+file console+file");
    CHECK(shown({.log_dir = "logs", .redirects = kErrOnly}, 0) == "console+file -+file");
    CHECK(shown({.log_dir = "", .redirects = kBothStreams}, 0) == "console console");  // --log-dir /dev/null
    CHECK(shown({.log_dir = "", .label = true}, 0) == "console+label console+label");
}

TEST_CASE("a temporary folder gets only the streams that were named", "[agent]") {
    CHECK(shown({.log_dir = "tmp", .temporary = true, .redirects = kOutOnly}, 0) == "-+file console");
    CHECK(shown({.log_dir = "tmp", .temporary = true, .redirects = kOutOnly, .tee = kErrOnly}, 0) ==
          "-+file console+label+file");
}

TEST_CASE("a stream that is redirected and tee'd is tee'd, as in torchrun", "[agent]") {
    CHECK(shown({.log_dir = "logs", .redirects = kBothStreams, .tee = kErrOnly}, 0) == "-+file console+label+file");
}

TEST_CASE("a map names streams by local rank, and 0 for the others", "[agent]") {
    const StreamCodes codes{StreamCode::kNone, {{0, StreamCode::kBoth}, {2, StreamCode::kStderr}}};
    const OutputConfig output{.log_dir = "logs", .redirects = codes};
    CHECK(shown(output, 0) == "-+file -+file");
    CHECK(shown(output, 1) == "console+file console+file");
    CHECK(shown(output, 2) == "console+file -+file");
    CHECK(redirects_to_files(output, 1));
    CHECK_FALSE(redirects_to_files({.log_dir = "logs", .redirects = codes, .tee = kBothStreams}, 3));
    CHECK_FALSE(redirects_to_files({.log_dir = "", .redirects = codes}, 3));
    CHECK_FALSE(redirects_to_files({.log_dir = "logs", .redirects = {StreamCode::kNone, {{5, StreamCode::kBoth}}}}, 3));
}

TEST_CASE("filters copy lines of tee'd streams, also of ranks that the console does not show", "[agent]") {
    const OutputConfig output{
        .log_dir = "logs", .tee = kOutOnly, .console_ranks = {1}, .stdout_filters = {"loss"}, .stderr_filters = {"x"}};
    CHECK(shown(output, 0) == "-+label+file+duplicates -+file");
    CHECK(shown(output, 1) == "console+label+file+duplicates console+file");
}

TEST_CASE("the console shows a worker that both filters by rank name", "[agent]") {
    const OutputConfig output{.console_ranks = {0, 1}, .console_job_ranks = {{0, 0}, {8, 15}}};
    const auto shows = [&](int local_rank, std::optional<Rank> rank) {
        return destinations_of(output, LocalRank{local_rank}, StreamCode::kStdout, rank).console;
    };
    CHECK(shows(0, Rank{0}));
    CHECK(shows(1, Rank{15}));
    CHECK_FALSE(shows(1, Rank{1}));
    CHECK_FALSE(shows(1, Rank{16}));
    CHECK_FALSE(shows(2, Rank{8}));
    CHECK(shows(1, std::nullopt));
}

TEST_CASE("a worker writes its stdout to a file itself if nothing else gets it", "[agent]") {
    const auto own_file = [](const OutputConfig& output, StreamCode stream = StreamCode::kStdout) {
        return destinations_of(output, LocalRank{0}, stream).own_file;
    };
    CHECK(own_file({.log_dir = "logs", .redirects = kBothStreams}));
    CHECK(own_file({.log_dir = "logs", .console_ranks = {1}}));
    CHECK_FALSE(own_file({.log_dir = "logs", .redirects = kBothStreams}, StreamCode::kStderr));
    CHECK_FALSE(own_file({.log_dir = "logs"}));
    CHECK_FALSE(own_file({.log_dir = "", .redirects = kBothStreams}));
    CHECK_FALSE(own_file({.log_dir = "logs", .max_file_bytes = 1024, .redirects = kBothStreams}));
    CHECK_FALSE(own_file({.log_dir = "logs", .redirects = kBothStreams, .timestamps = true}));
    CHECK_FALSE(own_file({.log_dir = "logs", .tee = kOutOnly, .console_ranks = {1}, .stdout_filters = {"loss"}}));
}
