#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

#include "ctl/find_jobs.hpp"
#include "ctl/options.hpp"
#include "ctl/summary.hpp"
#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"

using namespace ddprun;
using namespace ddprun::protocol;
using namespace std::chrono_literals;
using Catch::Contains;
using Catch::StartsWith;

namespace {

RankRecord at(int rank, std::chrono::nanoseconds since, const std::string& host = "n0") {
    RankRecord record;
    record.rank = Rank{rank};
    record.host = host;
    record.process = ProcessState::kRunning;
    record.view.written = true;
    record.view.groups.push_back({"world", rank, 4, {{0, 4, 1}}, true, 7, 7, 6});
    RecordedOperation& operation = record.view.operations.emplace_back();
    operation.id = operation.seq = 7;
    operation.group = 0;
    operation.op = "all_reduce";
    operation.reduce = "sum";
    operation.dtype = "f32";
    operation.count = 4;
    operation.started_ago = operation.waited_ago = since;
    return record;
}

auto parsed(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "ddpctl");
    return ctl::parse_options(static_cast<int>(arguments.size()), arguments.data());
}

}  // namespace

TEST_CASE("an arrived message without a receive is not the last operation of a rank", "[ctl]") {
    RankRecord idle = at(0, 3s);
    idle.view.operations.back().ended_ago = 2s;
    RecordedOperation& message = idle.view.operations.emplace_back(idle.view.operations.back());
    message.id = 8;
    message.op = "arrived";
    message.p2p_seq = 1;
    message.ended_ago = 1s;
    CHECK_THAT(ctl::summarize({idle}, {"run", Generation{0}, 1, {}, ""}),
               Contains("in no operation; the last, #7 all_reduce sum f32[4], is done, for 2.0 s\n"));
}

TEST_CASE("ranks that do the same share a line, and what workers wrote cannot steer the terminal", "[ctl]") {
    std::vector<RankRecord> records{at(0, 31s), at(1, 30s), at(2, 31s, "n1")};
    RankRecord late = at(3, 0s, "n1");
    late.view.operations.back().waited_ago.reset();
    late.view.phase = "eval\x1b[31m";
    late.process = ProcessState::kStopped;
    late.view.device_call = {.name = "ncclAllReduce", .group = 0, .time = 40s};
    records.push_back(late);
    records.emplace_back().rank = Rank{4};
    records.back().process = ProcessState::kRunning;
    const Inspected end{"run", Generation{2}, 5, {"n2"}, "LAGGING rank 3"};
    const std::string text = ctl::summarize(records, end);
    CAPTURE(text);
    CHECK_THAT(text, StartsWith("job 'run', generation 2: 5 ranks on "));
    CHECK_THAT(text, Contains("  ranks 0-2: in #7 all_reduce sum f32[4] of 'world', for 30.0 s to 31.0 s\n"));
    CHECK_THAT(text, Contains("  rank 3 (n1): in no operation; under way is #7 all_reduce sum f32[4]; phase "
                              "'eval\\x1b[31m'; process stopped\n"));
    CHECK_THAT(text, Contains("  rank 3 (n1): its NCCL thread is in ncclAllReduce of group 'world', for 40.0 s\n"));
    CHECK_THAT(text, Contains("no flight record: its program does not use ddp::ddp"));
    CHECK_THAT(text, Contains("  node n2 did not answer\nLAGGING rank 3\n"));
    CHECK_THAT(ctl::summarize(records, end, "train --lr 1"),
               StartsWith("job 'run' (train --lr 1), generation 2: 5 ranks"));
    CHECK(ctl::summarize({}, {"run", Generation{0}, 0, {}, "no workers run: 1 of 2 nodes are here"}) ==
          "job 'run': no workers run: 1 of 2 nodes are here\n");
}

TEST_CASE("the job of a process is in its environment", "[ctl]") {
    using namespace std::string_literals;
    CHECK(ctl::job_of("A=1\0DDPRUN_ENDPOINT=127.0.0.1:4711\0DDPRUN_RUN_ID=r\0"s) ==
          ctl::Job{"r", "127.0.0.1:4711", 0, ""});
    CHECK(ctl::job_of("PATH=/bin\0XDDPRUN_ENDPOINT=x\0"s).endpoint.empty());
    CHECK(ctl::job_of("").endpoint.empty());
}

TEST_CASE("jobs of one machine are distinguished by their command", "[ctl]") {
    using namespace std::string_literals;
    CHECK(ctl::command_of("/opt/bin/train\0--steps\0"s + "100\0"s) == "train --steps 100");
    CHECK(ctl::command_of("python3\0-u\0train.py\0"s) == "python3 -u train.py");
    CHECK(ctl::command_of("a\0\x1b[31m\0"s) == "a \\x1b[31m");
    CHECK(ctl::command_of("") == "");
    const std::string cut = ctl::command_of("train\0"s + std::string(90, 'x') + "äääääää\0"s);
    CHECK(cut.size() <= 100);
    CHECK_THAT(cut, StartsWith("train x") && Catch::EndsWith(" …"));
    CHECK(ctl::describe({"run", "n1:1", 4, "train --lr 1"}) == "'run': train --lr 1, 4 workers on this machine");
    CHECK(ctl::describe({"", "n1:1", 0, "ddprun train"}) == "ddprun train, without workers here");
    CHECK(ctl::describe({"run", "n1:1", 1, ""}) == "'run', 1 worker on this machine");
    CHECK(ctl::describe({"run", "n1:1"}) == "'run'");
}

TEST_CASE("a worker is counted once, whatever it has started in process groups of its own", "[ctl]") {
    const TemporaryDirectory directory;
    const std::string ready = directory.path() / "ready";
    REQUIRE(::mkfifo(ready.c_str(), 0600) == 0);
    const std::string endpoint = "find-jobs-" + std::to_string(::getpid()) + ":1";
    // timeout(1) leads a group of its own. All of it ends when stdin does.
    const std::string worker = "exec env -i PATH=\"$PATH\" DDPRUN_ENDPOINT=" + endpoint +
                               " DDPRUN_RUN_ID=run setsid sh -c 'timeout 1000 sh -c \"echo > " + ready +
                               "; exec sleep 1000\" & read line; kill $!; wait'";
    std::FILE* stdin_of_worker = ::popen(worker.c_str(), "w");
    REQUIRE(stdin_of_worker);
    std::ifstream(ready).get();  // until the inner shell runs

    std::vector<ctl::Job> jobs = ctl::find_jobs();
    std::erase_if(jobs, [&](const ctl::Job& job) { return job.endpoint != endpoint; });
    ::pclose(stdin_of_worker);
    REQUIRE(jobs.size() == 1);
    CHECK(jobs[0].run_id == "run");
    CHECK(jobs[0].workers == 1);
    CHECK_THAT(jobs[0].command, StartsWith("sh -c "));
}

TEST_CASE("ddpctl takes an endpoint, a folder and a time, and refuses anything else", "[ctl]") {
    const auto options = parsed({"dump", "--rdzv-endpoint", "n1", "--output", "d", "--timeout", "2.5"});
    REQUIRE(std::holds_alternative<ctl::DumpOptions>(options));
    CHECK(std::get<ctl::DumpOptions>(options).endpoint == Endpoint{"n1", 29400});
    CHECK(std::get<ctl::DumpOptions>(options).output == "d");
    CHECK(std::get<ctl::DumpOptions>(options).timeout == 2500ms);
    CHECK(std::get<ctl::DumpOptions>(parsed({"dump", "--rdzv_endpoint=[::1]:1"})).endpoint == Endpoint{"::1", 1});
    const std::vector<std::vector<const char*>> wrong{{},
                                                      {"dmup"},
                                                      {"dump", "--rdzv-endpoint", "n1:99999"},
                                                      {"dump", "--timeout", "-1"},
                                                      {"dump", "--timeout", "nan"},
                                                      {"dump", "--output", ""},
                                                      {"dump", "more"},
                                                      {"status", "n1"},
                                                      {"status", "--output", "d"},
                                                      {"status", "--decisions", "201"},
                                                      {"status", "--decisions", "-1"},
                                                      {"status", "--decisions", "few"},
                                                      {"checkpoint"},
                                                      {"checkpoint", ""},
                                                      {"checkpoint", "a", "b"},
                                                      {"checkpoint", "a", "--timeout", "1"},
                                                      {"drain"},
                                                      {"drain", ""},
                                                      {"drain", "n1", "n2"},
                                                      {"drain", "n1", "--all"},
                                                      {"undrain", "--timeout", "1"},
                                                      {"undrain", "n1", "--rdzv-endpoint", "n1:99999"}};
    for (const std::vector<const char*>& arguments : wrong) CHECK(std::get<int>(parsed(arguments)) == 2);
    CHECK(ctl::unknown_command("dmup") == "there is no command 'dmup'. Did you mean dump?");
    CHECK(ctl::unknown_command("undrian") == "there is no command 'undrian'. Did you mean undrain?");
    CHECK(ctl::unknown_command("restart") == "there is no command 'restart'.");
    CHECK(std::get<ctl::CheckpointOptions>(parsed({"checkpoint", "a"})).path == "a");
    for (const char* known : {"status", "dump", "drain", "undrain", "checkpoint", "--help", ""})
        CHECK(ctl::unknown_command(known) == "");
}

TEST_CASE("every command of ddpctl takes the job's endpoint and a time", "[ctl]") {
    const auto status = parsed({"status", "--rdzv-endpoint", "n1:1", "--timeout", "2", "--all", "--decisions", "200"});
    REQUIRE(std::holds_alternative<ctl::StatusOptions>(status));
    CHECK(std::get<ctl::StatusOptions>(status).endpoint == Endpoint{"n1", 1});
    CHECK(std::get<ctl::StatusOptions>(status).timeout == 2s);
    CHECK(std::get<ctl::StatusOptions>(status).all);
    CHECK(std::get<ctl::StatusOptions>(status).decisions == 200);
    CHECK(std::get<ctl::StatusOptions>(parsed({"status"})).decisions == 20);
    const auto drain = parsed({"drain", "n1#2", "--rdzv-endpoint", "n1:1"});
    REQUIRE(std::holds_alternative<ctl::OrderOptions>(drain));
    CHECK(std::get<ctl::OrderOptions>(drain).command == Order::Command::kDrain);
    CHECK(std::get<ctl::OrderOptions>(drain).node == "n1#2");
    CHECK(std::get<ctl::OrderOptions>(drain).endpoint == Endpoint{"n1", 1});
    CHECK(std::get<ctl::OrderOptions>(drain).typed == "drain n1#2");
    CHECK_FALSE(std::get<ctl::OrderOptions>(drain).wait);
    CHECK(std::get<ctl::OrderOptions>(parsed({"drain", "n1", "--wait"})).wait);
    const auto undrain = parsed({"undrain", "--timeout", "3", "n1"});
    REQUIRE(std::holds_alternative<ctl::OrderOptions>(undrain));
    CHECK(std::get<ctl::OrderOptions>(undrain).command == Order::Command::kUndrain);
    CHECK(std::get<ctl::OrderOptions>(undrain).node == "n1");
    CHECK(std::get<ctl::OrderOptions>(undrain).timeout == 3s);
}
