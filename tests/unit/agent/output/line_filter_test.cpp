#include "agent/output/line_filter.hpp"

#include <boost/asio/io_context.hpp>
#include <chrono>

#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"

using namespace ddprun;
using namespace ddprun::agent;

namespace {

/// Returns what a filter for "loss" and "a,b" with the label "[0]:" copies of these pieces of a stream.
std::string copied(const std::vector<std::string>& pieces) {
    const TemporaryDirectory directory;
    const auto path = directory.path() / "filtered.log";
    boost::asio::io_context io;
    LogWriter logs(io, [](const std::string& problem) { FAIL(problem); });
    LineFilter filter({"loss", "a,b"}, "[0]:", logs.open(path.string()));
    for (const std::string& piece : pieces) filter.feed(piece);
    filter.finish();
    logs.finish(std::chrono::seconds(20));
    return read_file(path);
}

}  // namespace

TEST_CASE("a filter copies whole lines that contain one of its texts", "[agent]") {
    CHECK(copied({"step 1\nloss 0.5\nend\n"}) == "[0]:loss 0.5\n");
    CHECK(copied({"lo", "ss 0", ".5", "\nstep\nsee a,b\r\n"}) == "[0]:loss 0.5\n[0]:see a,b\n");
    CHECK(copied({"the last loss"}) == "[0]:the last loss\n");
    CHECK(copied({"", "\n", "los\ns"}).empty());
}

TEST_CASE("a filter takes a progress bar in its latest state", "[agent]") {
    CHECK(copied({"\r10% loss 3", "\r20% loss 2", "\r30%\n"}).empty());
    CHECK(copied({"\r10%", "\r20% loss 2\n"}) == "[0]:20% loss 2\n");
}

TEST_CASE("a filter cuts a line without end at a limit", "[agent]") {
    const std::string text = copied({"loss " + std::string(3 * kMaxLineBytes, 'x') + "\nloss 2\n"});
    CHECK(text.size() == 4 + kMaxLineBytes + 1 + 11);
    CHECK(text.ends_with("x\n[0]:loss 2\n"));
}
