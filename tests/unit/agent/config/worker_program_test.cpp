#include "agent/config/worker_program.hpp"

#include "tests/catch.hpp"

using namespace ddprun;
using namespace ddprun::agent;

TEST_CASE("local ranks follow the order of the programs", "[agent]") {
    const std::vector<WorkerProgram> programs{{.command = {"/bin/train"}, .slots = 2},
                                              {.command = {"/bin/serve"}, .slots = 1, .role = "server"},
                                              {.command = {"/bin/x"}, .slots = 2, .role = "x", .name = "x.py"}};
    CHECK(slots_of(programs) == 5);
    const auto place = [&](int local) {
        const ProgramRank at = program_rank(programs, LocalRank{local});
        return std::pair(at.program, at.rank);
    };
    CHECK(place(0) == std::pair(std::size_t{0}, 0));
    CHECK(place(1) == std::pair(std::size_t{0}, 1));
    CHECK(place(2) == std::pair(std::size_t{1}, 0));
    CHECK(place(4) == std::pair(std::size_t{2}, 1));
    CHECK(role_of(programs, LocalRank{1}) == "default");
    CHECK(role_of(programs, LocalRank{3}) == "x");
    CHECK(name_of(programs[1]) == "serve");
    CHECK(name_of(programs[2]) == "x.py");
}
