#include "worker_lib/src/reducer/timeline.hpp"

#include <boost/json.hpp>
#include <cstdlib>
#include <map>

#include "ddp/ddp.hpp"
#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"
#include "tests/unit/worker_lib/reducer/reducer_world.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"

using Catch::Contains;
using ddp::detail::timeline_file;
using ddp::testing::LocalWorld;

namespace {

class TimelineVariable {
public:
    explicit TimelineVariable(const std::string& value) { ::setenv("DDP_TIMELINE", value.c_str(), 1); }
    ~TimelineVariable() { ::unsetenv("DDP_TIMELINE"); }
};

/// The events of a file whose reducers have ended.
boost::json::array events_of(const std::filesystem::path& file) {
    return boost::json::parse(read_file(file)).as_array();
}

}  // namespace

TEST_CASE("the file name has the rank before the extension", "[timeline]") {
    CHECK(timeline_file("trace.json", 3) == "trace.rank-3.json");
    CHECK(timeline_file("/tmp/run.1/trace", 12) == "/tmp/run.1/trace.rank-12");
}

TEST_CASE("DDP_TIMELINE shows each backward, its wait and its buckets", "[timeline]") {
    const TemporaryDirectory directory;
    const TimelineVariable variable((directory.path() / "trace.json").string());
    const LocalWorld world{.ranks_per_node = {2}};
    ddp::testing::run_ranks(world, [](ddp::Context& context) {
        ddp::GradientReducer reducer(context.world(), {{"a", 8}, {"b", 8}},
                                     {.limits = {.bucket_cap_bytes = 1, .first_bucket_cap_bytes = 1}});
        ddp::GradientReducer other(context.world(), {{"c", 8}});  // shares the file
        for (int step = 0; step < 2; ++step) ddp::testing::run_step(reducer, 2, 1);
        other.begin_backward(false);
        other.mark_ready(0);
        other.finish_backward();
        ddp::testing::run_step(other, 1, 1);
    });
    for (int rank = 0; rank < 2; ++rank) {
        std::map<std::string, int> seen;
        std::map<std::string, std::string> arrows;  // what has one id is one arrow
        for (const auto& event : events_of(timeline_file(directory.path() / "trace.json", rank))) {
            const auto& fields = event.as_object();
            CHECK(fields.at("pid").as_int64() == rank);
            ++seen[std::string(fields.at("ph").as_string()) + " " + std::string(fields.at("name").as_string())];
            if (fields.contains("dur")) CHECK(fields.at("dur").as_double() >= 0);
            if (fields.contains("id"))
                arrows[std::string(fields.at("id").as_string())] += std::string(fields.at("ph").as_string());
        }
        CHECK(seen == std::map<std::string, int>{{"M process_name", 1},
                                                 {"M thread_name", 2},
                                                 {"X backward", 3},
                                                 {"X wait", 3},
                                                 {"X backward without sync", 1},
                                                 {"b bucket 0", 2},
                                                 {"e bucket 0", 2},
                                                 {"b bucket 1", 2},
                                                 {"e bucket 1", 2},
                                                 {"b bucket 0 of reducer 1", 1},
                                                 {"e bucket 0 of reducer 1", 1}});
        CHECK(arrows.size() == 5);
        for (const auto& [id, phases] : arrows) CHECK(phases == "be");
    }
}

TEST_CASE("a reducer made after another has ended continues its file, in a row of its own", "[timeline]") {
    const TemporaryDirectory directory;
    const TimelineVariable variable((directory.path() / "trace.json").string());
    const auto file = timeline_file(directory.path() / "trace.json", 0);
    for (const std::string first : {"reducer 0", "reducer 1"}) {
        ddp::testing::run_ranks({}, [](ddp::Context& context) {
            ddp::GradientReducer reducer(context.world(), {{"a", 8}});
            ddp::testing::run_step(reducer, 1, 1);
        });
        CHECK_THAT(read_file(file), Contains("\"" + first + "\""));
    }
    std::map<std::int64_t, int> waits;  // by row
    for (const auto& event : events_of(file)) {
        const auto& fields = event.as_object();
        if (fields.at("name") == "wait") ++waits[fields.at("tid").as_int64()];
    }
    CHECK(waits == std::map<std::int64_t, int>{{0, 1}, {1, 1}});

    std::filesystem::remove(file);  // a file that was removed is created again
    const auto sizes = ddp::testing::run_ranks({}, [&file](ddp::Context& context) {
        ddp::GradientReducer reducer(context.world(), {{"a", 8}});
        ddp::testing::run_step(reducer, 1, 1);
        return events_of(file).size();  // whole while it grows, too
    });
    CHECK(sizes[0] >= 4);
    CHECK(events_of(file).size() == 6);
}

TEST_CASE("reducers of groups that were split write files by rank of the world", "[timeline]") {
    const TemporaryDirectory directory;
    const TimelineVariable variable((directory.path() / "trace.json").string());
    ddp::testing::run_ranks({.ranks_per_node = {2}}, [](ddp::Context& context) {
        const auto alone = context.world().split(context.rank(), 0, "alone");
        ddp::GradientReducer reducer(*alone, {{"a", 8}});
        ddp::testing::run_step(reducer, 1, 1);
    });
    for (int rank = 0; rank < 2; ++rank) {
        const auto events = events_of(timeline_file(directory.path() / "trace.json", rank));
        CHECK(events.size() == 6);  // two names, a backward, a wait, and a bucket's two ends
    }
}

TEST_CASE("a timeline that cannot be written is refused by name", "[timeline]") {
    const TimelineVariable variable("/nonexistent/trace.json");
    const auto outcomes = ddp::testing::try_ranks({}, [](ddp::Context& context) {
        ddp::GradientReducer(context.world(), {{"a", 1}});
    });
    CHECK_THAT(outcomes[0].text(), Contains("DDP_TIMELINE") && Contains("/nonexistent/trace.rank-0.json") &&
                                       Contains("No such file") && Contains("unset"));
}

TEST_CASE("a directory is refused as a timeline", "[timeline]") {
    const TemporaryDirectory directory;
    const TimelineVariable variable(directory.path());
    const auto outcomes = ddp::testing::try_ranks({}, [](ddp::Context& context) {
        ddp::GradientReducer(context.world(), {{"a", 1}});
    });
    CHECK_THAT(outcomes[0].text(), Contains("DDP_TIMELINE: '" + directory.path().string() + "' is a directory") &&
                                       Contains("timeline.json"));
    CHECK_FALSE(std::filesystem::exists(timeline_file(directory.path(), 0)));
}
