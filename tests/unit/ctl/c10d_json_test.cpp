// The export has the members and the types of c10d's flight recorder, version 2.10, as its analysis reads them.
#include <boost/json.hpp>

#include <chrono>
#include <string>

#include "ctl/c10d_json.hpp"
#include "tests/catch.hpp"

using namespace ddprun;
using namespace ddprun::protocol;
using namespace std::chrono_literals;
namespace json = boost::json;

namespace {

constexpr std::int64_t kNow = 1'700'000'000'000'000'000;

RecordedOperation operation(const std::string& op, std::uint64_t seq) {
    RecordedOperation result;
    result.id = result.seq = seq;
    result.group = 0;
    result.op = op;
    result.dtype = "bf16";
    result.count = result.input_count = 8;
    result.output_count = 32;
    result.queued_ago = 5s;
    return result;
}

RankRecord record() {
    RankRecord record;
    record.rank = Rank{3};
    record.host = "n1";
    record.wall_clock_ns = kNow;
    record.view.written = true;
    record.view.groups.push_back({"world", 3, 4, {{0, 4, 1}}, true, 3, 3, 2});
    record.view.groups.push_back({"world/1.0:odd", 1, 2, {{1, 2, 2}}, true, 0, 0, 0});
    RecordedOperation done = operation("all_gather", 1);
    done.started_ago = 4s;
    done.ended_ago = 3s;
    RecordedOperation going = operation("all_reduce", 2);
    going.started_ago = 2s;
    going.tag = "bucket 3";
    going.timeout = 30min;
    record.view.operations = {done, going, operation("barrier", 3)};
    record.view.operations.back().dtype = "";
    return record;
}

json::object exported(const RankRecord& record) { return json::parse(ctl::to_c10d_json(record, "run")).as_object(); }

}  // namespace

TEST_CASE("a dump has c10d's members: version, groups with their ranks, entries with states, sizes and times",
          "[ctl]") {
    const json::object dump = exported(record());
    CHECK(dump.at("version") == "2.10");
    const json::object& groups = dump.at("pg_config").as_object();
    CHECK(groups.at("world").at("ranks") == "[0, 1, 2, 3]");
    CHECK(groups.at("world/1.0:odd").at("ranks") == "[1, 3]");
    CHECK(dump.at("pg_status").at("0").at("last_completed_collective").to_number<int>() == 2);

    const json::array& entries = dump.at("entries").as_array();
    REQUIRE(entries.size() == 3);
    for (const json::value& value : entries) {
        const json::object& entry = value.as_object();
        CHECK(entry.at("process_group").as_array().size() == 2);
        CHECK(entry.at("input_sizes").as_array().size() == 1);
        for (const char* name : {"record_id", "pg_id", "collective_seq_id", "p2p_seq_id", "op_id", "time_created_ns",
                                 "time_discovered_started_ns", "time_discovered_completed_ns", "timeout_ms"}) {
            CAPTURE(name);
            CHECK(entry.at(name).is_number());
        }
        CHECK(entry.at("is_p2p") == false);
        CHECK(entry.at("retired").is_bool());
    }
    const json::object& done = entries[0].as_object();
    CHECK(done.at("profiling_name") == "nccl:all_gather");
    CHECK(done.at("state") == "completed");
    CHECK(done.at("input_sizes") == json::parse("[[8]]"));
    CHECK(done.at("output_sizes") == json::parse("[[32]]"));
    CHECK(done.at("input_dtypes") == json::parse("[\"BFloat16\"]"));
    CHECK(done.at("time_created_ns") == kNow - 5'000'000'000);
    CHECK(done.at("duration_ms").to_number<double>() == 1000);
    CHECK(done.at("timeout_ms") == 0);  // unknown to its agent
    CHECK(entries[1].at("timeout_ms") == 1'800'000);
    CHECK(entries[1].at("state") == "started");
    CHECK(entries[1].at("time_discovered_completed_ns") == 0);
    CHECK(entries[2].at("state") == "scheduled");
    CHECK(entries[2].at("input_sizes") == json::parse("[[1]]"));
}

TEST_CASE("a dump calls waits at the store barriers: PyTorch's analysis refuses names that it does not know", "[ctl]") {
    for (const char* op : {"init_from_env", "split", "monitored_barrier"}) {
        CAPTURE(op);
        RankRecord waits = record();
        waits.view.operations = {operation(op, 1)};
        CHECK(exported(waits).at("entries").as_array()[0].as_object().at("profiling_name") == "nccl:barrier");
    }
}

TEST_CASE("names are those that PyTorch's analysis knows, and sizes those that it compares", "[ctl]") {
    RankRecord one = record();
    RecordedOperation send = operation("send", 4);
    send.p2p_seq = 1;
    send.peer = 2;
    RecordedOperation receive = send;
    receive.op = "recv";
    RecordedOperation reduce = operation("reduce", 5);
    reduce.output_count = 0;  // of a rank that is not root
    RecordedOperation failed = operation("all_to_all_v", 6);
    failed.started_ago = 2s;
    failed.ended_ago = 1s;
    failed.failed = true;
    RecordedOperation forgotten = operation("all_reduce", 7);
    forgotten.group = -1;
    one.view.operations = {send, receive, reduce, failed, forgotten};
    const json::array entries = exported(one).at("entries").as_array();
    REQUIRE(entries.size() == 4);
    CHECK(entries[0].at("profiling_name") == "nccl:send 3->2");
    CHECK(entries[0].at("is_p2p") == true);
    CHECK(entries[1].at("profiling_name") == "nccl:recv 3<-2");
    CHECK(entries[2].at("output_sizes") == json::parse("[[8]]"));
    CHECK(entries[3].at("profiling_name") == "nccl:all_to_all");
    CHECK(entries[3].at("state") == "started");  // it did not complete
    CHECK(entries[3].at("failed") == true);
}

TEST_CASE("a worker without a flight record exports an empty dump", "[ctl]") {
    RankRecord none;
    none.rank = Rank{1};
    const json::object dump = exported(none);
    CHECK(dump.at("entries").as_array().empty());
    CHECK(dump.at("ddprun").at("has_record") == false);
}
