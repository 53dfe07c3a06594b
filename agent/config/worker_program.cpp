#include "agent/config/worker_program.hpp"

#include <filesystem>

namespace ddprun::agent {

int slots_of(const std::vector<WorkerProgram>& programs) {
    int sum = 0;
    for (const WorkerProgram& program : programs) sum += program.slots;
    return sum;
}

ProgramRank program_rank(const std::vector<WorkerProgram>& programs, LocalRank rank) {
    ProgramRank at{0, number(rank)};
    while (at.rank >= programs.at(at.program).slots) at.rank -= programs[at.program++].slots;
    return at;
}

const std::string& role_of(const std::vector<WorkerProgram>& programs, LocalRank rank) {
    return programs[program_rank(programs, rank).program].role;
}

std::string name_of(const WorkerProgram& program) {
    return program.name.empty() ? std::filesystem::path(program.command.at(0)).filename().string() : program.name;
}

}  // namespace ddprun::agent
