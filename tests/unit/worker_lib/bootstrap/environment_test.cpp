#include "worker_lib/src/bootstrap/environment.hpp"

#include <map>
#include <string>

#include "ddp/error.hpp"
#include "tests/catch.hpp"

using namespace ddp;
using detail::read_environment;

namespace {

using Settings = std::map<std::string, std::string>;

detail::Variables variables(const Settings& settings) {
    return [settings](const char* name) -> std::optional<std::string> {
        const auto found = settings.find(name);
        if (found == settings.end()) return std::nullopt;
        return found->second;
    };
}

const Settings kComplete{{"RANK", "5"},
                         {"WORLD_SIZE", "8"},
                         {"LOCAL_RANK", "1"},
                         {"LOCAL_WORLD_SIZE", "4"},
                         {"GROUP_RANK", "1"},
                         {"MASTER_ADDR", "10.0.0.1"},
                         {"MASTER_PORT", "29500"},
                         {"TORCHELASTIC_RESTART_COUNT", "2"},
                         {"TORCHELASTIC_RUN_ID", "mnist"},
                         {"DDPRUN_GENERATION", "7"},
                         {"DDPRUN_SESSION", "0123456789abcdef0123456789abcdef"}};

std::string complaint_about(const std::string& name, const std::string& value) {
    Settings settings = kComplete;
    settings[name] = value;
    try {
        (void)read_environment(variables(settings));
    } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::Environment);
        return error.what();
    }
    return "no complaint";
}

}  // namespace

TEST_CASE("the environment of ddprun is read completely", "[context][unit]") {
    const Environment environment = read_environment(variables(kComplete));
    CHECK(environment.rank == 5);
    CHECK(environment.world_size == 8);
    CHECK(environment.local_rank == 1);
    CHECK(environment.local_world_size == 4);
    CHECK(environment.node_rank == 1);
    CHECK(environment.restart_count == 2);
    CHECK(environment.generation == 7);
    CHECK(environment.session == "0123456789abcdef0123456789abcdef");
    CHECK(environment.run_id == "mnist");
    CHECK(environment.master_addr == "10.0.0.1");
    CHECK(environment.master_port == 29500);
}

TEST_CASE("under torchrun the restart count stands for the generation", "[context][unit]") {
    Settings settings = kComplete;
    settings.erase("DDPRUN_GENERATION");
    CHECK(read_environment(variables(settings)).generation == 2);
    CHECK(read_environment(variables(settings)).session.empty());  // restart counts have no order
}

TEST_CASE("a session that ddprun does not draw is refused", "[context][unit]") {
    const std::string value = GENERATE(as<std::string>(), "../up", std::string(32, 'g'), std::string(32, 'A'),
                                       std::string(31, 'a'), std::string(33, 'a'));
    CHECK_THAT(
        complaint_about("DDPRUN_SESSION", value),
        Catch::Contains("DDPRUN_SESSION is '" + value + "', expected 32 digits of 0-9 and a-f. Start the program"));
}

TEST_CASE("nothing set is a world of one", "[context][unit]") {
    const Environment environment = read_environment(variables({}));
    CHECK(environment.rank == 0);
    CHECK(environment.world_size == 1);
    CHECK(environment.master_port == 0);
}

TEST_CASE("rank, size and master suffice", "[context][unit]") {
    const Environment environment = read_environment(
        variables({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}, {"MASTER_PORT", "1"}}));
    CHECK(environment.rank == 1);
    CHECK(environment.local_rank == 0);
    CHECK(environment.local_world_size == 1);
}

TEST_CASE("a bad value is refused with the variable's name and its text", "[context][unit]") {
    CHECK(complaint_about("RANK", "five") == "RANK is 'five', expected a whole number of at least 0");
    CHECK(complaint_about("RANK", "") == "RANK is '', expected a whole number of at least 0");
    CHECK(complaint_about("RANK", "5 ") == "RANK is '5 ', expected a whole number of at least 0");
    CHECK(complaint_about("RANK", "-1") == "RANK is '-1', expected a whole number of at least 0");
    CHECK(complaint_about("RANK", "0x5") == "RANK is '0x5', expected a whole number of at least 0");
    CHECK(complaint_about("WORLD_SIZE", "0") == "WORLD_SIZE is '0', expected a whole number of at least 1");
    CHECK(complaint_about("WORLD_SIZE", "99999999999") ==
          "WORLD_SIZE is '99999999999', expected a whole number of at least 1");
    CHECK(complaint_about("MASTER_PORT", "70000") == "MASTER_PORT is '70000', expected a whole number from 1 to 65535");
    CHECK(complaint_about("MASTER_PORT", "0") == "MASTER_PORT is '0', expected a whole number from 1 to 65535");
    CHECK_THAT(complaint_about("DDPRUN_GENERATION", "x"), Catch::Contains("DDPRUN_GENERATION is 'x'"));
    CHECK_THAT(complaint_about("TORCHELASTIC_RESTART_COUNT", "1.5"),
               Catch::Contains("TORCHELASTIC_RESTART_COUNT is '1.5'"));
}

TEST_CASE("numbers that contradict each other are refused", "[context][unit]") {
    CHECK(complaint_about("RANK", "8") == "RANK is 8 but WORLD_SIZE is 8: expected 0 to 7");
    CHECK(complaint_about("LOCAL_RANK", "4") == "LOCAL_RANK is 4 but LOCAL_WORLD_SIZE is 4: expected 0 to 3");
    CHECK_THAT(complaint_about("LOCAL_WORLD_SIZE", "9"),
               Catch::StartsWith("LOCAL_WORLD_SIZE is 9 but WORLD_SIZE is only 8: a node cannot have more ranks than "
                                 "the job. Start the program with ddprun"));
    CHECK_THAT(complaint_about("MASTER_ADDR", ""), Catch::Contains("MASTER_ADDR is not set"));
}

TEST_CASE("half an environment is refused, saying which half is missing", "[context][unit]") {
    CHECK_THROWS_WITH(read_environment(variables({{"RANK", "0"}})),
                      Catch::Contains("RANK is set but WORLD_SIZE is not"));
    CHECK_THROWS_WITH(read_environment(variables({{"WORLD_SIZE", "2"}})),
                      Catch::Contains("WORLD_SIZE is set but RANK is not"));
    CHECK_THROWS_WITH(read_environment(variables({{"RANK", "0"}, {"WORLD_SIZE", "2"}})),
                      Catch::Contains("MASTER_ADDR is not set"));
}

TEST_CASE("processes of a launcher that sets no RANK do not all train alone", "[context][unit]") {
    const std::string name = GENERATE("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS");
    CHECK_THROWS_WITH(read_environment(variables({{name, "2"}})),
                      Catch::StartsWith(name + " is 2 but RANK and WORLD_SIZE are not set: each of ") &&
                          Catch::Contains("Start the program with ddprun"));
    CHECK(read_environment(variables({{name, "1"}})).world_size == 1);
    CHECK(read_environment(variables({{name, "2"}, {"RANK", "0"}, {"WORLD_SIZE", "1"}})).world_size == 1);
}

TEST_CASE("a process of ddprun without any of its variables is refused, and one that was asked to run alone is not",
          "[environment][unit]") {
    CHECK_THROWS_WITH(detail::refuse_cleared(variables({}), true), Catch::Contains("would run alone"));
    CHECK_NOTHROW(detail::refuse_cleared(variables({}), false));
    CHECK_NOTHROW(detail::refuse_cleared(variables({{"RANK", "0"}, {"WORLD_SIZE", "1"}}), true));
    for (const char* const one : {"RANK", "WORLD_SIZE", "DDPRUN_GENERATION"})
        CHECK_NOTHROW(detail::refuse_cleared(variables({{one, "1"}}), true));
}

TEST_CASE("a rank of ddprun without DDPRUN_SECRET_FD has lost its secret", "[environment][unit]") {
    const std::map<std::string, std::string> rank{{"RANK", "0"}, {"WORLD_SIZE", "2"}};
    CHECK(detail::has_lost_secret(variables(rank), true));
    CHECK_FALSE(detail::has_lost_secret(variables(rank), false));  // of torchrun
    auto more = rank;
    more["DDPRUN_GENERATION"] = "1";
    CHECK(detail::has_lost_secret(variables(more), false));
    more["DDPRUN_SECRET_FD"] = "none";
    CHECK_FALSE(detail::has_lost_secret(variables(more), true));
    CHECK_FALSE(detail::has_lost_secret(variables({}), true));
}
