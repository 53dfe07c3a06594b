// The command line: accepted spellings, precedence, and its end at the program's name.

#include "launcher/options/options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <csignal>

#include "launcher/options/command_line.hpp"
#include "launcher/options/option_table.hpp"
#include "tests/catch.hpp"

using namespace ddprun::launcher;
using namespace std::chrono_literals;
using Words = std::vector<std::string>;
using Given = decltype(ProgramLine::given);

namespace {

Options parsed(const Words& words, const Environment& environment = {}) {
    const auto invocation = parse_options(words, environment);
    INFO((invocation ? "" : invocation.error().message));
    REQUIRE(invocation.has_value());
    return invocation->options;
}

/// A value that each option takes; a new row of the table needs one here.
const std::map<std::string_view, std::string> kSamples{
    {"nnodes", "2:3"},
    {"nproc-per-node", "4"},
    {"gpus", "0,2"},
    {"numa-binding", "core-complex"},
    {"max-restarts", "1"},
    {"scale-up", "never"},
    {"role", "trainer"},
    {"rdzv-endpoint", "n1"},
    {"rdzv-id", "mnist"},
    {"hosts", "n1,n2:2"},
    {"ssh", "ssh -p 2222"},
    {"as-ssh-node", "0@4f@n1"},
    {"node-rank", "0"},
    {"master-addr", "n1"},
    {"master-port", "29501"},
    {"rdzv-conf", "timeout=9"},
    {"rdzv-backend", "c10d"},
    {"rdzv-dir", "/shared"},
    {"log-dir", "/logs"},
    {"redirects", "3"},
    {"tee", "0:3,1:1"},
    {"duplicate-stdout-filters", "loss,step"},
    {"duplicate-stderr-filters", "Error"},
    {"temporary-log-dir", "/tmp/x"},
    {"shutdown-timeout", "5"},
    {"stall-warning", "30"},
    {"preempt-before", "60"},
    {"fence", "cgroup"},
    {"local-addr", "10.0.0.1"},
    {"monitor-interval", "5"},
    {"start-method", "fork"},
    {"logs-specs", "default"},
    {"as-local-node", "1@127.0.0.1:4000"},
    {"event-log-handler", "null"},
    {"signals-to-handle", "SIGTERM,SIGUSR1"},
    {"log-line-prefix-template", "$rank"},
    {"local-ranks-filter", "0,1"},
    {"ranks-filter", "0,8-15"},
    {"log-max-size", "100M"},
    {"log-keep", "5"},
    {"grep", "loss|error"},
    {"exclude", "^DEBUG"},
    {"report", "/tmp/report.json"},
    {"events", "/tmp/events.jsonl"},
};

}  // namespace

TEST_CASE("every option is accepted in both spellings, with '=' and without", "[launcher][unit]") {
    for (const OptionRow& row : option_table()) {
        CAPTURE(row.name);
        std::string underscored(row.name);
        std::ranges::replace(underscored, '-', '_');
        for (const std::string& name : {std::string(row.name), underscored}) {
            if (row.is_flag()) {
                const auto line = read_command_line({"--" + name, "prog"});
                REQUIRE(line.has_value());
                CHECK(line->programs.at(0).given == Given{{std::string(row.name), "1"}});
                CHECK(line->programs.at(0).command == Words{"prog"});
                continue;
            }
            REQUIRE(kSamples.contains(row.name));
            const std::string& value = kSamples.at(row.name);
            for (const Words& words : {Words{"--" + name, value, "prog"}, Words{"--" + name + "=" + value, "prog"}}) {
                const auto line = read_command_line(words);
                REQUIRE(line.has_value());
                CHECK(line->programs.at(0).given == Given{{std::string(row.name), value}});
                CHECK(line->programs.at(0).command == Words{"prog"});
                CHECK(parse_options(words, {{"PET_RDZV_ID", "job"}}).has_value());  // --rdzv-dir needs it
            }
        }
    }
}

TEST_CASE("GPUs are named by number, range or UUID, and decide how many workers there are", "[launcher][unit]") {
    CHECK_FALSE(parsed({"prog"}).gpus.has_value());
    CHECK_FALSE(parsed({"--gpus", "", "prog"}).gpus.has_value());
    CHECK(parsed({"--gpus", "auto", "prog"}).gpus == Words{});
    CHECK(parsed({"--gpus", "4-6, 0,GPU-8a1f,MIG-3", "prog"}).gpus == Words{"4", "5", "6", "0", "GPU-8a1f", "MIG-3"});
    CHECK(parsed({"--gpus", "0,2", "prog"}).programs[0].slots.kind == Slots::Kind::kGpu);
    CHECK(parsed({"--nproc-per-node", "1", "--gpus", "0,2", "prog"}).programs[0].slots ==
          Slots{Slots::Kind::kCount, 1});
    CHECK(parsed({"prog"}, {{"PET_GPUS", "1"}}).gpus == Words{"1"});
}

TEST_CASE("the kinds of binding have torchrun's names", "[launcher][unit]") {
    CHECK_FALSE(parsed({"prog"}).numa_binding.has_value());
    CHECK_FALSE(parsed({"--numa-binding", "", "prog"}).numa_binding.has_value());
    for (const std::string name : {"node", "socket", "exclusive", "core-complex"})
        CHECK(to_string(parsed({"--numa_binding", name, "prog"}).numa_binding.value()) == name);
    CHECK(parsed({"prog"}, {{"PET_NUMA_BINDING", "socket"}}).numa_binding == NumaBinding::kSocket);
}

TEST_CASE("every shown option has a PET_ variable, and the command line wins over it", "[launcher][unit]") {
    for (const OptionRow& row : option_table()) {
        if (row.group.empty()) continue;
        CAPTURE(row.name);
        const std::string value = row.is_flag() ? "1" : kSamples.at(row.name);
        CHECK(parse_options({"prog"}, {{"PET_RDZV_ID", "job"}, {variable_name(row), value}}).has_value());
        // A variable that is overridden may hold anything.
        const Words words = row.is_flag() ? Words{fmt::format("--{}", row.name), "prog"}
                                          : Words{fmt::format("--{}", row.name), value, "prog"};
        CHECK(parse_options(words, {{"PET_RDZV_ID", "job"}, {variable_name(row), "3:2:1"}}).has_value());
    }
    CHECK(parsed({"prog"}, {{"PET_NNODES", "2:4"}}).nodes == NodeRange{2, 4});
    CHECK(parsed({"--nnodes", "3", "prog"}, {{"PET_NNODES", "2:4"}}).nodes == NodeRange{3, 3});
    CHECK(parsed({"prog"}, {{"PET_RDZV_ID", ""}}).rdzv_id == std::nullopt);
}

TEST_CASE("flags in variables are yes or no in several words", "[launcher][unit]") {
    for (const std::string yes : {"1", "true", "YES", "on"})
        CHECK(parsed({"prog"}, {{"PET_STANDALONE", yes}}).standalone);
    for (const std::string no : {"0", "False", "no", "off"})
        CHECK_FALSE(parsed({"prog"}, {{"PET_STANDALONE", no}}).standalone);
    const auto refused = parse_options({"prog"}, {{"PET_STANDALONE", "maybe"}});
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().message ==
          "PET_STANDALONE=maybe: neither yes nor no. Write 1/0, true/false, yes/no or on/off.");
}

TEST_CASE("without options the job is one node with one worker", "[launcher][unit]") {
    const Options options = parsed({"prog"});
    CHECK(options.nodes == NodeRange{1, 1});
    CHECK(options.programs[0].slots == Slots{Slots::Kind::kCount, 1});
    CHECK(options.programs[0].max_restarts == 0);
    CHECK(options.grace == 30s);
    CHECK(options.stall_warning == 30s);
    CHECK_FALSE(options.rdzv_endpoint);
    CHECK_FALSE(options.rdzv_id);
    CHECK_FALSE(options.log_dir);
    CHECK(options.notes.empty());
}

TEST_CASE("each option sets its member of Options", "[launcher][unit]") {
    const Options options =
        parsed({"--nnodes", "2:4", "--nproc_per_node=gpu", "--rdzv-endpoint", "[::1]:1234", "--rdzv-id", "x",
                "--rdzv-conf", "join_timeout=90,last_call_timeout=1.5,is_host=true", "-t3", "--node-rank", "0",
                "--max-restarts", "3", "--shutdown-timeout", "0.5", "prog"});
    CHECK(options.nodes == NodeRange{2, 4});
    CHECK(options.programs[0].slots.kind == Slots::Kind::kGpu);
    CHECK(options.rdzv_endpoint == ddprun::Endpoint{"::1", 1234});
    CHECK(options.rdzv_id == "x");
    CHECK(options.rdzv_conf.join_timeout == 90s);
    CHECK(options.rdzv_conf.last_call_timeout == 1500ms);
    CHECK(options.rdzv_conf.is_host == true);
    CHECK(options.tee == StreamCodes{StreamCode::kBoth});
    CHECK_FALSE(options.log_dir);
    CHECK(options.node_rank == 0);
    CHECK(options.programs[0].max_restarts == 3);
    CHECK(options.grace == 500ms);
    CHECK(parsed({"--local_ranks_filter=0,2", "prog"}).console_ranks == std::vector<int>{0, 2});
    CHECK(parsed({"--local-ranks-filter", " 0, 2 ", "prog"}).console_ranks == std::vector<int>{0, 2});
    CHECK(parsed({"--local-ranks-filter", "", "prog"}).console_ranks.empty());
    CHECK(parsed({"--ranks-filter", "0, 8-15", "prog"}).console_job_ranks == ddprun::RankRanges{{0, 0}, {8, 15}});
    CHECK(parsed({"--log-max-size", "100M", "prog"}).max_log_bytes == 100u << 20);
    CHECK(parsed({"--log-max-size", "2G", "prog"}).max_log_bytes == std::uint64_t{2} << 30);
    CHECK(parsed({"--log-max-size", "1024", "prog"}).max_log_bytes == 1024);
    CHECK(parsed({"--ranks-filter", "", "prog"}).console_job_ranks.empty());
    CHECK_FALSE(parsed({"--grep", "", "prog"}).shown.has_value());
    CHECK(parsed({"--log-line-prefix-template", "${rank}: ", "prog"}).label_template == "${rank}: ");
    CHECK(parsed({"prog"}, {{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "x"}}).label_template == "x");
    CHECK(parsed({"prog"}, {{"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE", "x"}}).label_source ==
          "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
    CHECK(parsed({"--log-line-prefix-template", "x", "prog"}).label_source == "--log-line-prefix-template");
    CHECK(parsed({"--run_path", "prog"}).programs[0].run_path);
    CHECK(parsed({"-v", "prog"}).verbose);
    CHECK(parsed({"--nproc-per-node", "xpu", "prog"}).programs[0].slots.kind == Slots::Kind::kXpu);
    CHECK(parsed({"--log-dir", "/logs", "prog"}).log_dir == "/logs");
    CHECK(parsed({"--log-dir", "/dev/null", "-t3", "prog"}).log_dir == "");
    CHECK(parsed({"--rdzv-endpoint", "n1", "prog"}).rdzv_endpoint == ddprun::Endpoint{"n1", 29400});
    CHECK(parsed({"--nnodes", "2", "--nnodes", "5", "prog"}).nodes == NodeRange{5, 5});
    CHECK(parsed({"prog"}, {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "7"}}).grace == 7s);
    CHECK(parsed({"--stall-warning", "0", "prog"}).stall_warning == 0s);
    CHECK_FALSE(parsed({"prog"}).preempt_before);
    CHECK(parsed({"--preempt-before", "90", "prog"}).preempt_before == 90s);
    CHECK_FALSE(parsed({"prog"}).job_ends_at);
    CHECK(parsed({"--standalone", "prog"}, {{"SLURM_JOB_END_TIME", "1790000000"}}).job_ends_at ==
          std::chrono::system_clock::time_point(1'790'000'000s));
    CHECK(parsed({"--virtual_local_rank", "prog"}).virtual_local_rank);
    CHECK(parsed({"prog"}, {{"PET_VIRTUAL_LOCAL_RANK", "1"}}).virtual_local_rank);
    CHECK(parsed({"prog"}).handled_signals == std::vector<int>{SIGTERM, SIGINT, SIGHUP, SIGQUIT});
    CHECK(parsed({"--signals-to-handle", "SIGTERM, USR1", "prog"}).handled_signals ==
          std::vector<int>{SIGTERM, SIGUSR1});
    CHECK(parsed({"prog"}, {{"PET_SIGNALS_TO_HANDLE", ""}}).handled_signals.empty());
    CHECK(parsed({"prog"}, {{"PET_STALL_WARNING", "2.5"}}).stall_warning == 2500ms);
}

TEST_CASE("streams are chosen for all ranks or for each, on the command line and in variables", "[launcher][unit]") {
    const StreamCodes map{StreamCode::kNone, {{0, StreamCode::kBoth}, {12, StreamCode::kStdout}}};
    for (const Words& words :
         {Words{"-r", "0:3,12:1", "prog"}, Words{"-r0:3,12:1", "prog"}, Words{"--redirects=0:3, 12:1", "prog"}})
        CHECK(parsed(words).redirects == map);
    CHECK(parsed({"prog"}, {{"PET_REDIRECTS", "0:3,12:1"}}).redirects == map);
    CHECK(parsed({"prog"}, {{"PET_TEE", "2"}}).tee == StreamCodes{StreamCode::kStderr});
    CHECK(parsed({"-t", "1", "prog"}).tee == StreamCodes{StreamCode::kStdout});
    CHECK(map.of(12) == StreamCode::kStdout);
    CHECK(map.of(1) == StreamCode::kNone);
    CHECK(map.any());
    CHECK_FALSE(parsed({"-r", "0:0", "prog"}).redirects.any());
}

TEST_CASE("redirected output goes to a temporary folder unless the user names one", "[launcher][unit]") {
    CHECK(wants_temporary_log_dir(parsed({"-r", "1:2", "prog"})));
    CHECK(wants_temporary_log_dir(parsed({"-r", "3", "--log-dir", "", "prog"})));
    CHECK(writes_files(parsed({"-r", "3", "prog"})));
    for (const Words& words : {Words{"prog"}, Words{"-t", "3", "prog"}, Words{"-r", "0", "prog"},
                               Words{"-r", "3", "--log-dir", "/dev/null", "prog"}}) {
        CAPTURE(words);
        CHECK_FALSE(wants_temporary_log_dir(parsed(words)));
        CHECK_FALSE(writes_files(parsed(words)));
    }
    CHECK_FALSE(wants_temporary_log_dir(parsed({"-r", "3", "--log-dir", "logs", "prog"})));
    CHECK(writes_files(parsed({"--log-dir", "logs", "prog"})));
}

TEST_CASE("filters are texts separated by commas, with two of them for one", "[launcher][unit]") {
    using Texts = std::vector<std::string>;
    CHECK(parsed({"--duplicate-stdout-filters", "a,,b,c", "prog"}).stdout_filters == Texts{"a,b", "c"});
    CHECK(parsed({"--duplicate_stderr_filters=x y,", "prog"}).stderr_filters == Texts{"x y"});
    CHECK(parse_filters(",,,x") == Texts{",", "x"});
    CHECK(parse_filters("").empty());
    CHECK(parsed({"prog"}, {{"PET_DUPLICATE_STDOUT_FILTERS", "loss"}}).stdout_filters == Texts{"loss"});
}

TEST_CASE("`check` is a job of ddp-check, with options on both sides of its name", "[launcher][unit]") {
    for (const Words& words : {Words{"check", "--nnodes", "2", "--json", "f", "--nproc_per_node=3"},
                               Words{"--nnodes=2", "check", "--nproc-per-node", "3", "--json=f"},
                               Words{"--nnodes=2", "--nproc-per-node", "3", "check", "--json", "f", "--"}}) {
        CAPTURE(words);
        const Options options = parsed(words);
        CHECK(options.nodes == NodeRange{2, 2});
        CHECK(options.programs[0].slots == Slots{Slots::Kind::kCount, 3});
        CHECK(options.programs[0].check);
        CHECK(options.programs[0].command == Words{"ddp-check", "--json", "f"});
    }
    CHECK(parsed({"check"}).programs[0].command == Words{"ddp-check"});
    CHECK(parsed({"check", "--json=f"}).programs[0].command == Words{"ddp-check", "--json", "f"});
    CHECK_THAT(parse_options({"check", "--help"}, {})->print, Catch::StartsWith("Usage: ddprun check "));

    for (const Words& words :
         {Words{"./check"}, Words{"--", "check"}, Words{"-m", "check"}, Words{"--run-path", "check"},
          Words{"--no-python", "check"}, Words{"--role", "check", "prog"}, Words{"prog", "check"}}) {
        CAPTURE(words);
        CHECK_FALSE(parsed(words).programs[0].check);
    }
    const Options two = parsed({"prog", ":", "--nproc-per-node", "1", "check", "--json", "f"});
    CHECK_FALSE(two.programs[1].check);
    CHECK(two.programs[1].command == Words{"check", "--json", "f"});
}

TEST_CASE("parsing ends at the program's name", "[launcher][unit]") {
    const Options options = parsed({"--nproc_per_node", "2", "prog", "--nnodes", "7", "-m", "--", "--help", ""});
    CHECK(options.nodes == NodeRange{1, 1});
    CHECK_FALSE(options.programs[0].module);
    CHECK(options.programs[0].command == Words{"prog", "--nnodes", "7", "-m", "--", "--help", ""});
    CHECK(parsed({"--nnodes", "1", "--", "--odd-name", "-x"}).programs[0].command == Words{"--odd-name", "-x"});
    CHECK(parsed({"-m", "package.module", "--standalone"}).programs[0].command ==
          Words{"package.module", "--standalone"});
    CHECK(parsed({"--rdzv-endpoint=", "prog"}).programs[0].command == Words{"prog"});
    CHECK(parsed({"--rdzv-id", "--strange", "prog"}).rdzv_id == "--strange");
}

TEST_CASE("a ':' directly before --nproc-per-node begins another program", "[launcher][unit]") {
    const Options options = parsed({"--nproc-per-node",
                                    "2",
                                    "--max-restarts",
                                    "1",
                                    "train",
                                    "--lr",
                                    "1",
                                    ":",
                                    "--nproc-per-node",
                                    "1",
                                    "-m",
                                    "pkg.serve",
                                    "--port",
                                    "0",
                                    ":",
                                    "--nproc_per_node=gpu",
                                    "--role",
                                    "eval",
                                    "--max-restarts=3",
                                    "--",
                                    "./eval.py"},
                                   {{"PET_MAX_RESTARTS", "9"}, {"PET_ROLE", "first"}, {"PET_NO_PYTHON", "1"}});
    REQUIRE(options.programs.size() == 3);
    const Program& first = options.programs[0];
    CHECK(first.command == Words{"train", "--lr", "1"});
    CHECK(first.slots == Slots{Slots::Kind::kCount, 2});
    CHECK(first.role == "first");
    CHECK(first.max_restarts == 1);
    CHECK(first.no_python);
    const Program& second = options.programs[1];
    CHECK(second.command == Words{"pkg.serve", "--port", "0"});
    CHECK(second.role == "pkg.serve");
    CHECK(second.module);
    CHECK_FALSE(second.no_python);  // variables are for the first program
    CHECK(second.max_restarts == 0);
    const Program& third = options.programs[2];
    CHECK(third.command == Words{"./eval.py"});
    CHECK(third.slots.kind == Slots::Kind::kGpu);
    CHECK(third.role == "eval");
    CHECK(third.max_restarts == 3);
    CHECK(options.notes.empty());
    CHECK(parsed({"a", ":", "--nproc-per-node", "1", "bin/serve.py"}).programs[1].role == "serve");
}

TEST_CASE("any other ':' is an argument of the program, with a note", "[launcher][unit]") {
    for (const Words& words : {Words{"prog", "a:", "--nproc-per-node", "1"}, Words{"prog", "::", "x"},
                               Words{"--role", ":", "--nproc-per-node", "1", "prog"}}) {
        CAPTURE(words);
        CHECK(parsed(words).programs.size() == 1);
        CHECK(parsed(words).notes.empty());
    }
    for (const Words& words : {Words{"prog", ":"}, Words{"prog", ":", "x"}, Words{"prog", ":", "--nnodes", "2"},
                               Words{"prog", "x", ":", "--max_restarts=1", "--nproc-per-node", "1"},
                               Words{"prog", ":--nproc-per-node", "1"}}) {
        CAPTURE(words);
        const Options options = parsed(words);
        CHECK(options.programs[0].command == words);
        REQUIRE(options.notes.size() == 1);
        CHECK_THAT(options.notes[0],
                   Catch::EndsWith("' is passed to prog: another program of the job begins with ': --nproc-per-node "
                                   "N'"));
    }
}

TEST_CASE("the report is found although the options of a further program are wrong", "[launcher][unit]") {
    CHECK(named_report({"--report", "r.json", "prog", ":", "--nproc-per-node", "1", "--nonsense"}, {}) == "r.json");
    CHECK(named_report({"prog", "--report", "r.json"}, {}).empty());
}

TEST_CASE("options without effect are accepted with a note", "[launcher][unit]") {
    const auto quiet = [](const Words& words, const Environment& environment = {}) {
        const Options options = parsed(words, environment);
        CHECK(options.notes.empty());
        return options.details;
    };
    CHECK(quiet({"--monitor-interval", "5", "--start-method", "fork", "prog"}).size() == 2);
    CHECK(quiet({"--event-log-handler", "null", "prog"}).empty());
    CHECK(quiet({"--event-log-handler", "console", "prog"}).size() == 1);
    CHECK(quiet({"prog"}, {{"TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1"}}).size() == 1);
    CHECK(quiet({"prog"}, {{"TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "0"}}).empty());
    CHECK(quiet({"--master-addr", "n1", "--master-port", "7", "--rdzv-endpoint", "n1:7", "prog"}).size() == 1);
    CHECK(parsed({"--master-port", "8", "--rdzv-endpoint", "n1:7", "prog"}).notes.size() == 1);
    CHECK(parsed({"--standalone", "--rdzv-endpoint", "n1", "prog"}).notes.size() == 1);
    CHECK(parsed({"--master-addr", "n1", "--rdzv-endpoint", "n2", "prog"}).notes.size() == 1);
    CHECK(parsed({"--local-nodes", "--rdzv-endpoint", "n1", "prog"}).notes.size() == 1);
    CHECK(parsed({"--local-nodes", "--master-port", "1", "prog"}).notes.size() == 1);
    CHECK(parsed({"--log-line-prefix-template", "$rank", "prog"}).notes.size() == 1);
    CHECK(parsed({"--standalone", "--master-port", "1", "prog"}).notes.size() == 1);
    CHECK(parsed({"--local-nodes", "--node-rank", "0", "prog"}).notes.size() == 1);
    CHECK(parsed({"--local-nodes", "--nnodes", "2", "--spare", "prog"}).notes.size() == 1);
    CHECK(parsed({"--spare", "prog"}).notes.size() == 1);
    CHECK_FALSE(parsed({"--nnodes", "2", "prog"}).insecure);
    CHECK(parsed({"--nnodes", "2", "--insecure", "prog"}).insecure);
    CHECK(parsed({"--nnodes", "2", "--store-vouch", "prog"}).store_vouch);
    for (const Words& other : {Words{"--insecure"}, Words{"--local-addr", "10.0.0.1"}}) {
        Words words{"--nnodes", "2", "--store-vouch"};
        words.insert(words.end(), other.begin(), other.end());
        words.push_back("prog");
        const auto refused = parse_options(words, {});
        REQUIRE_FALSE(refused.has_value());
        CHECK_THAT(refused.error().message, Catch::StartsWith("--store-vouch and " + other.front() + " exclude"));
    }
    CHECK(parsed({"--spare", "--rdzv-endpoint", "n1", "prog"}).notes.empty());
    CHECK(parsed({"--spare", "--nnodes", "2", "prog"}).notes.empty());
    CHECK(parsed({"--run-path", "--no-python", "prog"}).notes.size() == 1);
    CHECK(parsed({"--run-path", "-m", "prog"}).notes.size() == 1);
    CHECK(parsed({"--log-line-prefix-template", "$rank", "--label", "prog"}).notes.empty());
    CHECK(parsed({"--duplicate-stdout-filters", "loss", "--tee", "3", "prog"}).notes.size() == 1);
    CHECK(parsed({"--duplicate-stderr-filters", "loss", "--log-dir", "logs", "prog"}).notes.size() == 1);
    CHECK(parsed({"--duplicate-stdout-filters=loss", "-t1", "--log-dir=logs", "prog"}).notes.empty());
    const auto notes = quiet({"--rdzv-conf", "close_timeout=5,timeout=3,heartbeat_timeout=3", "prog"});
    REQUIRE(notes.size() == 1);
    CHECK_THAT(notes[0], Catch::Contains("close_timeout, heartbeat_timeout"));
    const auto keep_alive =
        parsed({"--rdzv-conf", "keep_alive_interval=0.5,keep_alive_max_attempt=4", "prog"}).rdzv_conf;
    CHECK(keep_alive.keep_alive_interval == std::chrono::milliseconds(500));
    CHECK(keep_alive.keep_alive_attempts == 4);
}

TEST_CASE("a variable that no option reads is noted, aloud if it resembles one that is read", "[launcher][unit]") {
    const auto notes_of = [](const char* name) { return parsed({"prog"}, {{name, "2"}, {"PET_NNODES", "1"}}).notes; };
    using Notes = std::vector<std::string>;
    CHECK(notes_of("PET_NNODE") == Notes{"no option reads PET_NNODE. Did you mean PET_NNODES?"});
    CHECK(notes_of("PET_NPROC_PER_NODES") ==
          Notes{"no option reads PET_NPROC_PER_NODES. Did you mean PET_NPROC_PER_NODE?"});
    CHECK(notes_of("PET_STANDALONE_").size() == 1);
    for (const char* name : {"PET_NAME", "PET_TYPE", "PET_STORE_URL", "PETS", "PET"}) {
        CAPTURE(name);
        CHECK(notes_of(name).empty());
    }
    CHECK(parsed({"prog"}, {{"PET_STORE_URL", "x"}}).details == Notes{"no option reads PET_STORE_URL."});
    CHECK(parsed({"prog"}, {{"PETS", "x"}}).details.empty());
    CHECK(parsed({"prog"}, {{"PET_AS_LOCAL_NODE", "x"}}).details.size() == 1);
}

TEST_CASE("a standalone job has one node, if one is enough", "[launcher][unit]") {
    const Options options = parsed({"--standalone", "--nnodes", "1:2", "prog"});
    CHECK(options.nodes == NodeRange{1, 1});
    CHECK(options.notes.empty());
    REQUIRE(options.details.size() == 1);
    CHECK_THAT(options.details[0], Catch::Contains("no other can join"));
    CHECK(parsed({"--standalone", "--nnodes", "1:2", "--local-nodes", "prog"}).nodes == NodeRange{1, 2});
}

TEST_CASE("blanks around the keys and values of --rdzv-conf do not count, and torchrun's own keys do",
          "[launcher][unit]") {
    const RdzvConf conf =
        parsed({"--rdzv-conf", " join_timeout = 9 , last_call_timeout=2 ,is_host= no", "prog"}).rdzv_conf;
    CHECK(conf.join_timeout == 9s);
    CHECK(conf.last_call_timeout == 2s);
    CHECK(conf.is_host == false);
    CHECK(parsed({"--rdzv-conf", "  ", "prog"}).details.empty());
    const Options ranked = parsed({"--nnodes", "3", "--rdzv-conf", "rank=2, store_type=tcp", "prog"});
    CHECK(ranked.node_rank == 2);
    CHECK(ranked.details.empty());
    CHECK(parsed({"--nnodes", "3", "--node-rank", "1", "--rdzv-conf", "rank=2", "prog"}).node_rank == 1);
}

TEST_CASE("the id of a job may be any text", "[launcher][unit]") {
    for (const std::string& id : {std::string("a/b"), std::string(".."), std::string(220, 'x'),
                                  std::string("my job: 1/2"), std::string("größe")}) {
        CHECK(parsed({"--rdzv-id", id, "prog"}).rdzv_id == id);
    }
}

TEST_CASE("help and version are printed whatever else is there", "[launcher][unit]") {
    for (const std::string word : {"-h", "--help"}) {
        const auto invocation = parse_options({"--nnodes", "2", word}, {});
        REQUIRE(invocation.has_value());
        INFO(invocation->print);
        for (const OptionRow& row : option_table()) {
            const bool shown = invocation->print.find(fmt::format("--{}", row.name)) != std::string::npos;
            CHECK(shown == !row.group.empty());
        }
        CHECK_THAT(invocation->print, Catch::Contains("Usage: ddprun [options] program [arguments]"));
        CHECK_THAT(invocation->print, Catch::Contains("Examples:"));
    }
    CHECK(parse_options({"--version"}, {})->print.starts_with("ddprun "));
}

TEST_CASE("etcd takes its servers from --rdzv-endpoint, whatever the order", "[launcher][unit]") {
    const auto parse = [](std::vector<std::string> words) {
        words.insert(words.begin(), {"--rdzv-id", "x"});
        words.push_back("p");
        return parse_options(words, {}).value().options;
    };
    using Servers = std::vector<ddprun::Endpoint>;
    CHECK(parse({"--rdzv-backend", "etcd"}).etcd_servers == Servers{{"localhost", 2379}});
    const auto options = parse({"--rdzv-endpoint", "n1,n2:99,[fd00::1]", "--rdzv-backend", "etcd-v2"});
    CHECK(options.etcd_servers == Servers{{"n1", 2379}, {"n2", 99}, {"fd00::1", 2379}});
    CHECK_FALSE(options.rdzv_endpoint.has_value());
    CHECK_FALSE(uses_etcd(parse({"--rdzv-backend", "c10d"})));

    const auto conf = parse({"--rdzv-backend=etcd", "--rdzv-conf",
                             "protocol=https,ca_cert=/ca,ssl_cert=/c,ssl_cert_key=/k,etcd_prefix=/p,username=u,"
                             "password_file=/w,timeout=900,last_call_timeout=1,read_timeout=9"})
                          .rdzv_conf;
    CHECK(conf.etcd.tls);
    CHECK(conf.etcd.ca_file == "/ca");
    CHECK(conf.etcd.cert_file == "/c");
    CHECK(conf.etcd.key_file == "/k");
    CHECK(conf.etcd.prefix == "/p");
    CHECK(conf.etcd.user == "u");
    CHECK(conf.etcd.password_file == "/w");
    CHECK(conf.join_timeout == std::chrono::seconds(900));
}

TEST_CASE("what a job does with more nodes can be chosen if their number is a range", "[launcher][unit]") {
    CHECK(parsed({"--nnodes", "1:4", "p"}).scale_up == ScaleUp::kImmediate);
    CHECK(parsed({"--nnodes", "1:4", "--scale_up", "at-restart", "p"}).scale_up == ScaleUp::kAtRestart);
    CHECK(parsed({"--nnodes", "1:4", "--scale-up=never", "p"}).scale_up == ScaleUp::kNever);
    CHECK(parsed({"--nnodes", "1:4", "--scale-up=never", "p"}).notes.empty());
    CHECK(parsed({"--nnodes", "4", "--scale-up=never", "--rdzv-endpoint", "n1", "p"}).notes.size() == 1);
}

TEST_CASE("an option beside a meeting point that has no effect is noted", "[launcher][unit]") {
    const auto notes = [](std::vector<std::string> words) {
        words.insert(words.begin(), {"--rdzv-id", "x"});
        words.push_back("p");
        return parse_options(words, {}).value().options.notes;
    };
    using Notes = std::vector<std::string>;
    CHECK(notes({"--rdzv-dir", "/d", "--local-nodes"}) == Notes{"--rdzv-dir has no effect beside --local-nodes"});
    CHECK(notes({"--rdzv-backend", "etcd", "--standalone"}) ==
          Notes{"--rdzv-backend etcd has no effect beside --standalone"});
    CHECK(notes({"--rdzv-dir", "/d", "--rdzv-endpoint", "n1"}) ==
          Notes{"--rdzv-endpoint has no effect beside --rdzv-dir"});
    CHECK(notes({"--rdzv-dir", "/d", "--master-addr", "n1"}) == Notes{"--master-addr has no effect beside --rdzv-dir"});
    CHECK(notes({"--rdzv-dir", "/d", "--master-port", "7"}).empty());
}

TEST_CASE("a node waits as long as torchrun's for a first node that starts late", "[launcher][unit]") {
    const auto timeout = [](Words words, bool elsewhere = true) {
        words.insert(words.end(), {"--nnodes", "2", "prog"});
        return connect_timeout(parsed(words), elsewhere);
    };
    CHECK(timeout({}) == 900s);
    CHECK(timeout({"--rdzv-backend", "static", "--rdzv-conf", "timeout=1200"}) == 1200s);
    CHECK(timeout({"--rdzv-conf", "join_timeout=100,read_timeout=7"}) == 7s);
    CHECK(timeout({"--rdzv-backend", "c10d", "--rdzv-conf", "join_timeout=100"}) == 60s);
    CHECK(timeout({"--rdzv-conf", "timeout=1200"}, false) == 10s);  // the daemon is there
}

TEST_CASE("the report is named although other options are refused", "[launcher][unit]") {
    CHECK(named_report({"--nnodes", "x", "--report", "r.json", "prog"}, {}) == "r.json");
    CHECK(named_report({"--nnodes", "x", "prog"}, {{"PET_REPORT", "r.json"}}) == "r.json");
    CHECK(named_report({"--report", "-", "prog"}, {}).empty());
    CHECK(named_report({"--nnodes", "x", "prog", "--report", "r.json"}, {}).empty());  // the program's own option
    CHECK(named_report({"--no-such-option", "--report", "r.json", "prog"}, {}).empty());
}
